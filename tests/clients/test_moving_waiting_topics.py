"""A topic whose retention waits for groups, in Apache Kafka and back: the keys are ours alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.clients.moving.kafka import FEW_SHARDS, kafka
from tests.support.administrator import TOPIC, Administrator
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_release import KAFKA_3_9, RELEASES, Release

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.slow]

WAITS = {"retention.wait.groups": "archive", "retention.wait.max.ms": "1000"}
SET, DELETE = 0, 1


def alter(admin: Administrator, **configs: str | None) -> int:
    """Set keys of topic t, or take them away, in one request. The error code."""
    asked = IncrementalAlterConfigsRequest.Resource
    changes = [
        asked.Config(
            name=name.replace("_", "."),
            config_operation=DELETE if value is None else SET,
            value=value,
        )
        for name, value in configs.items()
    ]
    resource = asked(resource_type=TOPIC, resource_name="t", configs=changes)
    answer = admin.call(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
    )
    code: int = answer.responses[0].error_code
    return code


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: f"kafka-{release.name}")
def test_kafka_opens_the_directory_and_ignores_the_keys(release: Release, tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data, settings=FEW_SHARDS)
    with broker, Administrator(broker.host, broker.port) as admin:
        admin.create("t", configs=WAITS)

    theirs = kafka(tmp_path / "kafka", data, release)
    with theirs, Administrator(theirs.host, theirs.port, timeout_s=30) as admin:
        assert "t" in admin.facts().topics
        if release is KAFKA_3_9:
            assert alter(admin, retention_ms="5000") == ErrorCode.INVALID_CONFIG
            assert alter(admin, retention_wait_groups=None) == ErrorCode.INVALID_CONFIG
            assert alter(admin, retention_wait_groups=None, retention_wait_max_ms=None) == 0
        assert alter(admin, retention_ms="5000") == 0

    with broker, Administrator(broker.host, broker.port) as admin:
        configs = admin.facts().configs[TOPIC, "t"]
        assert configs["retention.ms"] == "5000"
        assert ("retention.wait.groups" in configs) == (release is not KAFKA_3_9)
