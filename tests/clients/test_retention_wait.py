"""Retention that waits for a group: real consumers commit, records stay until they have."""

from __future__ import annotations

import json
import time
import warnings
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from protocol.records.builder import build_batch
from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.test_retention import wait_until
from tests.clients.test_settings import CONFIGS_TOOL
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.kafka_release import KAFKA_3_9
from tests.support.kafka_tools import run_tool
from tests.support.scraped import counters
from tests.support.server_process import free_port
from tools.cli import main

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.clients

GROUP = "archive"
COUNT = 20
#: Every record is due as soon as it is stored.
CONFIGS = {"retention.ms": "0", "segment.bytes": "100000", "retention.wait.groups": GROUP}


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "log.retention.check.interval.ms": "100",
        "log.initial.task.delay.ms": "0",
        "log.segment.delete.delay.ms": "100",
        "metrics.port": str(free_port()),
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=settings) as process:
        yield process


def fill(broker: BrokerProcess, topic: str, **configs: str) -> None:
    """A topic of one partition with `COUNT` records, each a batch, all of them due."""
    overrides = CONFIGS | {name.replace("_", "."): value for name, value in configs.items()}
    ConfluentDriver().create_topic(broker.bootstrap, topic, partitions=1, configs=overrides)
    with Caller(broker.host, broker.port) as caller:
        for number in range(COUNT):
            rows = [(time.time_ns() // 1_000_000, None, b"%d" % number + bytes(990), ())]
            assert caller.produce(topic, build_batch(rows)).error_code == 0


def start_of(broker: BrokerProcess, topic: str) -> int:
    with Caller(broker.host, broker.port) as caller:
        return caller.offset(topic, -2).offset


def read_and_commit(broker: BrokerProcess, topic: str, count: int) -> list[int]:
    """Have kafka-python, a member of the group, read so many records and commit."""
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=10_000,
        max_poll_records=1,
    )
    offsets = []
    for message in consumer:
        offsets.append(message.offset)
        if len(offsets) == count:
            break
    consumer.commit(
        {kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(offsets[-1] + 1, "", -1)}
    )
    consumer.close()
    return offsets


def described(broker: BrokerProcess, capsys: pytest.CaptureFixture[str], group: str = GROUP) -> Any:
    capsys.readouterr()
    words = ["groups", "describe", group, "--bootstrap", broker.bootstrap, "--json"]
    assert main(words) == 0
    return json.loads(capsys.readouterr().out)


def test_records_stay_until_a_real_consumer_has_committed_them_across_a_kill(
    waiting: BrokerProcess, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(waiting, topic)
    rows = f'retention_waiting_topic_records{{topic="{topic}"}}'
    port = int(waiting.settings["metrics.port"])
    wait_until(lambda: counters(port).get(rows) == COUNT)  # nobody has committed anything
    assert start_of(waiting, topic) == 0

    assert read_and_commit(waiting, topic, 7) == list(range(7))
    wait_until(lambda: start_of(waiting, topic) == 7)
    wait_until(lambda: counters(port).get(rows) == COUNT - 7)
    (held,) = described(waiting, capsys)["held_back"]
    assert (held["topic"], held["partition"], held["records"]) == (topic, 0, COUNT - 7)
    assert held["bytes"] > 1000 * (COUNT - 7)
    assert held["since_ms"] <= time.time_ns() // 1_000_000

    waiting.kill()
    waiting.start()
    time.sleep(1)  # rounds of retention
    assert start_of(waiting, topic) == 7

    assert read_and_commit(waiting, topic, COUNT - 7) == list(range(7, COUNT))
    wait_until(lambda: start_of(waiting, topic) == COUNT)
    wait_until(lambda: rows not in counters(port))
    assert described(waiting, capsys)["held_back"] == []


def test_a_consumer_of_librdkafka_that_is_elsewhere_is_not_waited_for(
    waiting: BrokerProcess, topic: str
) -> None:
    fill(waiting, topic)
    other = confluent_kafka.Consumer(
        {"bootstrap.servers": waiting.bootstrap, "group.id": "other", "enable.auto.commit": False}
    )
    where = confluent_kafka.TopicPartition(topic, 0, COUNT)
    other.commit(offsets=[where], asynchronous=False)
    time.sleep(0.5)
    assert start_of(waiting, topic) == 0
    other.close()

    archive = confluent_kafka.Consumer({"bootstrap.servers": waiting.bootstrap, "group.id": GROUP})
    archive.commit(offsets=[where], asynchronous=False)
    archive.close()
    wait_until(lambda: start_of(waiting, topic) == COUNT)


def test_a_bound_that_is_exceeded_is_loud(waiting: BrokerProcess, topic: str) -> None:
    fill(waiting, topic, retention_wait_max_bytes="5500", retention_wait_groups="forgotten")
    wait_until(lambda: start_of(waiting, topic) == COUNT - 5)

    port = int(waiting.settings["metrics.port"])
    wait_until(lambda: counters(port)["retention_wait_lost_records_total"] >= COUNT - 5)
    assert waiting.run is not None
    said = waiting.run.output()
    assert "a bound is exceeded" in said
    assert "retention.wait.max.bytes" in said


def test_the_held_records_of_a_group_that_does_not_exist_are_shown(
    waiting: BrokerProcess, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(waiting, topic, retention_wait_groups="not-yet")
    wait_until(lambda: _held(waiting, topic) == COUNT)
    capsys.readouterr()
    assert main(["groups", "describe", "not-yet", "--bootstrap", waiting.bootstrap]) == 0
    text = capsys.readouterr().out
    assert "HELD-RECORDS" in text
    assert f"retention holds back {COUNT} records" in text


def _held(broker: BrokerProcess, topic: str) -> float:
    page = counters(int(broker.settings["metrics.port"]))
    return page.get(f'retention_waiting_topic_records{{topic="{topic}"}}', 0)


def test_delete_records_of_an_administrator_waits_for_nobody(
    waiting: BrokerProcess, topic: str
) -> None:
    fill(waiting, topic)
    with Caller(waiting.host, waiting.port) as caller:
        caller.delete_records(topic, 9)
    assert start_of(waiting, topic) == 9


def test_an_admin_client_sets_the_keys_and_sees_where_they_come_from(
    waiting: BrokerProcess, topic: str
) -> None:
    fill(waiting, topic, retention_wait_max_ms="60000")
    admin = AdminClient({"bootstrap.servers": waiting.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (described,) = admin.describe_configs([resource]).values()
    entries = described.result(10)

    assert entries["retention.wait.groups"].value == GROUP
    assert entries["retention.wait.max.ms"].value == "60000"
    assert entries["retention.wait.max.ms"].is_default is False
    assert entries["retention.wait.max.bytes"].value == str(1 << 30)
    names = list(entries["retention.wait.max.bytes"].synonyms)
    assert names == ["log.retention.wait.max.bytes"]


@pytest.mark.java
def test_kafkas_own_tool_sets_and_shows_the_groups(
    waiting: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    fill(waiting, topic)

    def tool(*words: str) -> str:
        address = ["--bootstrap-server", waiting.bootstrap, "--entity-type", "topics"]
        address += ["--entity-name", topic]
        ended = run_tool(KAFKA_3_9, CONFIGS_TOOL, *address, *words, folder=tmp_path)
        assert ended.code == 0, ended.out + ended.err
        return ended.out

    tool("--alter", "--add-config", "retention.wait.groups=[archive,audit]")
    assert "retention.wait.groups=archive,audit sensitive=false" in tool("--describe")
