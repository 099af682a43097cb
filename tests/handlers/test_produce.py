"""Produce over a real socket, in every version offered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.registry import APIS
from tests.support.broker_process import BrokerProcess
from tests.support.caller import (
    NOW_MS,
    Caller,
    Target,
    batch,
    fetch_request,
    produce_request,
    records_in,
)
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = range(3, 14)
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_gets_the_next_offsets_in_every_version(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)

    first = caller.produce(topic, batch(b"a", b"b"), version=version)
    second = caller.produce(topic, batch(b"c"), version=version)

    assert (first.error_code, second.error_code) == (0, 0)
    assert (first.base_offset, second.base_offset) == (0, 2)
    assert first.log_append_time_ms == -1
    assert first.log_start_offset == (0 if version >= 5 else -1)
    assert (first.record_errors, first.error_message) == ([], None)
    assert caller.values(topic) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_is_stored_as_it_was_sent(
    caller: Caller, topic: str, version: int, codec: int
) -> None:
    caller.create_topic(topic)
    sent = batch(b"abc" * 20, b"abd" * 20, codec=codec)

    answer = caller.produce(topic, sent, version=version)

    if codec == ZSTD and version < 7:
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert answer.base_offset == -1
        assert caller.end_offset(topic) == 0
        return
    assert answer.error_code == 0
    stored = bytes(caller.fetch(topic).records)
    assert stored[16:] == sent[16:], "only the offset and the leader epoch may change"
    assert [value for _, value in records_in(stored)] == [b"abc" * 20, b"abd" * 20]


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_0_is_never_answered_and_the_records_are_there(
    caller: Caller, topic: str, version: int
) -> None:
    topic_id = caller.create_topic(topic)
    named = topic_id if version >= 13 else topic

    caller.send(produce_request((named, 0, batch(b"silent")), acks=0), version)
    # The answer to a request of another kind comes only after the produce has been handled.
    caller.call(MetadataRequest(topics=[]))

    assert caller.values(topic) == [b"silent"]


@pytest.mark.parametrize("acks", [-1, 1])
def test_an_answered_batch_can_be_read_at_once(caller: Caller, topic: str, acks: int) -> None:
    caller.create_topic(topic)

    for number in range(5):
        answer = caller.produce(topic, batch(b"%d" % number), acks=acks)

        assert answer.base_offset == number
        assert caller.values(topic, number) == [b"%d" % number]


@pytest.mark.parametrize("acks", [2, -2, 7])
@pytest.mark.parametrize("version", [3, 9, 13])
def test_acks_other_than_all_one_and_none_are_refused_for_every_partition(
    caller: Caller, topic: str, acks: int, version: int
) -> None:
    topic_id = caller.create_topic(topic, partitions=2)
    named = topic_id if version >= 13 else topic
    request = produce_request((named, 0, batch(b"a")), (named, 1, batch(b"b")), acks=acks)

    answer = caller.call(request, version)

    entries = [entry for answered in answer.responses for entry in answered.partition_responses]
    assert [entry.index for entry in entries] == [0, 1]
    assert {entry.error_code for entry in entries} == {ErrorCode.INVALID_REQUIRED_ACKS}
    assert {entry.base_offset for entry in entries} == {-1}
    assert caller.end_offset(topic) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_or_partition_is_told_and_nothing_is_created(
    caller: Caller, topic: str, version: int
) -> None:
    missing: str | bytes = b"\x01" * 16 if version >= 13 else f"{topic}-missing"
    topic_id = caller.create_topic(topic)
    named = topic_id if version >= 13 else topic
    request = produce_request(
        (missing, 0, batch(b"a")), (named, 1, batch(b"b")), (named, -1, batch(b"c"))
    )

    answer = caller.call(request, version)

    codes = [answered.partition_responses[0].error_code for answered in answer.responses]
    unknown_topic = (
        ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert codes == [
        unknown_topic,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert f"{topic}-missing" not in {
        found.name for found in caller.call(MetadataRequest(topics=None)).topics
    }


def test_acks_0_to_a_missing_topic_closes_the_connection_without_a_byte(
    caller: Caller, topic: str
) -> None:
    caller.send(produce_request((topic, 0, batch(b"a")), acks=0), 9)

    assert caller.closed_by_server()


def test_acks_0_that_fails_lets_earlier_answers_out_before_it_closes(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    good = caller.frame(produce_request((topic, 0, batch(b"a"))), 9, 77)
    bad = caller.frame(produce_request(("no-such-topic", 0, batch(b"a")), acks=0), 9, 78)

    caller.send_raw(good + bad)

    answer = caller.receive(APIS[0], 9, 77)
    assert answer.responses[0].partition_responses[0].base_offset == 0
    assert caller.closed_by_server()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("records", [None, b""])
def test_no_records_are_an_invalid_record_or_before_v8_a_corrupt_message(
    caller: Caller, topic: str, version: int, records: bytes | None
) -> None:
    caller.create_topic(topic)

    answer = caller.produce(topic, records, version=version)

    assert answer.error_code == (
        ErrorCode.INVALID_RECORD if version >= 8 else ErrorCode.CORRUPT_MESSAGE
    )
    assert answer.base_offset == -1
    assert bool(answer.error_message) == (version >= 8)


@pytest.mark.parametrize("version", VERSIONS)
def test_two_batches_for_one_partition_are_an_invalid_record(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)

    answer = caller.produce(topic, batch(b"a") + batch(b"b"), version=version)

    assert answer.error_code == (
        ErrorCode.INVALID_RECORD if version >= 8 else ErrorCode.CORRUPT_MESSAGE
    )
    assert caller.end_offset(topic) == 0


def test_one_bad_partition_leaves_the_others_alone(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, partitions=3)
    spoiled = bytearray(batch(b"b"))
    spoiled[-1] ^= 1
    request = produce_request(
        (topic, 0, batch(b"a")), (topic, 1, bytes(spoiled)), (topic, 2, batch(b"c"))
    )

    answer = caller.call(request, 9)

    codes = [answered.partition_responses[0].error_code for answered in answer.responses]
    assert codes == [0, ErrorCode.CORRUPT_MESSAGE, 0]
    assert [caller.end_offset(topic, partition) for partition in range(3)] == [1, 0, 1]


def test_a_partition_named_twice_is_appended_in_order_and_answered_twice(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    partition = ProduceRequest.Topic.Partition
    request = ProduceRequest(
        acks=-1,
        timeout_ms=0,
        topic_data=[
            ProduceRequest.Topic(
                name=topic,
                partition_data=[
                    partition(index=0, records=memoryview(batch(b"a", b"b"))),
                    partition(index=0, records=memoryview(batch(b"c"))),
                ],
            )
        ],
    )

    answer = caller.call(request, 9)

    entries = answer.responses[0].partition_responses
    assert [(entry.index, entry.base_offset) for entry in entries] == [(0, 0), (0, 2)]
    assert caller.values(topic) == [b"a", b"b", b"c"]


def test_log_append_time_is_in_the_answer_and_in_the_records(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, message_timestamp_type="LogAppendTime")
    before_ms = time.time_ns() // 1_000_000

    answer = caller.produce(topic, batch(b"a", b"b", timestamp_ms=5))

    assert before_ms - 1000 <= answer.log_append_time_ms <= before_ms + 60_000
    stored = Batch(memoryview(bytes(caller.fetch(topic).records)))
    assert {record.timestamp_ms for record in stored.records()} == {answer.log_append_time_ms}
    assert stored.max_timestamp == answer.log_append_time_ms


@pytest.mark.parametrize("version", [3, 8, 13])
def test_a_batch_above_max_message_bytes_is_too_large(
    caller: Caller, topic: str, version: int
) -> None:
    exact = batch(b"x" * 1000)
    caller.create_topic(topic, max_message_bytes=str(len(exact)))

    fits = caller.produce(topic, exact, version=version)
    refused = caller.produce(topic, batch(b"x" * 1001), version=version)

    assert fits.error_code == 0
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert caller.end_offset(topic) == 1


@pytest.mark.parametrize("version", [7, 8, 13])
def test_a_compacted_topic_names_the_records_without_a_key(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic, cleanup_policy="compact")
    some_keys = build_batch([(NOW_MS, key, b"v", ()) for key in (b"k", None, b"", None)])

    answer = caller.produce(topic, some_keys, version=version)

    assert answer.base_offset == -1
    if version >= 8:
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [1, 3]
        assert all(error.batch_index_error_message for error in answer.record_errors)
        assert answer.error_message
    else:
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert caller.end_offset(topic) == 0


def test_timestamps_outside_the_window_of_a_topic_are_refused(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, message_timestamp_before_max_ms="1000")

    answer = caller.produce(topic, batch(b"old", timestamp_ms=1))

    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [0]


def test_the_topics_that_belong_to_the_broker_are_not_written_by_clients(caller: Caller) -> None:
    caller.create_topic("__consumer_offsets")

    answer = caller.produce("__consumer_offsets", batch(b"a"))

    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert caller.describe("__consumer_offsets").is_internal


def test_fifty_requests_in_one_write_are_answered_in_order_with_growing_offsets(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    ids = [-5, *range(1, 50)]

    caller.send_raw(
        b"".join(
            caller.frame(produce_request((topic, 0, batch(b"%d" % n))), 9, correlation_id)
            for n, correlation_id in enumerate(ids)
        )
    )

    answers = [caller.receive(APIS[0], 9, correlation_id) for correlation_id in ids]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(50))
    assert caller.values(topic) == [b"%d" % n for n in range(50)]


def test_acks_1_does_not_overtake_an_earlier_acks_all(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    frames = [
        caller.frame(produce_request((topic, 0, batch(b"x")), acks=acks), 9, number)
        for number, acks in enumerate((-1, 1, -1, 1, 0, 1, -1))
    ]
    caller.send_raw(b"".join(frames))

    for number in (0, 1, 2, 3, 5, 6):
        answer = caller.receive(APIS[0], 9, number)
        assert answer.responses[0].partition_responses[0].base_offset == number


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_request_sees_what_the_one_before_it_on_the_connection_wrote(
    caller: Caller, topic: str, acks: int
) -> None:
    topic_id = caller.create_topic(topic)
    latest = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.Topic(
                name=topic,
                partitions=[ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)],
            )
        ],
    )

    caller.send_raw(
        caller.frame(produce_request((topic, 0, batch(b"a")), acks=acks), 9, 1)
        + caller.frame(fetch_request(Target(topic_id)), 13, 2)
        + caller.frame(latest, 5, 3)
    )

    if acks != 0:
        caller.receive(APIS[0], 9, 1)
    fetched = caller.receive(APIS[1], 13, 2).responses[0].partitions[0]
    listed = caller.receive(APIS[2], 5, 3).topics[0].partitions[0]
    assert records_in(fetched.records) == [(0, b"a")]
    assert fetched.high_watermark == 1
    assert listed.offset == 1


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_topic_can_be_deleted_by_the_request_behind_a_produce(
    caller: Caller, topic: str, acks: int
) -> None:
    caller.create_topic(topic)

    caller.send_raw(
        caller.frame(produce_request((topic, 0, batch(b"a")), acks=acks), 9, 1)
        + caller.frame(DeleteTopicsRequest(topic_names=[topic], timeout_ms=0), 5, 2)
    )

    if acks != 0:
        produced = caller.receive(APIS[0], 9, 1).responses[0].partition_responses[0]
        # Stored or gone: either is true, and a producer that is told of a storage error looks the
        # topic up again and finds that it is no more.
        assert produced.error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
    assert caller.receive(APIS[20], 5, 2).responses[0].error_code == 0
    assert caller.describe(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_throttle_time_is_the_last_field_before_the_tags(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    caller.send_raw(caller.frame(produce_request((topic, 0, batch(b"a"))), 3, 9))

    body = caller.recv_frame()[4:]
    name = topic.encode()
    assert body == (
        b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\0\0\0\1"
        + b"\0\0\0\0" + b"\0\0" + bytes(8) + b"\xff" * 8 + b"\0\0\0\0"
    )  # fmt: skip


def test_an_empty_request_is_answered_with_nothing(caller: Caller) -> None:
    for acks in (-1, 1):
        assert caller.call(produce_request(acks=acks), 9).responses == []


def test_a_request_larger_than_any_buffer_is_taken_whole(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, partitions=3, max_message_bytes="4000000")
    values = [bytes([65 + number]) * 3_000_000 for number in range(3)]

    answer = caller.call(
        produce_request(*((topic, number, batch(values[number])) for number in range(3))), 9
    )

    assert {entry.partition_responses[0].error_code for entry in answer.responses} == {0}
    for number in range(3):
        fetched = caller.fetch(topic, partition=number, max_bytes=1)
        assert records_in(fetched.records) == [(0, values[number])]


@pytest.mark.parametrize("version", [0, 1, 2, 14, 50, -1])
def test_a_version_that_is_not_offered_closes_the_connection(
    caller: Caller, topic: str, version: int
) -> None:
    frame = bytearray(caller.frame(produce_request((topic, 0, batch(b"a"))), 9))
    frame[6:8] = version.to_bytes(2, "big", signed=True)

    caller.send_raw(bytes(frame) + caller.frame(MetadataRequest(topics=None), 9))

    with pytest.raises(ConnectionClosed, match="after 0"):
        caller.recv_frame()


@pytest.mark.parametrize("release", ["2.0", "2.1"])
def test_zstd_is_for_brokers_whose_protocol_is_not_older_than_it(
    tmp_path: Path, release: str
) -> None:
    """KIP-110: who sets inter.broker.protocol.version lower has consumers of that age in mind."""
    settings = {"inter.broker.protocol.version": release}
    with (
        BrokerProcess(tmp_path / "data", settings=settings) as run,
        Caller("127.0.0.1", run.port) as caller,
    ):
        caller.create_topic("t")
        answer = caller.produce("t", batch(b"a" * 100, codec=ZSTD), version=9)
        end = caller.end_offset("t")

    refused = release == "2.0"
    assert answer.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if refused else 0)
    assert end == (0 if refused else 1)
