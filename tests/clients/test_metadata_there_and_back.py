"""Metadata that Apache Kafka wrote, at any level and in any state, that we went on with: Kafka
opens them again.

The directories are those of tests/storage/metadata/kafka_written, which have no partitions; both
brokers make them anew. One is tried each time, the oldest level; `TEST_MOVING_ALL=1` tries all.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.clients.moving.kafka import kafka
from tests.clients.moving.served import without_epochs
from tests.storage.metadata.test_kafka_written import FOLDER, NAMES
from tests.support.administrator import TOPIC, Administrator
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java]

TRIED = NAMES if os.environ.get("TEST_MOVING_ALL") else ["3.9-level-7"]
#: They have no partition on the disk before the start.
MISSING = "to exist, but it was missing. Creating..."


@pytest.mark.parametrize("name", TRIED)
def test_kafka_opens_what_we_added_to_its_metadata(name: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(FOLDER / name, logs)
    expected = json.loads((FOLDER / name / "expected.json").read_text())
    release = KAFKA_3_9 if expected["kafka"].startswith("3.9") else KAFKA_4
    server = kafka(tmp_path / "kafka", logs, release, dynamic=bool(expected["voters"]))
    with BrokerProcess(logs) as broker, Administrator(broker.host, broker.port) as admin:
        topic_id = admin.create("ours", 2, configs={"segment.bytes": "2000000"})
        admin.delete_topic("grown")
        admin.alter(TOPIC, "orders", retention_ms="5000000")
        admin.set_quota({"user": "ours"}, "producer_byte_rate", 1000.0)
        producer_id = admin.new_producer_id()
        said = without_epochs(admin.facts())

    server.start()
    try:
        with Administrator(server.host, server.port, timeout_s=30) as admin:
            found = without_epochs(admin.facts())
            assert admin.new_producer_id() > producer_id
    finally:
        server.stop()

    assert found.topics["ours"].topic_id == topic_id
    assert found.topics == said.topics
    assert found.configs[TOPIC, "orders"] == said.configs[TOPIC, "orders"]
    assert found.quotas == said.quotas
    assert found.features == said.features
    assert [line for line in server.complaints() if MISSING not in line] == []
