"""Stored entries in older formats, held against what Apache Kafka sends."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, LZ4, NAMES, SNAPPY, ZSTD
from protocol.records.convert import ExpansionLimits, Form, convert
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import ATTRIBUTES_POSITION, LAST_OFFSET_DELTA_POSITION
from protocol.records.legacy import Message, build_messages, read_messages, wrap_messages
from protocol.records.walk import walk
from tests.records.corpus import raw, reseal, shown, vectors
from tests.records.oracle import MemoryRecords

LIMITS = ExpansionLimits(1 << 27, 2000)
CODECS = (0, GZIP, SNAPPY, LZ4)
NOW_MS = 1_700_000_000_000


def sent(stored: bytes, magic: int, fetch_offset: int) -> bytes:
    """Every entry converted by itself, as the broker does without limits of size."""
    out = b""
    for position, size, found in walk(stored):
        entry = stored[position : position + size]
        if found <= magic:
            out += entry
            continue
        if found == 2 and (Batch(memoryview(entry)).is_control):
            continue
        converted = convert(entry, Form(magic), LIMITS)
        out += converted.data[converted.position_of(fetch_offset) :]
    return out


def described(data: bytes) -> list[dict[str, Any]]:
    """What the vectors show of entries of format 0 and 1."""
    entries = []
    for position, size, magic in walk(data):
        message = Message(memoryview(data)[position : position + size])
        records = [shown(record) for record in read_messages(data[position : position + size])]
        for record in records:
            record["timestamp"] = record["timestamp"] if magic else None
        entries.append(
            {
                "magic": magic,
                "codec": NAMES[message.codec],
                "offset": message.offset,
                "timestamp_type": ("CreateTime", "LogAppendTime")[message.timestamp_type]
                if magic
                else None,
                "timestamp": message.timestamp_ms if magic else None,
                "crc_valid": message.is_intact(),
                "records": records,
            }
        )
    return entries


ALL = vectors("downconvert.json")
CONVERTED = [vector for vector in ALL if not vector["expect"]["error_code"]]
REFUSED = [vector for vector in ALL if vector["expect"]["error_code"]]


@pytest.mark.parametrize("vector", CONVERTED, ids=lambda vector: vector["id"])
def test_what_is_sent_is_what_kafka_sends(vector: dict[str, Any]) -> None:
    expect = vector["expect"]

    data = sent(bytes(raw(vector["stored"])), vector["to_magic"], vector["fetch_offset"])

    wanted = [{k: v for k, v in entry.items() if k != "size"} for entry in expect["sent"]]
    assert described(data) == wanted
    if expect.get("sent_bytes") is not None:
        assert data == raw(expect["sent_bytes"])


@pytest.mark.parametrize("vector", REFUSED, ids=lambda vector: vector["id"])
def test_zstd_is_sent_as_gzip_where_kafka_has_only_an_error(vector: dict[str, Any]) -> None:
    """Ours: the content is sent, in the codec that every client knows."""
    assert vector["expect"]["error_code"] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    stored = bytes(raw(vector["stored"]))
    *_, (position, _, magic) = walk(stored)
    batch = Batch(memoryview(stored)[position:])
    assert (magic, batch.codec) == (2, ZSTD)

    entries = described(sent(stored, vector["to_magic"], vector["fetch_offset"]))

    stored_records = [shown(record) for record in batch.records()]
    assert entries[-1]["codec"] == "gzip"
    assert [(r["offset"], r["key"], r["value"]) for r in entries[-1]["records"]] == [
        (r["offset"], r["key"], r["value"]) for r in stored_records
    ]
    if vector["to_magic"]:
        assert [r["timestamp"] for r in entries[-1]["records"]] == [
            r["timestamp"] for r in stored_records
        ]


ROWS = [
    (NOW_MS, b"k", b"v", [("h", b"1"), ("h", None)]),
    (NOW_MS - 5, None, b"", []),
    (NOW_MS + 7, b"", None, []),
    (-1, b"key", b"x" * 300, []),
]


def kafka_python_reads(data: bytes) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    found = []
    records = MemoryRecords(data)
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    return found


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.__getitem__)
@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_python_reads_the_same_records_from_what_is_converted(magic: int, codec: int) -> None:
    stored = build_batch(ROWS, base_offset=1000, codec=codec)

    for form in (Form(magic), Form(magic).plain):
        data = convert(stored, form, LIMITS).data

        assert kafka_python_reads(data) == [
            (1000 + number, timestamp if magic else None, key, value)
            for number, (timestamp, key, value, _) in enumerate(ROWS)
        ]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4], ids=NAMES.__getitem__)
@pytest.mark.parametrize("form", [Form.FORMAT_0, Form.FORMAT_0_PLAIN])
def test_a_wrapper_of_format_1_becomes_one_of_format_0_with_absolute_offsets(
    codec: int, form: Form
) -> None:
    stored = build_messages(ROWS, magic=1, codec=codec, offsets=[5, 7, 8, 20])

    converted = convert(stored, form, LIMITS)

    assert kafka_python_reads(converted.data) == [
        (offset, None, row[1], row[2]) for offset, row in zip((5, 7, 8, 20), ROWS, strict=True)
    ]
    assert converted.last_offset == 20
    sizes = [size for _, size, _ in walk(converted.data)]
    assert len(sizes) == (1 if form is Form.FORMAT_0 else 4)


def test_a_wrapper_with_offset_0_counts_from_0() -> None:
    stored = bytearray(build_messages(ROWS, magic=1, codec=GZIP, base_offset=0))
    stored[0:8] = bytes(8)

    converted = convert(bytes(stored), Form.FORMAT_0, LIMITS)

    assert [record.offset for record in read_messages(converted.data)] == [0, 1, 2, 3]


def test_lz4_for_format_0_has_the_checksum_that_kafka_0_8_computes() -> None:
    stored = build_batch(ROWS, codec=LZ4)

    frames = [
        Message(memoryview(convert(stored, form, LIMITS).data)).value
        for form in (Form.FORMAT_0, Form.FORMAT_1)
    ]

    assert [frame[:7].hex() for frame in frames if frame] == ["04224d1860401a", "04224d18604082"]


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.__getitem__)
def test_log_append_time_reaches_readers_of_format_1(codec: int) -> None:
    stored = build_batch(ROWS, base_offset=3, codec=codec, log_append_time_ms=5555)

    data = convert(stored, Form.FORMAT_1, LIMITS).data

    messages = [Message(memoryview(data)[position:]) for position, _, _ in walk(data)]
    assert {(m.timestamp_type, m.timestamp_ms) for m in messages} == {(1, 5555)}
    assert {record.timestamp_ms for record in read_messages(data)} == {5555}


def test_zstd_becomes_gzip_and_nothing_else_of_the_batch_changes() -> None:
    stored = build_batch(
        ROWS, base_offset=77, codec=ZSTD, producer_id=9, producer_epoch=2, base_sequence=4,
        leader_epoch=6,
    )  # fmt: skip

    converted = convert(stored, Form.GZIPPED, LIMITS)

    before, after = Batch(memoryview(stored)), Batch(memoryview(converted.data))
    assert after.is_intact()
    assert (after.codec, after.size) == (GZIP, len(converted.data))
    assert list(after.records()) == list(before.records())
    unchanged = [
        "base_offset", "leader_epoch", "last_offset", "base_timestamp", "max_timestamp",
        "timestamp_type", "producer_id", "producer_epoch", "base_sequence", "record_count",
    ]  # fmt: skip
    for name in unchanged:
        assert getattr(after, name) == getattr(before, name), name
    assert (converted.position_of(77), converted.position_of(80)) == (0, 0)
    assert converted.position_of(81) == len(converted.data)


# Cutting


def run_of(count: int, value_bytes: int = 20) -> bytes:
    return build_batch(
        [(NOW_MS, None, b"%06d" % n + b"x" * (value_bytes * (n % 7)), ()) for n in range(count)],
        base_offset=100,
    )


def test_a_run_is_cut_after_the_last_message_that_fits_wherever_it_begins() -> None:
    converted = convert(run_of(3000), Form.FORMAT_0, LIMITS)
    ends = [position + size for position, size, _ in walk(converted.data)]
    starts = [0, *ends[:-1]]
    assert len(converted.data) > 200_000

    for first in (0, 1, 500, 2999):
        start = converted.position_of(100 + first)
        assert start == starts[first]
        for size in (0, 1, 40, 5000, 16_384, 100_000, len(converted.data)):
            wanted = max([start, *(end for end in ends if start < end <= start + size)])
            assert converted.cut(start, size) == wanted, (first, size)
    assert converted.position_of(99) == converted.position_of(-1) == 0
    assert converted.position_of(3100) == len(converted.data)


def test_a_hole_in_a_run_leads_to_the_message_behind_it() -> None:
    stored = bytearray(build_batch(ROWS, base_offset=10))
    stored[LAST_OFFSET_DELTA_POSITION : LAST_OFFSET_DELTA_POSITION + 4] = (9).to_bytes(4, "big")

    converted = convert(bytes(reseal(stored)), Form.FORMAT_1, LIMITS)

    assert converted.last_offset == 13, "the last record, not the last offset of the batch"
    assert converted.position_of(14) == len(converted.data)


# What cannot be converted


@pytest.mark.parametrize("form", Form, ids=lambda form: form.name)
def test_damage_is_found_before_a_new_checksum_vouches_for_it(form: Form) -> None:
    stored = bytearray(build_batch(ROWS, codec=ZSTD))
    stored[-3] ^= 1

    with pytest.raises(CorruptBatch, match="checksum"):
        convert(bytes(stored), form, LIMITS)


@pytest.mark.parametrize("form", [Form.FORMAT_0, Form.FORMAT_0_PLAIN])
def test_a_damaged_wrapper_is_not_converted(form: Form) -> None:
    stored = bytearray(build_messages(ROWS, magic=1, codec=GZIP))
    stored[-3] ^= 1

    with pytest.raises(CorruptBatch, match="checksum"):
        convert(bytes(stored), form, LIMITS)


def test_a_run_is_converted_up_to_a_damaged_message() -> None:
    stored = bytearray(build_messages(ROWS, magic=1))
    ends = [position + size for position, size, _ in walk(stored)]
    stored[ends[2] - 1] ^= 1

    converted = convert(bytes(stored), Form.FORMAT_0, LIMITS)

    assert [record.offset for record in read_messages(converted.data)] == [0, 1]
    assert converted.last_offset == 1
    assert isinstance(converted.fault, CorruptBatch)
    with pytest.raises(CorruptBatch):
        convert(bytes(stored[ends[1] :]), Form.FORMAT_0, LIMITS)


@pytest.mark.parametrize("codec", [GZIP, ZSTD], ids=NAMES.__getitem__)
def test_a_bomb_is_refused_by_the_limit(codec: int) -> None:
    stored = build_batch([(NOW_MS, None, bytes(5_000_000), ())], codec=codec)

    with pytest.raises(InvalidRecord, match=r"max\.decompressed\.batch\.bytes") as caught:
        convert(stored, Form.FORMAT_1, ExpansionLimits(4_000_000, 2_000_000))

    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_an_unknown_codec_is_refused() -> None:
    stored = bytearray(build_batch(ROWS))
    stored[ATTRIBUTES_POSITION + 1] = 6

    with pytest.raises(InvalidRecord, match="codec 6"):
        convert(bytes(reseal(stored)), Form.FORMAT_1, LIMITS)


def test_a_batch_without_records_is_refused() -> None:
    stored = bytearray(build_batch(ROWS)[:61])
    stored[8:12] = (49).to_bytes(4, "big")
    stored[57:61] = bytes(4)

    with pytest.raises(InvalidRecord, match="0 records"):
        convert(bytes(reseal(stored)), Form.FORMAT_1, LIMITS)


def test_a_wrapper_of_wrappers_is_refused() -> None:
    inner = build_messages(ROWS, magic=1, codec=GZIP)
    stored = wrap_messages(inner, magic=1, codec=GZIP, offset=9, timestamp_ms=NOW_MS)

    with pytest.raises(InvalidRecord, match="plain"):
        convert(bytes(stored), Form.FORMAT_0, LIMITS)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.__getitem__)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_become_a_batch_of_the_same_records(magic: int, codec: int) -> None:
    stored = build_messages(ROWS, magic=magic, codec=codec, base_offset=5)

    converted = convert(stored, Form.FORMAT_2, LIMITS)

    batch = Batch(memoryview(converted.data))
    assert (batch.codec, batch.record_count, batch.base_offset) == (codec, len(ROWS), 5)
    assert batch.is_intact()
    assert list(batch.records()) == list(read_messages(stored))
    assert (converted.record_count, converted.last_offset) == (len(ROWS), 4 + len(ROWS))


@pytest.mark.parametrize("codec", [0, GZIP], ids=NAMES.__getitem__)
def test_holes_between_messages_are_holes_between_batches(codec: int) -> None:
    stored = build_messages(ROWS[:3], magic=1, codec=codec, offsets=[2, 3, 7])

    converted = convert(stored, Form.FORMAT_2, LIMITS)

    assert [size for _, size, _ in walk(converted.data)] == [
        converted.cut(0, len(converted.data) - 1),
        len(converted.data) - converted.cut(0, len(converted.data) - 1),
    ]
    found = [
        record
        for position, size, _ in walk(converted.data)
        for record in Batch(memoryview(converted.data)[position : position + size]).records()
    ]
    assert found == list(read_messages(stored))
    assert [record.offset for record in found] == [2, 3, 7]
    assert converted.last_offset == 7


@pytest.mark.parametrize("codec", [0, GZIP], ids=NAMES.__getitem__)
def test_a_batch_has_one_time_where_the_broker_gave_it(codec: int) -> None:
    stored = b"".join(
        build_messages(
            ROWS, magic=1, codec=codec, base_offset=number * len(ROWS), append_time_ms=number
        )
        for number in range(2)
    )

    converted = convert(stored, Form.FORMAT_2, LIMITS)

    batches = [
        Batch(memoryview(converted.data)[position : position + size])
        for position, size, _ in walk(converted.data)
    ]
    assert [(batch.timestamp_type, batch.max_timestamp) for batch in batches] == [(1, 0), (1, 1)]
    assert {batch.record_count for batch in batches} == {len(ROWS)}


def test_messages_of_both_formats_side_by_side_become_one_batch() -> None:
    stored = build_messages(ROWS[:2], magic=0) + build_messages(ROWS[:2], magic=1, base_offset=2)

    converted = convert(stored, Form.FORMAT_2, LIMITS)

    assert list(Batch(memoryview(converted.data)).records()) == list(read_messages(stored))


def test_the_batch_ends_before_a_damaged_message() -> None:
    stored = bytearray(build_messages(ROWS[:3], magic=1))
    stored[-1] ^= 1

    converted = convert(bytes(stored), Form.FORMAT_2, LIMITS)

    assert (converted.record_count, converted.last_offset) == (2, 1)
    assert isinstance(converted.fault, CorruptBatch)
    with pytest.raises(CorruptBatch):
        convert(bytes(stored[-40:]), Form.FORMAT_2, LIMITS)
