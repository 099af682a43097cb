"""Messages of formats 0 and 1 as real clients send them and as Apache Kafka stores them."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import NAMES
from protocol.records.layout import BASE_TIMESTAMP, HEADER_SIZE, RECORD_COUNT
from protocol.records.legacy import Message, build_messages, read_messages, wrap_messages
from protocol.records.record import read_fields
from protocol.records.walk import walk
from tests.records.corpus import raw, sets, shown
from tests.records.oracle import MemoryRecords

OLD = sets(0, 1)


def name(vector: dict[str, Any]) -> str:
    return str(vector["id"])


def messages_of(data: bytes | bytearray) -> list[Message]:
    return [Message(memoryview(data)[position:]) for position, _, _ in walk(data)]


@pytest.mark.parametrize("vector", OLD, ids=name)
def test_a_message_of_a_real_client_shows_its_fields(vector: dict[str, Any]) -> None:
    messages = messages_of(raw(vector["bytes"]))
    for message, expected in zip(messages, vector["expect"], strict=True):
        shown_type = ("CreateTime", "LogAppendTime")[message.timestamp_type]
        assert {
            "magic": message.magic,
            "size": message.size,
            "codec": NAMES[message.codec],
            "offset": message.offset,
            "timestamp_type": shown_type if message.magic else None,
            "timestamp": message.timestamp_ms if message.magic else None,
            "crc_valid": message.is_intact(),
        } == {key: expected[key] for key in expected if key != "records"}


@pytest.mark.parametrize("vector", OLD, ids=name)
def test_a_set_of_a_real_client_reads_as_kafka_reads_it(vector: dict[str, Any]) -> None:
    read = [shown(record) for record in read_messages(raw(vector["bytes"]))]
    for record in read:
        if vector["magic"] == 0:
            assert record["timestamp"] == -1
            record["timestamp"] = None
    assert read == [record for entry in vector["expect"] for record in entry["records"]]


def made_again(data: bytes | bytearray) -> bytes:
    """Each plain message by itself, from its fields alone."""
    return b"".join(
        build_messages(
            [(message.timestamp_ms, message.key, message.value, ())],
            magic=message.magic,
            base_offset=message.offset,
            append_time_ms=message.timestamp_ms if message.timestamp_type else None,
        )
        for message in messages_of(data)
    )


@pytest.mark.parametrize("vector", OLD, ids=name)
def test_plain_messages_are_made_again_byte_for_byte(vector: dict[str, Any]) -> None:
    data = raw(vector["bytes"])
    if all(message.codec for message in messages_of(data)):
        for wrapper in messages_of(data):
            payload = wrapper.payload()
            assert made_again(payload) == payload
    else:
        assert made_again(data) == data


@pytest.mark.parametrize("vector", [v for v in OLD if v["expect"][0]["codec"] != "none"], ids=name)
def test_a_wrapper_made_again_differs_in_its_compression_only(vector: dict[str, Any]) -> None:
    for message in messages_of(raw(vector["bytes"])):
        again = Message(
            memoryview(
                wrap_messages(
                    message.payload(),
                    magic=message.magic,
                    codec=message.codec,
                    offset=message.offset,
                    timestamp_ms=message.timestamp_ms,
                    stamped=bool(message.timestamp_type),
                )
            )
        )
        assert again.is_intact()
        assert again.payload() == message.payload()
        assert again.key is None
        kept = slice(16, 26 if message.magic else 18)
        assert again.view[kept] == message.view[kept]
        assert again.offset == message.offset


PLAIN_BATCHES = [
    vector
    for vector in sets(2)
    if len(vector["expect"]) == 1
    and vector["expect"][0]["codec"] == "none"
    and vector["expect"][0]["count"] == vector["expect"][0]["last_offset"]
    - vector["expect"][0]["base_offset"] + 1
]  # fmt: skip


@pytest.mark.parametrize("vector", PLAIN_BATCHES, ids=name)
def test_plain_batches_are_made_again_byte_for_byte(vector: dict[str, Any]) -> None:
    data = raw(vector["bytes"])
    batch = Batch(memoryview(data))
    payload, header = bytes(data[HEADER_SIZE:]), batch.header()
    records = [
        (header[BASE_TIMESTAMP] + fields[0], record.key, record.value, record.headers)
        for fields, record in zip(
            read_fields(payload, header[RECORD_COUNT]), batch.records(), strict=True
        )
    ]
    assert data == build_batch(
        records,
        base_offset=batch.base_offset,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        leader_epoch=batch.leader_epoch,
        transactional=batch.is_transactional,
        control=batch.is_control,
        log_append_time_ms=batch.max_timestamp if batch.timestamp_type else None,
    )


# Without lz4 in format 0, for which it needs one more library.
COMPARABLE = [v for v in OLD if (v["magic"], v["expect"][0]["codec"]) != (0, "lz4")]


@pytest.mark.parametrize("vector", COMPARABLE, ids=name)
def test_kafka_python_and_we_read_the_same(vector: dict[str, Any]) -> None:
    data = raw(vector["bytes"])
    theirs = [record for entry in MemoryRecords(bytes(data)) for record in entry]
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in read_messages(data)] == [
        (r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in theirs
    ]


def test_the_vectors_hold_every_codec_in_both_formats() -> None:
    seen = {(entry["magic"], entry["codec"]) for vector in OLD for entry in vector["expect"]}
    assert seen == {(magic, codec) for magic in (0, 1) for codec in NAMES[:4]}
    assert len(PLAIN_BATCHES) > 10
