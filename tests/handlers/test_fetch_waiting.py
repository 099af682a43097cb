"""Fetches that wait, versions 4 to 18."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from protocol.registry import APIS
from tests.support.caller import (
    Caller,
    Target,
    Timed,
    batch,
    batches_in,
    by_partition,
    fetch_request,
    named,
    records_in,
)

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

VERSIONS = range(4, 19)
FETCH = APIS[1]

#: Longer than any answer that comes at once takes on a busy machine.
LONG_MS = 4_000


def test_no_data_below_the_minimum_waits_for_the_whole_time(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    with Timed() as took:
        fetched = caller.fetch(topic, max_wait_ms=300)

    assert (fetched.error_code, fetched.high_watermark, len(fetched.records)) == (0, 0, 0)
    assert 290 <= took.ms < LONG_MS


@pytest.mark.parametrize("options", [{"min_bytes": 0}, {"max_wait_ms": 0}, {"max_wait_ms": -1}])
def test_a_minimum_or_a_wait_of_zero_is_answered_at_once(
    caller: Caller, topic: str, options: dict[str, int]
) -> None:
    caller.create_topic(topic)

    with Timed() as took:
        fetched = caller.fetch(topic, **{"max_wait_ms": LONG_MS, **options})

    assert fetched.error_code == 0
    assert took.ms < LONG_MS


@pytest.mark.parametrize("limits", [{"max_bytes": 1500}, {"partition_max_bytes": 1500}])
def test_a_minimum_above_what_the_limits_let_through_is_not_waited_for(
    caller: Caller, topic: str, limits: dict[str, int]
) -> None:
    caller.create_topic(topic)
    for _ in range(3):
        caller.produce(topic, batch(b"x" * 1000))
    of_partition = {key: value for key, value in limits.items() if key != "max_bytes"}
    of_request = {key: value for key, value in limits.items() if key == "max_bytes"}

    with Timed() as took:
        answer = caller.call(
            fetch_request(
                Target(topic, **of_partition),
                min_bytes=1_000_000,
                max_wait_ms=LONG_MS,
                **of_request,
            ),
            12,
        )

    assert batches_in(answer.responses[0].partitions[0].records) == 1
    assert took.ms < LONG_MS


def test_the_end_of_a_segment_that_is_not_the_last_is_not_waited_at(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, segment_bytes="2000")
    for _ in range(3):
        caller.produce(topic, batch(b"x" * 1500))

    with Timed() as took:
        old = caller.fetch(topic, 0, min_bytes=1600, max_wait_ms=LONG_MS)
        older = caller.fetch(topic, 1, min_bytes=1600, max_wait_ms=LONG_MS)
    with Timed() as waited:
        last = caller.fetch(topic, 2, min_bytes=1600, max_wait_ms=200)

    assert [batches_in(entry.records) for entry in (old, older, last)] == [1, 1, 1]
    assert took.ms < LONG_MS
    assert waited.ms >= 190


def test_a_fetch_of_no_partition_is_answered_at_once(caller: Caller) -> None:
    with Timed() as took:
        answer = caller.call(fetch_request(max_wait_ms=LONG_MS), 12)

    assert answer.responses == []
    assert took.ms < LONG_MS


@pytest.mark.parametrize("version", VERSIONS)
def test_an_append_wakes_the_fetch_that_waits_for_it(
    broker: BrokerProcess, caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic, partitions=2)
    known = named(caller, topic, version)
    with Caller(broker.host, broker.port) as reader, Timed() as took:
        waiting = reader.send(
            fetch_request(Target(known, 0, 0), Target(known, 0, 1), max_wait_ms=LONG_MS), version
        )
        reader.see_nothing_come()
        caller.produce(topic, batch(b"news"), partition=1)
        entries = by_partition(reader.receive(FETCH, version, waiting))

    assert records_in(entries[known, 1].records) == [(0, b"news")]
    assert entries[known, 0].high_watermark == 0
    assert took.ms < LONG_MS


def test_appends_below_the_minimum_do_not_wake_a_fetch_and_their_sum_does(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    size = len(batch(b"1"))
    with Caller(broker.host, broker.port) as reader, Timed() as took:
        waiting = reader.send(
            fetch_request(Target(topic), min_bytes=size * 3, max_wait_ms=LONG_MS), 12
        )
        reader.see_nothing_come()
        caller.produce(topic, batch(b"1"))
        caller.produce(topic, batch(b"2"))
        reader.see_nothing_come()
        caller.produce(topic, batch(b"3"))
        answer = reader.receive(FETCH, 12, waiting)

    values = [value for _, value in records_in(answer.responses[0].partitions[0].records)]
    assert values == [b"1", b"2", b"3"]
    assert took.ms < LONG_MS


def test_bytes_that_are_there_count_towards_the_minimum(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, partitions=2)
    size = len(batch(b"1"))
    caller.produce(topic, batch(b"1"), partition=0)
    with Caller(broker.host, broker.port) as reader, Timed() as took:
        waiting = reader.send(
            fetch_request(
                Target(topic, 0, 0), Target(topic, 0, 1), min_bytes=size * 2, max_wait_ms=LONG_MS
            ),
            12,
        )
        reader.see_nothing_come()
        caller.produce(topic, batch(b"2"), partition=1)
        answer = reader.receive(FETCH, 12, waiting)

    assert [len(entry.records) for entry in answer.responses[0].partitions] == [size, size]
    assert took.ms < LONG_MS


def test_a_waiting_fetch_holds_back_the_request_behind_it(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    with Caller(broker.host, broker.port) as reader:
        waiting = reader.send(fetch_request(Target(topic), max_wait_ms=LONG_MS), 12)
        behind = reader.send(MetadataRequest(topics=[]), 12)
        reader.see_nothing_come()
        caller.produce(topic, batch(b"a"))

        fetched = reader.receive(FETCH, 12, waiting)
        metadata = reader.receive(APIS[3], 12, behind)

    assert records_in(fetched.responses[0].partitions[0].records) == [(0, b"a")]
    assert metadata.brokers


def test_two_fetches_in_one_write_are_answered_one_after_the_other(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, partitions=2)
    with Caller(broker.host, broker.port) as reader:
        requests = [fetch_request(Target(topic, 0, p), max_wait_ms=LONG_MS) for p in (0, 1)]
        reader.send_raw(b"".join(reader.frame(r, 12, n) for n, r in enumerate(requests)))
        reader.see_nothing_come()
        caller.produce(topic, batch(b"b"), partition=1)
        reader.see_nothing_come()
        caller.produce(topic, batch(b"a"), partition=0)

        for number, value in ((0, b"a"), (1, b"b")):
            answer = reader.receive(FETCH, 12, number)
            entry = answer.responses[0].partitions[0]
            assert (entry.partition_index, records_in(entry.records)) == (number, [(0, value)])


@pytest.mark.parametrize("version", [12, 18])
def test_a_fetch_that_waits_on_a_topic_is_answered_when_the_topic_is_deleted(
    broker: BrokerProcess, caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)
    known = named(caller, topic, version)
    with Caller(broker.host, broker.port) as reader, Timed() as took:
        waiting = reader.send(fetch_request(Target(known), max_wait_ms=LONG_MS), version)
        reader.see_nothing_come()
        caller.delete_topic(topic)
        answer = reader.receive(FETCH, version, waiting)

    assert answer.responses[0].partitions[0].error_code == (
        ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert took.ms < LONG_MS


def test_topics_deleted_while_a_fetch_of_several_partitions_waits_do_not_answer_it_twice(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, partitions=5)
    with Caller(broker.host, broker.port) as reader:
        waiting = reader.send(
            fetch_request(*(Target(topic, 0, p) for p in range(5)), max_wait_ms=LONG_MS), 12
        )
        reader.see_nothing_come()
        caller.delete_topic(topic)

        answer = reader.receive(FETCH, 12, waiting)
        again = reader.call(MetadataRequest(topics=[]), 12)

    assert len(answer.responses[0].partitions) == 5
    assert again.topics == []


def test_200_idle_fetches_cost_nothing_and_one_append_wakes_only_its_watchers(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, partitions=20)
    readers = [Caller(broker.host, broker.port) for _ in range(200)]
    try:
        waiting = [
            reader.send(fetch_request(Target(topic, 0, n % 20), max_wait_ms=30_000), 12)
            for n, reader in enumerate(readers)
        ]
        readers[-1].see_nothing_come(0.3)
        before_s = cpu_seconds(broker.pid)
        readers[-1].see_nothing_come(1.0)
        idle_s = cpu_seconds(broker.pid) - before_s

        caller.produce(topic, batch(b"a"), partition=7)
        for number, reader in enumerate(readers):
            if number % 20 == 7:
                answer = reader.receive(FETCH, 12, waiting[number])
                assert answer.responses[0].partitions[0].high_watermark == 1
        for reader in readers[:7]:
            reader.see_nothing_come(0.02)
    finally:
        for reader in readers:
            reader.close()

    assert idle_s <= 0.05
    assert caller.fetch(topic, partition=3).error_code == 0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
