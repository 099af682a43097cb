"""Fetch over a real socket, versions 4 to 18."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest
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
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

VERSIONS = range(4, 19)
READ_COMMITTED = 1
FETCH = APIS[1]

#: Longer than any answer that comes at once takes on a busy machine.
LONG_MS = 4_000


@pytest.mark.parametrize("version", VERSIONS)
def test_records_come_back_with_their_offsets_and_all_watermarks(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a", b"b"))
    caller.produce(topic, batch(b"c"))

    fetched = caller.fetch(topic, version=version)
    at_end = caller.fetch(topic, 3, version=version)

    assert records_in(fetched.records) == [(0, b"a"), (1, b"b"), (2, b"c")]
    for entry in (fetched, at_end):
        assert entry.error_code == 0
        assert (entry.high_watermark, entry.last_stable_offset) == (3, 3)
        assert entry.log_start_offset == (0 if version >= 5 else -1)
        assert entry.aborted_transactions is None
        assert entry.preferred_read_replica == -1
    assert bytes(at_end.records) == b""


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_only_read_committed_has_a_list_of_aborted_transactions(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a"))

    committed = caller.fetch(topic, version=version, isolation_level=READ_COMMITTED)

    assert committed.aborted_transactions == []
    assert records_in(committed.records) == [(0, b"a")]


def test_data_may_begin_before_the_offset_asked_for_and_never_after_it(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a", b"b", b"c"))
    caller.produce(topic, batch(b"d"))

    assert [offset for offset, _ in records_in(caller.fetch(topic, 1).records)] == [0, 1, 2, 3]
    assert [offset for offset, _ in records_in(caller.fetch(topic, 3).records)] == [3]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offset", [4, -1, -5, 2**62])
def test_an_offset_outside_of_the_log_is_told_with_watermarks_of_minus_1(
    caller: Caller, topic: str, version: int, offset: int
) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a", b"b", b"c"))

    with Timed() as took:
        fetched = caller.fetch(topic, offset, version=version, max_wait_ms=LONG_MS)

    assert fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (fetched.high_watermark, fetched.last_stable_offset) == (-1, -1)
    assert bytes(fetched.records) == b""
    assert took.ms < LONG_MS


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_topics_and_partitions_are_told_at_once_and_the_others_are_read(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a"))
    known = named(caller, topic, version)
    missing: str | bytes = b"\x07" * 16 if version >= 13 else "missing"
    request = fetch_request(
        Target(missing),
        Target(known, 0, 5),
        Target(known, 0, -1),
        Target(known),
        max_wait_ms=LONG_MS,
    )

    with Timed() as took:
        entries = by_partition(caller.call(request, version))

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert entries[missing, 0].error_code == (
        ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else unknown
    )
    assert entries[known, 5].error_code == unknown
    assert entries[known, -1].error_code == unknown
    assert records_in(entries[known, 0].records) == [(0, b"a")]
    assert took.ms < LONG_MS


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_batch_comes_whole_whatever_the_limits(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"x" * 5000))
    caller.produce(topic, batch(b"y"))
    known = named(caller, topic, version)

    answer = caller.call(fetch_request(Target(known, partition_max_bytes=1), max_bytes=1), version)

    assert records_in(answer.responses[0].partitions[0].records) == [(0, b"x" * 5000)]


def test_partitions_are_filled_in_the_order_asked_for_until_max_bytes(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, partitions=4)
    size = len(batch(b"x" * 500))
    for partition in (1, 2, 3):
        for _ in range(3):
            caller.produce(topic, batch(b"x" * 500), partition=partition)

    def filled(*partitions: int, max_bytes: int) -> list[int]:
        answer = caller.call(
            fetch_request(*(Target(topic, 0, p) for p in partitions), max_bytes=max_bytes), 12
        )
        entries = answer.responses[0].partitions
        assert [entry.partition_index for entry in entries] == list(partitions)
        assert {entry.high_watermark for entry in entries if entry.partition_index} == {3}
        return [batches_in(entry.records) for entry in entries]

    assert filled(0, 1, 2, 3, max_bytes=size * 5) == [0, 3, 2, 0]
    assert filled(3, 2, 1, 0, max_bytes=size * 3) == [3, 0, 0, 0]
    assert filled(2, 0, 1, 3, max_bytes=0) == [1, 0, 0, 0]
    assert filled(1, 2, 3, 0, max_bytes=size * 3 + 1) == [3, 0, 0, 0]


def test_a_limit_of_a_partition_holds_for_it_alone_and_batches_are_never_cut(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, partitions=2)
    size = len(batch(b"x" * 500))
    for partition in (0, 1):
        for _ in range(3):
            caller.produce(topic, batch(b"x" * 500), partition=partition)

    answer = caller.call(
        fetch_request(
            Target(topic, 0, 0, partition_max_bytes=size * 2 + 5),
            Target(topic, 0, 1, partition_max_bytes=size - 1),
        ),
        12,
    )

    first, second = answer.responses[0].partitions
    assert len(first.records) == size * 2
    assert len(second.records) == 0, "only the first partition with data is exempt from limits"


def test_a_partition_named_twice_is_read_twice(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a"))
    caller.produce(topic, batch(b"b"))

    answer = caller.call(fetch_request(Target(topic, 0), Target(topic, 1)), 12)

    entries = [entry for found in answer.responses for entry in found.partitions]
    assert [records_in(entry.records)[-1] for entry in entries] == [(1, b"b"), (1, b"b")]


def test_a_replica_may_not_follow(caller: Caller, topic: str) -> None:
    topic_id = caller.create_topic(topic)
    follower = FetchRequest.ReplicaState(replica_id=2, replica_epoch=1)

    old = caller.call(fetch_request(Target(topic), replica_id=2), 4)
    new = caller.call(fetch_request(Target(topic_id), replica_state=follower), 15)

    for answer in (old, new):
        code = answer.responses[0].partitions[0].error_code
        assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_debugging_consumer_reads(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a"))

    assert records_in(caller.fetch(topic, replica_id=-2, version=11).records) == [(0, b"a")]


@pytest.mark.parametrize("version", [9, 12, 18])
def test_a_leader_epoch_that_is_not_ours_is_told(caller: Caller, topic: str, version: int) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a"))
    ours = caller.describe(topic).partitions[0].leader_epoch
    known = named(caller, topic, version)

    def code(epoch: int) -> int:
        answer = caller.call(fetch_request(Target(known, current_leader_epoch=epoch)), version)
        found: int = answer.responses[0].partitions[0].error_code
        return found

    assert code(ours) == code(-1) == 0
    assert code(ours + 1) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_after_a_restart_the_old_leader_epoch_is_fenced_and_its_end_is_known(
    broker: BrokerProcess, topic: str
) -> None:
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic(topic)
        caller.produce(topic, batch(b"a", b"b"))
        old = caller.describe(topic).partitions[0].leader_epoch
    broker.stop()
    broker.start()
    with Caller(broker.host, broker.port) as caller:
        caller.produce(topic, batch(b"c"))
        new = caller.describe(topic).partitions[0].leader_epoch

        def entry(offset: int, **epochs: int) -> Any:
            answer = caller.call(fetch_request(Target(topic, offset, **epochs)), 12)
            return answer.responses[0].partitions[0]

        fenced = entry(0, current_leader_epoch=old)
        agreeing = entry(2, current_leader_epoch=new, last_fetched_epoch=old)
        diverging = entry(5, current_leader_epoch=new, last_fetched_epoch=old)

    assert new == old + 2, "the stop was an epoch of its own"
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert records_in(agreeing.records) == [(2, b"c")]
    assert (agreeing.diverging_epoch.epoch, agreeing.diverging_epoch.end_offset) == (-1, -1)
    assert diverging.error_code == 0
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (old, 2)
    assert len(diverging.records) == 0


@pytest.mark.parametrize("version", [0, 1, 2, 3, 19])
def test_a_version_that_is_not_offered_closes_the_connection(
    caller: Caller, topic: str, version: int
) -> None:
    frame = bytearray(caller.frame(fetch_request(Target(topic)), 12))
    frame[6:8] = version.to_bytes(2, "big", signed=True)

    caller.send_raw(bytes(frame))

    with pytest.raises(ConnectionClosed, match="after 0"):
        caller.recv_frame()


def test_a_large_answer_leaves_in_order_with_what_is_behind_it(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, max_message_bytes="5000000")
    for letter in b"ab":
        caller.produce(topic, batch(bytes([letter]) * 4_000_000))
    requests = [fetch_request(Target(topic, offset, partition_max_bytes=1)) for offset in (0, 1)]

    caller.send_raw(
        b"".join(
            caller.frame(request, 12, number)
            for number, request in enumerate([*requests, *requests, *requests])
        )
        + caller.frame(MetadataRequest(topics=[]), 12, 6)
    )

    for number in range(6):
        entry = caller.receive(FETCH, 12, number).responses[0].partitions[0]
        assert records_in(entry.records) == [(number % 2, b"ab"[number % 2 :][:1] * 4_000_000)]
    assert caller.receive(APIS[3], 12, 6).brokers
