"""Old records go, seen by clients of a running broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.records.builder import build_batch
from protocol.registry import APIS
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, Target, batch, fetch_request, records_in
from tests.support.disk_usage import bytes_in
from tests.support.topic_changes import change

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

WITHIN_S = 10.0
FETCH = APIS[1]


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "log.retention.check.interval.ms": "100",
        "log.initial.task.delay.ms": "0",
        "log.segment.delete.delay.ms": "0",
    }


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wait_until(what: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not what():
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.02)


def folder_of(broker: BrokerProcess, topic: str) -> Path:
    return broker.data / f"{topic}-0"


def names(broker: BrokerProcess, topic: str) -> list[str]:
    return sorted(path.name for path in folder_of(broker, topic).iterdir())


def size_on_disk(broker: BrokerProcess, topic: str) -> int:
    return bytes_in(folder_of(broker, topic), "*.log*")


def start_of(caller: Caller, topic: str) -> int:
    return caller.offset(topic, -2).offset


def fill(caller: Caller, topic: str, count: int = 20, *, timestamp_ms: int | None = None) -> None:
    for _ in range(count):
        at = now_ms() if timestamp_ms is None else timestamp_ms
        assert caller.produce(topic, batch(bytes(5000), timestamp_ms=at)).error_code == 0


def test_a_log_is_kept_below_its_size(broker: BrokerProcess, caller: Caller, topic: str) -> None:
    caller.create_topic(topic, retention_bytes="40000", segment_bytes="20000")
    fill(caller, topic)

    wait_until(lambda: size_on_disk(broker, topic) < 40_000 + 20_000)

    start = start_of(caller, topic)
    assert 0 < start < 20
    assert caller.fetch(topic, start - 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(caller.values(topic, start)) == 20 - start
    assert f"{start:020d}.log" in names(broker, topic)


def test_an_idle_log_goes_to_its_last_record(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, retention_ms="300", segment_bytes="20000")
    fill(caller, topic, 5)

    wait_until(lambda: start_of(caller, topic) == 5)
    wait_until(lambda: size_on_disk(broker, topic) == 0)

    assert caller.end_offset(topic) == 5
    assert caller.produce(topic, batch(b"x", timestamp_ms=now_ms())).base_offset == 5


@pytest.mark.parametrize("timestamp_ms", [0, 4_102_444_800_000])
def test_a_wrong_clock_neither_kills_nor_pins(
    caller: Caller, topic: str, timestamp_ms: int
) -> None:
    caller.create_topic(topic, retention_ms="1500", segment_bytes="20000")
    fill(caller, topic, 2, timestamp_ms=timestamp_ms)
    sent_s = time.monotonic()

    while time.monotonic() < sent_s + 1.0:
        assert start_of(caller, topic) == 0
        time.sleep(0.1)
    wait_until(lambda: start_of(caller, topic) == 2)


def test_a_new_minimum_timestamp_drops_what_is_older(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, segment_bytes="20000")
    fill(caller, topic, 3)
    time.sleep(0.05)
    moment = now_ms()
    fill(caller, topic, 3)
    time.sleep(0.3)
    assert start_of(caller, topic) == 0

    change(caller, topic, retention_min_timestamp=str(moment))

    wait_until(lambda: start_of(caller, topic) == 3)
    time.sleep(0.3)
    assert start_of(caller, topic) == 3


def test_a_compacted_topic_keeps_all_of_it(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, cleanup_policy="compact", retention_ms="1", retention_bytes="1")
    caller.create_topic(f"{topic}-both", cleanup_policy="compact,delete", retention_ms="1")
    for name in (topic, f"{topic}-both"):
        keyed = build_batch([(now_ms(), b"k", b"v", ())])
        assert caller.produce(name, keyed).error_code == 0

    wait_until(lambda: start_of(caller, f"{topic}-both") == 1)
    assert start_of(caller, topic) == 0


def test_deleted_files_wait_out_their_delay(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, file_delete_delay_ms="1000", segment_bytes="20000")
    fill(caller, topic, 8)
    caller.delete_records(topic, 7)

    wait_until(lambda: any(name.endswith(".log.deleted") for name in names(broker, topic)))
    time.sleep(0.3)
    assert any(name.endswith(".log.deleted") for name in names(broker, topic))
    wait_until(lambda: not any(name.endswith(".deleted") for name in names(broker, topic)))
    assert len(caller.values(topic, 7)) == 1


def test_a_fetch_that_waits_learns_that_the_log_start_moved(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a"))
    with Caller(broker.host, broker.port) as other:
        sent_s = time.monotonic()
        request = fetch_request(Target(topic, 0), min_bytes=1 << 20, max_wait_ms=30_000)
        sent = other.send(request, 12)
        other.see_nothing_come()

        caller.delete_records(topic, 1)

        answer = other.receive(FETCH, 12, sent)
        assert time.monotonic() - sent_s < 10
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_amid_a_segment_that_goes_gets_all_its_bytes(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    """The answer is far larger than what sockets hold, so it is still being sent."""
    caller.create_topic(topic, segment_bytes="30000000")
    values: list[bytes | None] = [bytes([number]) * 900_000 for number in range(24)]
    for value in values:
        assert value is not None
        caller.produce(topic, batch(value, timestamp_ms=now_ms()))
    with Caller(broker.host, broker.port) as slow:
        wanted = Target(topic, 0, partition_max_bytes=1 << 28)
        sent = slow.send(fetch_request(wanted, max_bytes=1 << 28), 12)
        time.sleep(0.3)
        assert change(caller, topic, retention_ms="1") == 0
        wait_until(lambda: size_on_disk(broker, topic) < 1_000_000)
        answer = slow.receive(FETCH, 12, sent)
    got = records_in(answer.responses[0].partitions[0].records)
    assert [value for _, value in got] == values
