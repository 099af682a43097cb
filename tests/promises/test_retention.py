"""The promises of three documents for retention, through a running broker.

The proposal on enriched message metadata wants it independent of when segments roll (KAFKA-979)
and of what files say of their age (KAFKA-881, KAFKA-1379), with a truncation inside the segment in
which the limit falls. KIP-31 ("Change time based log rolling and retention to use timestamp") and
KIP-32 (6.2 and 7.2 of its list) base it on timestamps. Each test names its passage.

Where the texts believe any timestamp, we believe those between the receipt of the records around
them; KIP-32 itself calls it a downside (7.2) that one wrong clock decides on a whole segment.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

from protocol.records.builder import build_batch
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.old_sets import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

WITHIN_S = 10.0
SOON = {
    "log.retention.check.interval.ms": "50",
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "0",
}
YEAR_2100_MS = 4_102_444_800_000


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return SOON


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[Caller]:
    with Caller(broker.host, broker.port) as client:
        yield client


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wait_until(what: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    until_s = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.02)


def start_of(caller: Caller, topic: str) -> int:
    return caller.offset(topic, -2).offset


def put(caller: Caller, topic: str, *times_ms: int, magic: int = 2) -> int:
    """Produce one set of these times; its first offset."""
    values = [bytes(100) for _ in times_ms]
    if magic == 2:
        sent = build_batch([(at, None, v, ()) for at, v in zip(times_ms, values, strict=True)])
    else:
        sent = messages(*values, magic=magic, times_ms=times_ms)
    return caller.produce(topic, sent, version=9 if magic == 2 else 2).base_offset


def segments(data: Path, topic: str) -> list[str]:
    return sorted(path.name for path in (data / f"{topic}-0").glob("*.log"))


# Enriched metadata, Motivation: "today we clean up log data at the granularity of log segments, and
# only considering non-active log segments. As a result, if a log does not roll for a long time, the
# specified log cleaning policy may not be honored" (KAFKA-979)


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2", "3.0"])
def test_a_log_that_never_rolls_is_cleaned_as_its_policy_says(
    broker: BrokerProcess, caller: Caller, topic: str, version: str
) -> None:
    magic = {"0.9.0": 0, "0.10.2": 1, "3.0": 2}[version]
    caller.create_topic(topic, retention_ms="700", message_format_version=version)
    put(caller, topic, now_ms(), magic=magic)
    assert len(segments(broker.data, topic)) == 1

    wait_until(lambda: start_of(caller, topic) == 1)

    assert caller.values(topic, 1) == []
    wait_until(lambda: segments(broker.data, topic) == [f"{1:020d}.log"])


# Log Compaction / Log Cleaning, 2b: "For the first segment whose last message's timestamp is still
# not old enough, do binary search based on index file's timestamp and do a head truncation on that
# segment file."


@pytest.mark.parametrize("version", ["0.10.2", "3.0"])
def test_the_head_of_a_segment_is_cut_at_the_record_that_is_young_enough(
    broker: BrokerProcess, caller: Caller, topic: str, version: str
) -> None:
    magic = {"0.10.2": 1, "3.0": 2}[version]
    caller.create_topic(
        topic, retention_ms="1000", message_format_version=version, index_interval_bytes="200"
    )
    sent = []
    until_s = time.monotonic() + 2.0
    while time.monotonic() < until_s:
        sent.append(now_ms())
        put(caller, topic, sent[-1], magic=magic)
        time.sleep(0.02)

    before_ms = now_ms()
    start = start_of(caller, topic)

    assert 0 < start < len(sent), "a part of the only segment"
    assert sent[start - 1] < before_ms - 1000
    assert sent[start] > before_ms - 1000 - 800, "no more than some looks ago"
    assert segments(broker.data, topic) == [f"{0:020d}.log"]


# 2a: "checking the timestamp tag of the last message from the index file. If the timestamp is old
# enough, delete the whole segment"; KIP-31: "The time based log retention will be based on the
# timestamp of the last message in the log segment file"; KIP-32 6.2: "If that entry expires, the
# log segment will be deleted."


def test_a_segment_whose_last_timestamp_is_old_enough_is_deleted(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, retention_ms="1000", segment_bytes="400")
    for _ in range(6):
        put(caller, topic, now_ms())
        time.sleep(0.1)
    assert len(segments(broker.data, topic)) > 2

    wait_until(lambda: segments(broker.data, topic) == [f"{6:020d}.log"])


# Motivation: "the time-based log rolling mechanism depends on the creation time of the log
# segments, which will be changed when partition migrates or broker restarts" (KAFKA-881,
# KAFKA-1379); KIP-31: "This does not work for newly created replicas because the time attributes
# of files is different from the true message append time."


@pytest.mark.parametrize("times_ms", [None, -1], ids=["honest", "none"])
def test_a_copied_directory_ages_as_the_original_would(
    tmp_path: Path, times_ms: int | None
) -> None:
    first = BrokerProcess(tmp_path / "first", settings=SOON)
    first.start()
    with Caller(first.host, first.port) as caller:
        caller.create_topic("t", retention_ms="3000")
        put(caller, "t", now_ms() if times_ms is None else times_ms)
        sent_s = time.monotonic()
    assert first.stop() == 0
    time.sleep(1.0)
    shutil.copytree(tmp_path / "first", tmp_path / "second", copy_function=shutil.copyfile)

    second = BrokerProcess(tmp_path / "second", settings=SOON)
    second.start()
    try:
        with Caller(second.host, second.port) as caller:
            assert start_of(caller, "t") == 0
            wait_until(lambda: start_of(caller, "t") == 1, within_s=sent_s + 5.0 - time.monotonic())
            assert time.monotonic() - sent_s > 2.9
    finally:
        second.stop()


def test_a_restart_does_not_make_records_younger(own_broker: BrokerProcess) -> None:
    own_broker.settings = SOON
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic("t", retention_ms="3000")
        put(caller, "t", -1)
        sent_s = time.monotonic()
    time.sleep(1.5)
    own_broker.kill()
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        wait_until(lambda: start_of(caller, "t") == 1, within_s=sent_s + 4.5 - time.monotonic())
        assert time.monotonic() - sent_s > 2.9
    assert own_broker.stop() == 0


# KIP-32 7.2: "The log retention might become non-deterministic. i.e. When a message will be deleted
# now depends on the timestamp of the other messages in the same log segment." Not here.


@pytest.mark.parametrize("wrong_ms", [0, YEAR_2100_MS])
def test_a_message_of_a_wrong_clock_does_not_decide_on_its_neighbours(
    caller: Caller, topic: str, wrong_ms: int
) -> None:
    caller.create_topic(topic, retention_ms="2000")
    put(caller, topic, now_ms())
    put(caller, topic, wrong_ms)
    put(caller, topic, now_ms())
    sent_s = time.monotonic()

    while time.monotonic() < sent_s + 1.5:
        assert start_of(caller, topic) == 0
        time.sleep(0.1)
    wait_until(lambda: start_of(caller, topic) == 3)

    assert time.monotonic() - sent_s < 4.5
