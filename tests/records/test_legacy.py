"""Formats 0 and 1, on messages put together here by hand and by kafka-python."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ErrorCode
from protocol.records.builder import build_batch
from protocol.records.compression import compress
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.legacy import (
    Message,
    MessageSet,
    build_messages,
    read_messages,
    wrap_messages,
)
from protocol.records.record import Record
from tests.records.bombs import BOMBS
from tests.records.oracle import LegacyRecordBatchBuilder, MemoryRecords

NOW_MS = 1_500_000_000_000
GZIP = 1
MAGICS = pytest.mark.parametrize("magic", [0, 1])
SOME = [
    (NOW_MS, b"key", b"value " * 50, ()),
    (NOW_MS - 1000, None, None, ()),
    (NOW_MS + 900, b"", b"", ()),
]


def entry(
    magic: int,
    offset: int,
    value: bytes | None,
    *,
    attributes: int = 0,
    timestamp_ms: int = -1,
    key: bytes | None = None,
) -> bytes:
    """One message, made without the code under test."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp_ms)
    for field in (key, value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(magic: int, offset: int, content: bytes | bytearray, **more: Any) -> bytes:
    return entry(magic, offset, gzip.compress(content), attributes=GZIP, **more)


def reseal(message: bytearray) -> bytearray:
    struct.pack_into(">I", message, 12, zlib.crc32(message[16:]))
    return message


def offsets(data: bytes | bytearray) -> list[int]:
    return [record.offset for record in read_messages(data)]


def test_the_examples_of_the_formats_have_these_bytes() -> None:
    assert build_messages([(-1, b"k", b"v", ())], magic=0, base_offset=5) == bytes.fromhex(
        "0000000000000005 00000010 1fecd70a 00 00 00000001 6b 00000001 76"
    )
    assert build_messages([(NOW_MS, None, b"v", ())], magic=1, base_offset=5) == bytes.fromhex(
        "0000000000000005 00000017 3335d115 01 00 0000015d3ef79800 ffffffff 00000001 76"
    )


@MAGICS
def test_a_message_is_what_was_put_together_by_hand(magic: int) -> None:
    by_hand = [
        entry(magic, 7 + index, value, key=key, timestamp_ms=timestamp_ms)
        for index, (timestamp_ms, key, value, _) in enumerate(SOME)
    ]
    assert build_messages(SOME, magic=magic, base_offset=7) == b"".join(by_hand)
    assert build_messages(SOME, magic=magic, offsets=(7, 8, 9)) == b"".join(by_hand)


def test_a_message_with_append_time_is_what_was_put_together_by_hand() -> None:
    made = build_messages(SOME[:1], magic=1, append_time_ms=99)
    assert made == entry(1, 0, SOME[0][2], key=SOME[0][1], timestamp_ms=99, attributes=8)
    made = wrap_messages(b"abc", magic=1, codec=GZIP, offset=3, timestamp_ms=99, stamped=True)
    assert made == entry(1, 3, compress(GZIP, b"abc"), timestamp_ms=99, attributes=8 | GZIP)
    # Format 0 has neither the time nor the type.
    assert build_messages(SOME[:1], magic=0, append_time_ms=99) == entry(
        0, 0, SOME[0][2], key=SOME[0][1]
    )


def test_a_message_knows_where_it_ends() -> None:
    first, second = entry(0, 5, b"abc", key=b"k"), entry(1, 6, b"", timestamp_ms=NOW_MS)
    message = Message(memoryview(first + second))
    assert (message.offset, message.size, message.magic) == (5, len(first), 0)
    assert (message.attributes, message.codec, message.timestamp_type) == (0, 0, 0)
    assert (message.key, message.value, message.timestamp_ms) == (b"k", b"abc", -1)
    assert message.crc == message.checksum() == zlib.crc32(first[16:])
    assert message.is_intact()
    message = Message(memoryview(first + second)[len(first) :])
    assert (message.key, message.value, message.timestamp_ms) == (None, b"", NOW_MS)


def test_format_0_has_no_timestamp_type() -> None:
    message = Message(memoryview(entry(0, 0, b"v", attributes=8)))
    assert (message.attributes, message.timestamp_type) == (8, 0)


@MAGICS
@pytest.mark.parametrize("length", [-2, -(2**31)])
def test_any_negative_length_is_null(magic: int, length: int) -> None:
    data = bytearray(entry(magic, 0, None))
    struct.pack_into(">i", data, len(data) - 4, length)
    struct.pack_into(">i", data, len(data) - 8, length)
    (record,) = read_messages(reseal(data))
    assert (record.key, record.value) == (None, None)


@MAGICS
def test_spare_bytes_after_the_value_are_tolerated(magic: int) -> None:
    data = bytearray(entry(magic, 0, b"value") + b"spare")
    struct.pack_into(">i", data, 8, len(data) - 12)
    (record,) = read_messages(reseal(data))
    assert record.value == b"value"


@MAGICS
@pytest.mark.parametrize("back", [4, 8])
@pytest.mark.parametrize("length", [1, 5, 2**31 - 1])
def test_a_length_past_the_end_of_its_message_is_corrupt(
    magic: int, back: int, length: int
) -> None:
    # given a message in front of another, so that there are bytes to be read by mistake
    data = bytearray(entry(magic, 0, None))
    struct.pack_into(">i", data, len(data) - back, length)
    with pytest.raises(CorruptBatch, match=f"message of {len(data)} bytes"):
        list(read_messages(reseal(data) + entry(magic, 1, b"following")))


@pytest.mark.parametrize("length", range(14, 22))
def test_a_format_1_message_below_22_bytes_is_corrupt(length: int) -> None:
    data = bytearray(entry(1, 0, None)[: length + 12])
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatch, match=f"size {length}, wanted at least 22"):
        list(read_messages(reseal(data)))


@MAGICS
def test_every_flipped_bit_under_the_checksum_is_noticed(magic: int) -> None:
    good = entry(magic, 3, b"value", key=b"key")
    for position in [*range(12, 16), *range(17, len(good))]:
        data = bytearray(good)
        data[position] ^= 0x10
        with pytest.raises(CorruptBatch):
            list(read_messages(data))


def test_format_2_is_not_for_this_reader() -> None:
    with pytest.raises(CorruptBatch, match="format 2, wanted 0 or 1"):
        list(read_messages(build_batch([(NOW_MS, b"k", b"v", ())])))


@MAGICS
def test_an_entry_cut_anywhere_is_the_end_of_the_set(magic: int) -> None:
    first, second = (entry(magic, offset, b"value") for offset in (4, 5))
    for size in range(len(second)):
        assert offsets(first + second[:size]) == [4]


@MAGICS
def test_a_message_cut_inside_a_wrapper_is_the_end_of_its_set(magic: int) -> None:
    first, second = (entry(magic, offset, b"value") for offset in (4, 5))
    for size in range(len(second)):
        assert offsets(wrapper(magic, 4, first + second[:size])) == [4]


def test_offsets_inside_a_wrapper_of_format_0_are_absolute() -> None:
    content = b"".join(entry(0, offset, b"v") for offset in (3, 3, 17))
    for offset in (0, 2, 17, 99):
        assert offsets(wrapper(0, offset, content)) == [3, 3, 17]


@pytest.mark.parametrize(
    ("inside", "offset", "absolute"),
    [
        ((0, 1, 2), 1002, [1000, 1001, 1002]),
        ((5, 7, 12), 1012, [1005, 1007, 1012]),  # compaction leaves holes, also in front
        ((5, 7, 12), 12, [5, 7, 12]),
        ((5, 7, 12), 13, [6, 8, 13]),
        ((0, 0, 0), 4, [4, 4, 4]),
        ((-1, -1), 4, [4, 4]),
    ],
)
def test_offsets_inside_a_wrapper_of_format_1_count_back_from_its_own(
    inside: tuple[int, ...], offset: int, absolute: list[int]
) -> None:
    content = b"".join(entry(1, relative, b"v") for relative in inside)
    assert offsets(wrapper(1, offset, content)) == absolute


def test_a_wrapper_with_offset_zero_counts_from_zero() -> None:
    content = b"".join(entry(1, relative, b"v") for relative in (0, 1, 5))
    assert offsets(wrapper(1, 0, content)) == [0, 1, 5]


@pytest.mark.parametrize("offset", [1, 4, -1])
def test_a_wrapper_below_its_last_message_and_not_zero_is_invalid(offset: int) -> None:
    content = b"".join(entry(1, relative, b"v") for relative in (0, 1, 5))
    with pytest.raises(InvalidRecord, match=f"offset {offset}, its last message 5") as refusal:
        offsets(wrapper(1, offset, content))
    assert refusal.value.code == ErrorCode.INVALID_RECORD


def test_the_wrapper_decides_whose_timestamp_counts() -> None:
    # given messages that have, have not, and claim to have an append time
    content = entry(1, 0, b"a", timestamp_ms=10) + entry(1, 1, b"b", timestamp_ms=-1)
    content += entry(1, 2, b"c", timestamp_ms=30, attributes=8)

    def times(attributes: int) -> list[int]:
        data = entry(1, 2, gzip.compress(content), timestamp_ms=77, attributes=attributes)
        return [record.timestamp_ms for record in read_messages(data)]

    assert times(GZIP) == [10, -1, 30]
    assert times(GZIP | 8) == [77, 77, 77]


def test_format_0_has_no_timestamps_inside_wrappers_either() -> None:
    (record,) = read_messages(wrapper(0, 0, entry(0, 0, b"v")))
    assert record == Record(0, -1, None, b"v")


@MAGICS
def test_the_key_of_a_wrapper_means_nothing(magic: int) -> None:
    (record,) = read_messages(wrapper(magic, 0, entry(magic, 0, b"v"), key=b"wrapper key"))
    assert (record.key, record.value) == (None, b"v")


@MAGICS
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda magic: entry(magic, 0, None, attributes=GZIP), "null value"),
        (lambda magic: wrapper(magic, 0, b""), "no whole message in 0 bytes"),
        (lambda magic: wrapper(magic, 0, entry(magic, 0, b"v")[:-1]), "no whole message"),
        (lambda magic: wrapper(magic, 0, wrapper(magic, 0, entry(magic, 0, b"v"))), "holds anoth"),
        (
            lambda magic: wrapper(magic, 0, entry(magic, 0, b"v") + entry(1 - magic, 1, b"v")),
            "wrapper of format [01] holds one of format [01]",
        ),
        (
            lambda magic: wrapper(magic, 0, build_batch([(NOW_MS, None, b"v", ())])),
            "holds one of format 2",
        ),
        (lambda magic: entry(magic, 0, b"not gzip", attributes=GZIP), "gzip payload is damaged"),
        (lambda magic: entry(magic, 0, b"", attributes=GZIP), "gzip payload of 0 bytes ends"),
        (lambda magic: entry(magic, 0, compress(4, b"v"), attributes=4), "zstd in format"),
        (lambda magic: entry(magic, 0, b"v", attributes=5), "codec 5"),
    ],
    ids=["null", "empty", "cut", "nested", "other", "batch", "damaged", "nothing", "zstd", "codec"],
)
def test_a_wrapper_that_holds_no_set_is_invalid(magic: int, make: Any, text: str) -> None:
    before = entry(magic, 0, b"before")
    records = read_messages(before + make(magic))
    assert next(records).value == b"before"
    with pytest.raises(InvalidRecord, match=text) as refusal:
        next(records)
    assert refusal.value.code == ErrorCode.INVALID_RECORD


@MAGICS
def test_damage_inside_a_wrapper_is_corrupt(magic: int) -> None:
    inside = bytearray(entry(magic, 0, b"value"))
    inside[-1] ^= 1
    with pytest.raises(CorruptBatch, match="states checksum"):
        offsets(wrapper(magic, 0, inside))
    with pytest.raises(CorruptBatch, match="has length 13"):
        offsets(wrapper(magic, 0, struct.pack(">qi", 0, 13)))
    with pytest.raises(CorruptBatch, match="has magic 3"):
        offsets(wrapper(magic, 0, entry(3, 0, b"v")))


@MAGICS
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_bomb_in_a_wrapper_is_refused_by_the_bound_it_meets(magic: int, codec: int) -> None:
    bomb = BOMBS[codec]()
    message = Message(memoryview(entry(magic, 0, bomb, attributes=codec)))
    with pytest.raises(InvalidRecord, match=r"4194304 bytes \(max.decompressed.batch") as refusal:
        message.payload(limit=1 << 22, ratio=1 << 20)
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(InvalidRecord, match=r"\(max.decompression.ratio 2 for") as refusal:
        next(read_messages(message.view, limit=1 << 40, ratio=2))
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE


BYTES = st.none() | st.binary(max_size=60)
ROWS = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), BYTES, BYTES, st.just(())),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(
    rows=ROWS,
    magic=st.integers(0, 1),
    codec=st.integers(0, 3),
    gaps=st.lists(st.integers(1, 1000), min_size=12, max_size=12),
    base_offset=st.integers(1, 2**62),
    append_time_ms=st.none() | st.integers(0, 2**62),
)
def test_records_come_back_from_messages_as_they_went_in(
    rows: list[Any],
    magic: int,
    codec: int,
    gaps: list[int],
    base_offset: int,
    append_time_ms: int | None,
) -> None:
    places = [base_offset + sum(gaps[:index]) for index in range(len(rows))]
    data = build_messages(
        rows, magic=magic, codec=codec, offsets=places, append_time_ms=append_time_ms
    )
    assert list(read_messages(data)) == [
        Record(
            offset,
            -1 if not magic else timestamp_ms if append_time_ms is None else append_time_ms,
            key,
            value,
        )
        for offset, (timestamp_ms, key, value, _) in zip(places, rows, strict=True)
    ]
    if codec:
        message = Message(memoryview(data))
        assert message.size == len(data)
        assert message.offset == places[-1]
        expected = max(-1, *(row[0] for row in rows)) if append_time_ms is None else append_time_ms
        assert message.timestamp_ms == (expected if magic else -1)


READABLE = [(magic, codec) for magic in (0, 1) for codec in range(4)]


@pytest.mark.parametrize(("magic", "codec"), READABLE)
@pytest.mark.parametrize("append_time_ms", [None, NOW_MS + 77])
def test_kafka_python_reads_what_is_built(
    magic: int, codec: int, append_time_ms: int | None
) -> None:
    data = build_messages(
        SOME, magic=magic, codec=codec, base_offset=900, append_time_ms=append_time_ms
    )
    read = []
    for message in MemoryRecords(data):
        assert message.validate_crc()
        read += list(message)
    time_type = None if magic == 0 else int(append_time_ms is not None)
    assert [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in read] == [
        (900 + i, None if not magic else append_time_ms or timestamp, time_type, key, value)
        for i, (timestamp, key, value, _) in enumerate(SOME)
    ]


@pytest.mark.parametrize(("magic", "codec"), READABLE)
def test_what_kafka_python_builds_is_read(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    rows = [(NOW_MS + i, b"key %d" % i, b"value " * 30, ()) for i in range(5)]
    for index, (timestamp_ms, key, value, _) in enumerate(rows):
        assert builder.append(index, timestamp_ms, key, value) is not None
    data = bytes(builder.build())
    assert list(read_messages(data)) == [
        Record(index, timestamp_ms if magic else -1, key, value)
        for index, (timestamp_ms, key, value, _) in enumerate(rows)
    ]
    assert Message(memoryview(data)).codec == codec
    if not codec:
        assert data == build_messages(rows, magic=magic)


def test_a_set_of_nothing_has_no_bytes_and_a_wrapper_of_nothing_is_a_mistake() -> None:
    assert build_messages([], magic=1) == b""
    with pytest.raises(ValueError, match="at least one message"):
        build_messages([], magic=1, codec=GZIP)
    with pytest.raises(ValueError, match="zip"):
        build_messages(SOME, magic=1, offsets=[1, 2])


@MAGICS
def test_zstd_is_not_made_below_format_2(magic: int) -> None:
    with pytest.raises(InvalidRecord, match="zstd"):
        build_messages(SOME, magic=magic, codec=4)


@MAGICS
def test_a_plain_set_is_placed_message_by_message(magic: int) -> None:
    data = bytearray(build_messages(SOME, magic=magic, offsets=[-1, 40, 0]))
    placed = MessageSet(memoryview(data), magic=magic, compressed=False, record_count=3)
    placed.place(1000)
    assert placed.size == len(data)
    assert offsets(data) == [1000, 1001, 1002]
    assert data == build_messages(SOME, magic=magic, base_offset=1000)


def test_a_wrapper_of_format_1_is_placed_by_its_last_offset() -> None:
    data = bytearray(build_messages(SOME, magic=1, codec=GZIP))
    placed = MessageSet(
        memoryview(data),
        magic=1,
        compressed=True,
        record_count=3,
        max_timestamp=NOW_MS + 900,
        max_timestamp_delta=2,
    )
    placed.place(1000)
    assert Message(placed.view).offset == 1002
    assert offsets(data) == [1000, 1001, 1002]
    assert (placed.max_timestamp, placed.max_timestamp_delta) == (NOW_MS + 900, 2)


def test_a_wrapper_of_format_0_is_placed_where_it_was_built_for() -> None:
    data = bytearray(build_messages(SOME, magic=0, codec=GZIP, base_offset=1000))
    placed = MessageSet(memoryview(data), magic=0, compressed=True, record_count=3)
    placed.place(1000)
    assert data == build_messages(SOME, magic=0, codec=GZIP, base_offset=1000)
    assert (placed.max_timestamp, placed.max_timestamp_delta) == (-1, -1)
