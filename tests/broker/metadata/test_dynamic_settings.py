"""Every key that may change at run time changes what the running broker does.

A key that becomes dynamic without a test of its effect is found by the last test here.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.background import scrubber
from broker.background.child_process import ChildProcess
from config import ConfigError
from config.broker import BrokerSettings
from config.topic import TopicSettings
from protocol.logdata.metadata import ConfigRecord
from protocol.messages.metadata import MetadataRequest
from protocol.records.builder import build_batch
from protocol.records.crc import crc32c
from protocol.records.validate import ProduceRules
from storage.layout import RESERVE
from storage.steps import run_here
from tests.broker.network.test_connection import framed
from tests.support.caller import Target, batch, fetch_request, produce_request
from tests.support.compacted import keyed
from tests.support.fake_connection import InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.assembly import Broker
    from broker.partitions.topic import Topic
    from storage.log import Log

TOPIC = "t"
ACKS_ALL, ACKS_LEADER = -1, 1
BROKER = 4


class Case:
    """A broker that runs in this process, with one topic."""

    def __init__(self, running: InProcessBroker) -> None:
        self.running = running
        self.client = running.connect()
        self.broker: Broker = running.running.broker
        self.add(TOPIC)

    @property
    def topic(self) -> Topic:
        return self.broker.topics.by_name[TOPIC]

    @property
    def log(self) -> Log:
        return self.broker.directory.logs[TOPIC, 0]

    def add(self, name: str, **configs: str) -> Topic:
        texts = {key.replace("_", "."): text for key, text in configs.items()}
        return run_here(self.broker.topics.create(name, 1, texts))

    def set(self, settings: dict[str, str]) -> None:
        run_here(self.broker.dynamic_settings.change("1", settings))

    def produce(self, records: bytes, *, acks: int = ACKS_LEADER, version: int = 9) -> None:
        self.client.feed(framed(produce_request((TOPIC, 0, records), acks=acks), version, 1))

    def wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        self.running.turn_until(lambda: time.monotonic() > end_s)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Case]]:
    started: list[InProcessBroker] = []

    def start(settings: dict[str, str] | None = None) -> Case:
        running = InProcessBroker(tmp_path / "data", **(settings or {}))
        started.append(running.__enter__())
        return Case(running)

    yield start
    for running in started:
        running.__exit__(None, None, None)


#: Broker key: what it is set to, and then the value of the topic's settings that falls back to it.
FOR_TOPICS: dict[str, tuple[str, Any]] = {
    "compression.gzip.level": ("5", 5),
    "compression.lz4.level": ("3", 3),
    "compression.type": ("gzip", "gzip"),
    "compression.zstd.level": ("7", 7),
    "log.cleaner.delete.retention.ms": ("11", 11),
    "log.cleaner.max.compaction.lag.ms": ("12", 12),
    "log.cleaner.min.cleanable.ratio": ("0.25", 0.25),
    "log.cleaner.min.compaction.lag.ms": ("13", 13),
    "log.cleanup.policy": ("compact", ("compact",)),
    "log.flush.interval.messages": ("14", 14),
    "log.flush.interval.ms": ("15", 15),
    "log.index.interval.bytes": ("16", 16),
    "log.index.size.max.bytes": ("17", 17),
    "log.message.downconversion.enable": ("false", False),
    "log.message.timestamp.after.max.ms": ("18", 18),
    "log.message.timestamp.before.max.ms": ("19", 19),
    "log.message.timestamp.difference.max.ms": ("20", 20),
    "log.message.timestamp.type": ("LogAppendTime", "LogAppendTime"),
    "log.retention.bytes": ("21", 21),
    "log.retention.ms": ("22", 22),
    "log.retention.wait.max.bytes": ("28", 28),
    "log.retention.wait.max.ms": ("29", 29),
    "log.roll.jitter.ms": ("23", 23),
    "log.roll.ms": ("24", 24),
    "log.segment.bytes": ("25", 25),
    "log.segment.delete.delay.ms": ("26", 26),
    "message.max.bytes": ("27", 27),
    "min.insync.replicas": ("2", 2),
}


def facts(rules: ProduceRules) -> dict[str, Any]:
    return {name: getattr(rules, name) for name in ProduceRules.__slots__}


@pytest.mark.parametrize("name", FOR_TOPICS)
def test_topics_and_their_open_logs_go_by_what_was_set_for_the_broker(
    begin: Callable[..., Case], name: str
) -> None:
    case = begin()
    text, value = FOR_TOPICS[name]
    (key,) = [one for one in TopicSettings.KEYS.values() if name in one.broker]
    case.add("own", **{key.name: text})
    before = getattr(case.topic.settings, key.attribute)
    assert before != value

    case.set({name: text})

    new = case.add("new")
    for topic in (case.topic, new):
        assert getattr(topic.settings, key.attribute) == value
        assert topic.partitions[0].log.settings is topic.settings
    assert facts(case.topic.rules) == facts(new.rules)
    case.set({})
    assert getattr(case.topic.settings, key.attribute) == before
    assert getattr(case.broker.topics.by_name["own"].settings, key.attribute) == value


@pytest.mark.parametrize("partitions", [1, 2], ids=["one set", "several sets"])
def test_acks_all_is_refused_while_it_is_to_mean_more_replicas_than_there_are(
    begin: Callable[..., Case], partitions: int
) -> None:
    case = begin()
    sets = [(TOPIC, 0, batch(b"v"))] * partitions
    for settings, taken in (
        ({"min.insync.replicas": "2"}, False),
        ({"min.insync.replicas": "2", "replication.factor.clamp": "true"}, True),
        ({}, True),
    ):
        case.set(settings)
        before = case.log.next_offset
        case.client.feed(framed(produce_request(*sets, acks=ACKS_ALL), 9, 1))
        assert case.log.next_offset == before + (partitions if taken else 0)
        case.running.turn_until(lambda: case.client.connection.idle)
    case.set({"min.insync.replicas": "2"})
    before = case.log.next_offset
    case.produce(batch(b"v"), acks=ACKS_LEADER)
    assert case.log.next_offset == before + 1


def spoiled() -> bytes:
    """A batch whose header is right and whose record is not."""
    data = bytearray(build_batch([(1_700_000_000_000, None, b"v" * 20, ())]))
    data[61] = 2  # the length of the record, as a varint
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4)
    return bytes(data)


def test_records_are_walked_from_the_moment_that_asks_for_it(begin: Callable[..., Case]) -> None:
    case = begin()
    case.set({"validation.level": "header"})
    case.produce(spoiled())
    assert case.log.next_offset == 1

    case.set({"validation.level": "records"})
    case.produce(spoiled())

    assert case.log.next_offset == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"max.decompressed.batch.bytes": "2000000", "message.max.bytes": "2000000"},
        {"max.decompression.ratio": "2"},
    ],
    ids=["bytes", "ratio"],
)
def test_a_batch_may_expand_as_far_as_was_set_last(
    begin: Callable[..., Case], settings: dict[str, str]
) -> None:
    case = begin()
    zeros = build_batch([(1_700_000_000_000, None, bytes(3_000_000), ())], codec=1)
    opened = {"compression.type": "uncompressed", "message.max.bytes": "4000000"}
    case.set(opened)
    case.produce(zeros)
    case.running.turn_until(lambda: case.log.next_offset == 1)

    case.set({**opened, **settings})
    case.produce(zeros)
    case.running.turn_until(lambda: len(case.client.answered()) == 2)

    assert case.log.next_offset == 1


def test_the_cache_of_conversions_keeps_what_it_may(begin: Callable[..., Case]) -> None:
    case = begin()
    conversions = case.broker.conversions
    case.produce(batch(b"v" * 100))

    def read() -> int:
        case.client.feed(framed(fetch_request(Target(TOPIC, 0)), 2, 1))
        return conversions.cached_bytes

    kept = read()
    assert kept > 100
    case.set({"conversion.cache.max.bytes": "0"})
    assert conversions.cached_bytes == 0
    assert read() == 0
    case.set({"conversion.cache.max.bytes": "100000"})
    assert read() == kept
    case.set({"max.decompression.ratio": "5"})
    assert conversions.cached_bytes == 0, "what was too large may not be any more"


def test_a_client_is_read_ahead_as_far_as_was_set_last(begin: Callable[..., Case]) -> None:
    case = begin()
    waiting = framed(fetch_request(Target(TOPIC, 0), max_wait_ms=60_000), 12, 1)
    small = framed(MetadataRequest(topics=[]), 9, 2)
    case.client.feed(waiting)
    case.client.feed(small * (200_000 // len(small)))
    assert case.client.is_read()

    case.set({"read.ahead.max.bytes": "1000"})
    case.client.feed(small)

    assert not case.client.is_read()


def test_as_many_answers_are_owed_as_was_set_last(begin: Callable[..., Case]) -> None:
    case = begin()
    request = framed(produce_request((TOPIC, 0, batch(b"v")), acks=ACKS_ALL), 9, 1)
    case.set({"read.ahead.max.requests": "3"})

    case.client.feed(request * 8)

    assert case.log.next_offset == 3, "the others are begun when these are answered"
    case.running.turn_until(lambda: len(case.client.answered()) == 8)


def unsynced(log: Log) -> int:
    return log.written_offset - log.recovery_point


def test_what_the_system_was_left_to_sync_is_synced_when_the_policy_says_so(
    begin: Callable[..., Case],
) -> None:
    case = begin({"log.flush.policy": "os"})
    case.produce(batch(b"v"), acks=ACKS_ALL)
    case.running.turn()
    assert len(case.client.answered()) == 1, "nobody waits for the disk"
    case.wait(1.2)
    assert unsynced(case.log) == 1

    case.set({"log.flush.policy": "ack"})
    case.running.turn_until(lambda: unsynced(case.log) == 0)
    case.produce(batch(b"v"), acks=ACKS_ALL)
    assert len(case.client.answered()) == 1
    case.running.turn_until(lambda: len(case.client.answered()) == 2)
    assert unsynced(case.log) == 0


def test_a_policy_does_not_wait_out_the_time_of_the_one_before(begin: Callable[..., Case]) -> None:
    case = begin({"log.flush.policy": "interval", "log.flush.scheduler.interval.ms": "3600000"})
    case.produce(batch(b"v"))
    case.wait(0.3)
    assert unsynced(case.log) == 1

    case.set({"log.flush.policy": "ack"})

    case.running.turn_until(lambda: unsynced(case.log) == 0)


def test_records_wait_for_a_flush_as_long_as_was_set_last(begin: Callable[..., Case]) -> None:
    case = begin({"log.flush.policy": "interval", "log.flush.interval.ms": "3600000"})
    case.produce(batch(b"v"))
    case.wait(1.2)
    assert unsynced(case.log) == 1
    case.set({"log.flush.interval.ms": "20"})
    case.running.turn_until(lambda: unsynced(case.log) == 0, within_s=0.9)

    case.set({"log.flush.interval.ms": "3600000", "log.flush.interval.messages": "2"})
    case.produce(batch(b"v"))
    case.wait(0.3)
    assert unsynced(case.log) == 1
    case.produce(batch(b"v"))
    case.running.turn_until(lambda: unsynced(case.log) == 0)


def test_the_reserve_is_as_large_as_was_set_last(begin: Callable[..., Case]) -> None:
    case = begin({"disk.reserve.bytes": "100000"})
    file = Path(case.broker.directory.path) / RESERVE

    def reserve() -> int:
        return file.stat().st_size if file.exists() else -1

    case.running.turn_until(lambda: reserve() == 100_000)
    case.set({"disk.reserve.bytes": "200000"})
    case.running.turn_until(lambda: reserve() == 200_000)
    case.set({"disk.reserve.bytes": "0"})
    case.running.turn_until(lambda: reserve() == -1)
    case.wait(1.1)
    assert reserve() == -1


def test_old_data_is_read_again_from_the_moment_that_asks_for_it(
    begin: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubber, "LOOK_EVERY_S", 0.02)
    case = begin({"log.scrub.interval.ms": "-1"})
    case.produce(batch(b"v"))
    case.log.roll(now_ms=case.broker.now_ms())
    case.produce(batch(b"v"))
    case.wait(0.2)
    assert case.broker.scrubber.bytes_read == 0

    case.set({"log.scrub.interval.ms": "1"})

    case.running.turn_until(lambda: case.broker.scrubber.bytes_read > 0)


def test_compaction_goes_by_what_was_set_last(
    begin: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    works: list[dict[str, Any]] = []
    send = ChildProcess.send

    def seen(child: ChildProcess, line: bytes) -> None:
        works.append(json.loads(line))
        send(child, line)

    monkeypatch.setattr(ChildProcess, "send", seen)
    case = begin({"log.cleaner.backoff.ms": "3600000"})
    run_here(case.broker.topics.configure(case.topic, {"cleanup.policy": "compact"}))
    for number in range(4):
        case.produce(keyed((b"k", b"%d" % number)))
    case.log.roll(now_ms=case.broker.now_ms())
    case.wait(0.2)
    assert case.broker.cleaner.counts.cleanings == 0

    case.set(
        {
            "log.cleaner.backoff.ms": "20",
            "log.cleaner.dedupe.buffer.size": "2000000",
            "log.cleaner.io.max.bytes.per.second": "50000000",
        }
    )

    case.running.turn_until(lambda: case.broker.cleaner.counts.cleanings == 1, within_s=20)
    (work,) = works
    assert json.loads(work["plan"])["rules"]["map_bytes"] == 2_000_000
    assert work["bytes_per_second"] == 50_000_000


def test_producers_are_remembered_as_long_as_was_set_last(begin: Callable[..., Case]) -> None:
    case = begin({"producer.id.expiration.check.interval.ms": "20"})
    row = (case.broker.now_ms(), None, b"v", ())
    case.produce(build_batch([row], producer_id=7, producer_epoch=0, base_sequence=0))
    case.wait(0.2)
    assert len(case.log.producers) == 1

    case.set({"producer.id.expiration.ms": "1"})

    case.running.turn_until(lambda: len(case.log.producers) == 0)


def test_clients_are_told_to_dial_what_was_set_last(begin: Callable[..., Case]) -> None:
    case = begin()
    case.set({"advertised.listeners": "PLAINTEXT://kafka.example:1234"})

    case.client.feed(framed(MetadataRequest(topics=[]), 9, 1))

    assert b"kafka.example" in case.client.writes[-1]


def test_connections_are_limited_as_was_set_last(begin: Callable[..., Case]) -> None:
    case = begin()
    for settings, closed in (
        ({"max.connections.per.ip": "1"}, True),
        ({"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.1:2"}, False),
        ({"max.connections.per.ip.overrides": "127.0.0.1:1,10.0.0.1:7"}, True),
        ({}, False),
    ):
        case.set(settings)
        other = case.running.connect()
        assert other.transport.closed == closed, settings
        other.lose()
    assert not case.client.transport.closed


def test_a_snapshot_is_taken_when_as_many_records_as_was_set_last_are_there(
    begin: Callable[..., Case],
) -> None:
    case = begin()
    snapshots = case.broker.controller.snapshots
    assert snapshots.latest is None

    case.set({"controller.snapshot.minimum.records": "5"})
    for number in range(6):
        case.add(f"one-more-{number}")

    case.running.turn_until(lambda: snapshots.latest is not None)


def stored_record(name: str, value: str | None, *, broker: str = "1") -> ConfigRecord:
    return ConfigRecord(resource_type=BROKER, resource_name=broker, name=name, value=value)


def test_a_stored_setting_that_may_not_be_is_ignored_and_kept_and_the_broker_starts(
    begin: Callable[..., Case], tmp_path: Path
) -> None:
    stored = {"num.partitions": "16", "of.kafka.9": "x", "message.max.bytes": "0"}
    with InProcessBroker(tmp_path / "data") as first:
        records = [stored_record(name, text) for name, text in stored.items()]
        for broker, age in (("", "5"), ("2", "6")):
            records.append(stored_record("log.roll.ms", age, broker=broker))
        run_here(first.running.broker.controller.append(records))

    case = begin()

    assert case.broker.settings.current.layers.this_broker.keys() == {"message.max.bytes"}
    assert case.broker.settings.current.message_max_bytes == 0
    assert case.topic.settings.segment_ms == 5, "and other brokers' settings are theirs"
    assert case.broker.dynamic_settings.stored("1") == stored
    case.set({**stored, "message.max.bytes": "9"})
    assert case.topic.rules.max_message_bytes == 9
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        case.set({**stored, "num.partitions": "17"})
    case.set({})
    assert case.broker.dynamic_settings.stored("1") == {}


def test_a_topic_with_stored_settings_that_nobody_knows_is_served_without_them(
    begin: Callable[..., Case], tmp_path: Path
) -> None:
    with InProcessBroker(tmp_path / "data") as first:
        broker = first.running.broker
        run_here(broker.topics.create("moved", 1, {"retention.ms": "5"}))
        strange = ConfigRecord(resource_type=2, resource_name="moved", name="of.kafka.9", value="x")
        run_here(broker.controller.append([strange]))

    case = begin()

    assert case.broker.topics.by_name["moved"].overrides == {"retention.ms": "5"}


def test_a_change_that_cannot_be_stored_changes_nothing(
    begin: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = begin()

    def full(*_: object) -> None:
        raise OSError(28, "no room")

    monkeypatch.setattr(case.broker.controller, "append", full)
    with pytest.raises(OSError, match="no room"):
        case.set({"message.max.bytes": "9"})
    assert case.topic.settings.max_message_bytes == 1_048_588
    assert case.broker.settings.current.layers.this_broker == {}


#: With a test here, or one of listeners, admission, alter configs, transactions or rehearsals.
TESTED = {
    "listeners", "listener.security.protocol.map", "advertised.listeners",
    "controller.snapshot.minimum.records", "conversion.cache.max.bytes", "clock.jump.wait.ms",
    "disk.reserve.bytes", "log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size",
    "transaction.partition.verification.enable", "log.cleaner.io.max.bytes.per.second",
    "log.flush.policy", "log.scrub.interval.ms", "max.connections.per.ip",
    "max.connections.per.ip.overrides", "max.decompressed.batch.bytes", "max.decompression.ratio",
    "producer.id.expiration.ms", "read.ahead.max.bytes", "read.ahead.max.requests",
    "replication.factor.clamp", "validation.level", "max.connections",
    "max.connection.creation.rate", "offsets.commit.conditional.enable", "as.version",
    "as.version.client.ids",
}  # fmt: skip


def test_every_key_that_changes_at_run_time_is_tested() -> None:
    dynamic = {name for name, key in BrokerSettings.KEYS.items() if key.dynamic and not key.unused}
    assert dynamic == TESTED | set(FOR_TOPICS)
