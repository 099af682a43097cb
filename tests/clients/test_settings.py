"""Settings of a topic and of the broker, changed and read by real clients while the broker runs.

They pass with Apache Kafka 3.9 as the server, too (TEST_SERVER=kafka).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from protocol.errors import ErrorCode
from tests.support.kafka_release import KAFKA_3_9
from tests.support.kafka_tools import run_tool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.clients]

CONFIGS_TOOL = "kafka.admin.ConfigCommand"
WITHIN_S = 10.0
#: Keys that the defaults of broker and topic share, so that both kinds of value can be seen.
BROKER_KEY, TOPIC_KEY = "log.segment.delete.delay.ms", "file.delete.delay.ms"


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def resource(kind: ResourceType, name: str, **changes: tuple[AlterConfigOpType, str | None]) -> Any:
    return ConfigResource(
        kind,
        name,
        incremental_configs=[
            ConfigEntry(key.replace("_", "."), value, incremental_operation=operation)
            for key, (operation, value) in changes.items()
        ],
    )


def altered(admin: AdminClient, asked: ConfigResource) -> None:
    for future in admin.incremental_alter_configs([asked]).values():
        future.result(WITHIN_S)


def entries(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    found: dict[str, ConfigEntry] = future.result(WITHIN_S)
    return found


def eventually(condition: Callable[[], bool]) -> None:
    """Kafka applies what was changed a moment after it has said so."""
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE


def test_librdkafka_changes_the_broker_and_sees_it_in_broker_and_topic(
    admin: AdminClient, bootstrap: str, topic: str
) -> None:
    (made,) = admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1)]).values()
    made.result(WITHIN_S)
    change = resource(ResourceType.BROKER, "1", log_segment_delete_delay_ms=(SET, "3333"))
    altered(admin, change)

    def seen() -> bool:
        broker = entries(admin, ResourceType.BROKER, "1")[BROKER_KEY]
        of_topic = entries(admin, ResourceType.TOPIC, topic)[TOPIC_KEY]
        source = ConfigSource.DYNAMIC_BROKER_CONFIG
        return all(
            (one.value, ConfigSource(one.source)) == ("3333", source) for one in (broker, of_topic)
        )

    eventually(seen)
    entry = entries(admin, ResourceType.BROKER, "1")[BROKER_KEY]
    assert not entry.is_read_only
    # By name, so that of several only one is left; the client does not keep them apart.
    assert BROKER_KEY in entry.synonyms
    gone = resource(ResourceType.BROKER, "1", log_segment_delete_delay_ms=(DELETE, None))
    altered(admin, gone)
    eventually(
        lambda: (
            ConfigSource(entries(admin, ResourceType.BROKER, "1")[BROKER_KEY].source)
            == ConfigSource.DEFAULT_CONFIG
        )
    )


def test_librdkafka_is_told_what_cannot_be_changed(admin: AdminClient) -> None:
    change = resource(ResourceType.BROKER, "1", num_partitions=(SET, "3"))
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        altered(admin, change)
    assert caught.value.args[0].code() == ErrorCode.INVALID_REQUEST


@pytest.mark.filterwarnings("ignore")  # kafka-python reads its files in a way of the past
@pytest.mark.parametrize("incremental", [True, False])
def test_kafka_python_changes_the_broker(bootstrap: str, incremental: bool) -> None:
    from kafka.admin import ConfigResource as Asked
    from kafka.admin import ConfigResourceType, KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=bootstrap)

    def value() -> str:
        asked = Asked(ConfigResourceType.BROKER, "1", {BROKER_KEY: None})
        found = client.describe_configs([asked], config_filter="all")
        text: str = found["broker"]["1"][BROKER_KEY]["value"]
        return text

    before = value()
    change = Asked(ConfigResourceType.BROKER, "1", {BROKER_KEY: "4444"})
    client.alter_configs([change], incremental=incremental)
    eventually(lambda: value() == "4444")

    back = Asked(ConfigResourceType.BROKER, "1", {BROKER_KEY: ("DELETE", None)})
    client.alter_configs([back], incremental=True)
    eventually(lambda: value() == before)
    client.close()


@pytest.mark.java
@pytest.mark.parametrize("target", [["--entity-name", "1"], ["--entity-default"]])
def test_kafkas_own_tool_changes_and_describes_the_broker(
    bootstrap: str, tmp_path: Path, target: list[str]
) -> None:
    def tool(*words: str) -> str:
        address = ["--bootstrap-server", bootstrap, "--entity-type", "brokers", *target]
        ended = run_tool(KAFKA_3_9, CONFIGS_TOOL, *address, *words, folder=tmp_path)
        assert ended.code == 0, ended.out + ended.err
        return ended.out

    assert "Completed updating" in tool("--alter", "--add-config", f"{BROKER_KEY}=5555")
    said = tool("--describe")
    assert f"{BROKER_KEY}=5555 sensitive=false" in said
    tool("--alter", "--delete-config", BROKER_KEY)
    assert f"{BROKER_KEY}=5555" not in tool("--describe")


@pytest.mark.java
def test_kafkas_own_tool_changes_what_is_logged(bootstrap: str, tmp_path: Path) -> None:
    def tool(*words: str) -> str:
        address = ["--bootstrap-server", bootstrap, "--entity-type", "broker-loggers"]
        address += ["--entity-name", "1"]
        ended = run_tool(KAFKA_3_9, CONFIGS_TOOL, *address, *words, folder=tmp_path)
        assert ended.code == 0, ended.out + ended.err
        return ended.out

    tool("--alter", "--add-config", "root=WARN")
    assert "root=WARN" in tool("--describe")
    tool("--alter", "--add-config", "root=INFO")
    assert "root=INFO" in tool("--describe")
