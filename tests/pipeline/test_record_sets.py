"""Record sets of stored entries: sent as they are or made anew, without loss of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.delivering.record_sets import RecordSet, SetMaker
from pipeline.delivering.remade import EVERYTHING, RUN_OFFSETS, Selection
from pipeline.errors import CorruptData
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compact import changed, made_batch, with_horizon
from protocol.records.compression import DEFAULT_RATIO, GZIP, LZ4, NONE, SNAPPY, ZSTD
from protocol.records.layout import (
    BASE_OFFSET,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    RECORD_COUNT,
)
from protocol.records.legacy import Message, build_messages, read_messages
from protocol.records.markers import Marker, encode_marker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.records.builder import RecordFields
    from protocol.records.record import Record

NOW_MS = 1_700_000_000_000
ROWS: list[RecordFields] = [
    (NOW_MS, b"a", b"one", ()),
    (NOW_MS + 5, None, b"two", (("h", b"x"), ("h", None))),
    (NOW_MS - 7, b"c", None, ()),
    (NOW_MS + 2, b"", b"", ()),
]
PLAIN: list[RecordFields] = [(time, key, value, ()) for time, key, value, _ in ROWS]


def sets_of(
    *entries: bytes,
    start: int = 0,
    end: int = 1 << 60,
    magic: int = 2,
    keep_producers: bool = True,
    wanted: Selection = EVERYTHING,
    aborted: Sequence[tuple[int, int]] = (),
    chunks: int = 1,
) -> list[RecordSet]:
    maker = SetMaker(
        "orders-0", start, end, magic=magic, keep_producers=keep_producers, wanted=wanted
    )
    made: list[RecordSet] = []
    step = -(-len(entries) // chunks)
    for index in range(0, len(entries), step):
        data = b"".join(entries[index : index + step])
        made += list(maker.sets(memoryview(data), aborted))
    return made + list(maker.rest())


def records(made: Sequence[RecordSet]) -> list[Record]:
    return [
        record
        for one in made
        for record in (
            Batch(memoryview(one.data)).records() if one.magic == 2 else read_messages(one.data)
        )
    ]


def rows(found: Sequence[Record]) -> list[tuple[int, bytes | None, bytes | None, object]]:
    return [(one.timestamp_ms, one.key, one.value, one.headers) for one in found]


def sound(made: Sequence[RecordSet]) -> None:
    """Whether a broker would take the batches."""
    for one in made:
        batch = Batch(memoryview(one.data))
        assert batch.size == len(one.data)
        assert batch.is_intact()
        assert batch.base_offset == 0
        assert one.records == batch.record_count == batch.last_offset_delta + 1 > 0
        assert not batch.attributes & ~7
        assert [record.offset for record in batch.records()] == list(range(one.records))
        assert one.keys == ((batch.size, batch.crc),)
        assert one.codec == batch.codec
        assert one.max_timestamp == max(record.timestamp_ms for record in batch.records())


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_keeps_all_bytes_under_its_checksum(codec: int) -> None:
    batch = build_batch(
        ROWS, base_offset=70, leader_epoch=9, codec=codec, producer_id=4, producer_epoch=1,
        base_sequence=2_147_483_646,
    )  # fmt: skip
    (made,) = sets_of(batch)
    assert bytes(made.data)[16:] == batch[16:]
    assert bytes(made.data)[:16] == bytes(8) + batch[8:12] + b"\xff" * 4
    assert made.producer == (4, 1, 2_147_483_646)
    assert made.next_sequence == 2
    assert made.last == 73
    sound([made])


def test_a_batch_belongs_to_the_range_of_its_last_offset() -> None:
    batch = build_batch(ROWS, base_offset=70)
    assert not sets_of(batch, start=60, end=73)
    assert len(sets_of(batch, start=73, end=74)) == 1
    assert not sets_of(batch, start=74)


@pytest.mark.parametrize("codec", [NONE, ZSTD])
@pytest.mark.parametrize("given", [ROWS, PLAIN])
def test_a_batch_with_holes_is_made_anew_without_them(
    codec: int, given: list[RecordFields]
) -> None:
    header, kept = thinned_batch(given, codec)
    (made,) = sets_of(header)
    sound([made])
    assert rows(records([made])) == kept
    assert made.codec == codec
    assert sets_of(header) == [made]


def thinned_batch(given: list[RecordFields], codec: int) -> tuple[bytes, list[object]]:
    """A batch of which compaction has left the second and the last record."""
    from protocol.records.compact import moved_records
    from protocol.records.record import read_varint

    batch = build_batch(given, base_offset=70)
    data, position, parts = batch[HEADER_SIZE:], 0, []
    for _ in range(4):
        size, at = read_varint(data, position)
        parts.append(data[position : at + size])
        position = at + size
    header = changed(HEADER.unpack_from(batch), attributes=codec, record_count=2)
    assert moved_records(parts[0], 1) == parts[0]
    whole = [(time, key, value, tuple(headers)) for time, key, value, headers in given]
    return made_batch(parts[1] + parts[3], header), [whole[1], whole[3]]


@pytest.mark.parametrize("given", [ROWS, PLAIN])
def test_log_append_time_becomes_the_time_of_each_record(given: list[RecordFields]) -> None:
    batch = build_batch(given, base_offset=70, codec=LZ4, log_append_time_ms=NOW_MS + 99)
    (made,) = sets_of(batch)
    sound([made])
    assert {record.timestamp_ms for record in records([made])} == {NOW_MS + 99}
    assert [record.value for record in records([made])] == [b"one", b"two", None, b""]


def test_a_delete_horizon_is_not_passed_on() -> None:
    batch = build_batch(ROWS, base_offset=70)
    header, moved = with_horizon(HEADER.unpack_from(batch), batch[HEADER_SIZE:], NOW_MS + 10**6)
    stored = made_batch(moved, header)
    assert Batch(memoryview(stored)).attributes & DELETE_HORIZON_BIT
    (made,) = sets_of(stored)
    sound([made])
    assert rows(records([made])) == rows(list(Batch(memoryview(batch)).records()))


def test_of_transactions_only_what_was_committed_goes_on_and_without_its_producer() -> None:
    def batch(offset: int, producer: int, value: bytes) -> bytes:
        return build_batch(
            [(NOW_MS, None, value, ())], base_offset=offset, producer_id=producer, producer_epoch=0,
            base_sequence=offset, transactional=True,
        )  # fmt: skip

    def marker(offset: int, producer: int, *, commit: bool) -> bytes:
        end = Marker(commit, 0)
        data = encode_marker(producer, 0, marker=end, timestamp_ms=NOW_MS)
        return offset.to_bytes(8, "big") + bytes(data[8:])

    entries = [
        batch(0, 1, b"rolled back"),
        batch(1, 2, b"kept"),
        marker(2, 1, commit=False),
        batch(3, 1, b"kept too"),
        marker(4, 2, commit=True),
        marker(5, 1, commit=True),
        batch(6, 2, b"rolled back"),
        marker(7, 2, commit=False),
    ]
    made = sets_of(*entries, aborted=[(1, 0), (2, 6)])
    sound(made)
    assert [record.value for record in records(made)] == [b"kept", b"kept too"]
    assert all(one.producer[0] == -1 for one in made)


def test_an_emptied_batch_is_left_out() -> None:
    batch = build_batch(ROWS, base_offset=70)
    header = changed(HEADER.unpack_from(batch), record_count=0)
    assert header[RECORD_COUNT] == 0
    assert not sets_of(made_batch(b"", header))


def test_producers_are_taken_out_when_asked_to() -> None:
    batch = build_batch(ROWS, base_offset=1, producer_id=4, producer_epoch=1, base_sequence=0)
    (made,) = sets_of(batch, keep_producers=False)
    sound([made])
    assert made.producer[0] == Batch(memoryview(made.data)).producer_id == -1
    assert bytes(made.data)[HEADER_SIZE:] == batch[HEADER_SIZE:]


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_become_the_same_batches_however_they_are_fetched(magic: int) -> None:
    count = RUN_OFFSETS * 2 + 300
    given = [(NOW_MS + index, b"k", b"%d" % index, ()) for index in range(count)]
    messages = build_messages(given, magic=magic, base_offset=500)
    size = len(messages) // count + 1
    entries = []
    position = 0
    while position < len(messages):
        end = position + 12 + int.from_bytes(messages[position + 8 : position + 12], "big")
        entries.append(messages[position:end])
        position = end
    assert len(entries) == count
    made = sets_of(*entries)
    sound(made)
    assert [one.records for one in made] == [524, 1024, 800]
    assert [record.value for record in records(made)] == [value for _, _, value, _ in given]
    times = [record.timestamp_ms for record in records(made)]
    assert times == [time if magic else -1 for time, *_ in given]
    assert size
    for chunks in (2, 7, 100):
        assert sets_of(*entries, chunks=chunks) == made


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_becomes_a_batch_of_its_codec(magic: int, codec: int) -> None:
    wrapper = build_messages(PLAIN, magic=magic, codec=codec, base_offset=70)
    (made,) = sets_of(wrapper)
    sound([made])
    assert made.codec == codec
    assert [(one.key, one.value) for one in records([made])] == [
        (key, value) for _, key, value, _ in PLAIN
    ]
    assert [one.timestamp_ms for one in records([made])] == [
        time if magic else -1 for time, *_ in PLAIN
    ]


def test_a_wrapper_of_log_append_time_gives_its_time_to_each_record() -> None:
    wrapper = build_messages(PLAIN, magic=1, codec=GZIP, append_time_ms=NOW_MS + 50)
    (made,) = sets_of(wrapper)
    assert {record.timestamp_ms for record in records([made])} == {NOW_MS + 50}


@pytest.mark.parametrize("magic", [0, 1])
def test_to_a_topic_of_an_older_format_messages_go_as_they_are(magic: int) -> None:
    plain = build_messages(PLAIN, magic=magic, base_offset=70)
    wrapper = build_messages(PLAIN, magic=magic, codec=GZIP, base_offset=74)
    run, wrapped = sets_of(plain, wrapper, magic=magic)
    assert (run.magic, run.records, bytes(run.data)) == (magic, 4, plain)
    assert (wrapped.magic, wrapped.records) == (magic, 4)
    assert bytes(wrapped.data)[8:] == wrapper[8:]


@pytest.mark.parametrize("append_time_ms", [None, NOW_MS + 50])
@pytest.mark.parametrize("offsets", [(70, 71, 75, 79), (70, 77, 78, 79)])
def test_to_a_topic_of_format_1_a_wrapper_with_holes_is_made_anew_without_them(
    offsets: tuple[int, ...], append_time_ms: int | None
) -> None:
    wrapper = bytearray(
        build_messages(
            PLAIN,
            magic=1,
            codec=GZIP,
            offsets=[offset - 70 for offset in offsets],
            append_time_ms=append_time_ms,
        )
    )
    wrapper[:8] = (79).to_bytes(8, "big")

    (made,) = sets_of(bytes(wrapper), magic=1)

    assert (made.magic, made.records, made.last, made.codec) == (1, 4, 79, GZIP)
    assert Message(memoryview(made.data)).offset == 3
    found = list(read_messages(made.data))
    assert [one.offset for one in found] == [0, 1, 2, 3]
    assert [(one.key, one.value) for one in found] == [(key, value) for _, key, value, _ in PLAIN]
    times = [time for time, *_ in PLAIN] if append_time_ms is None else [append_time_ms] * 4
    assert [one.timestamp_ms for one in found] == times
    assert made.keys == ((len(made.data), Message(memoryview(made.data)).crc),)


def test_what_lies_partly_in_a_stretch_is_cut_to_it() -> None:
    batch = build_batch(ROWS, base_offset=70, codec=ZSTD)
    cut = sets_of(batch, wanted=Selection(71, 73))
    sound(cut)
    assert [record.value for record in records(cut)] == [b"two", None]
    timed = sets_of(batch, wanted=Selection(since_ms=NOW_MS, until_ms=NOW_MS + 5))
    assert [record.value for record in records(timed)] == [b"one", b""]
    assert not sets_of(batch, wanted=Selection(since_ms=NOW_MS + 6))
    for magic in (0, 1):
        wrapper = build_messages(PLAIN, magic=magic, codec=GZIP, base_offset=70)
        found = sets_of(wrapper, wanted=Selection(71, 73))
        assert [record.value for record in records(found)] == [b"two", None]
        dated = sets_of(wrapper, wanted=Selection(since_ms=0))
        assert bool(dated) is bool(magic)


def test_what_compresses_very_well_is_made_anew_as_well() -> None:
    # Beyond the default of max.decompression.ratio, which brokers of Kafka do not have.
    zeros = bytes(3 << 20)
    batch = build_batch([(NOW_MS, None, zeros, ())] * 2, codec=ZSTD)
    assert len(batch) * DEFAULT_RATIO < len(zeros)
    (made,) = sets_of(batch, wanted=Selection(0, 1))
    assert [one.value for one in Batch(memoryview(made.data)).records(ratio=len(zeros))] == [zeros]


def test_damage_is_told_with_its_offset_or_counted() -> None:
    entries = [build_batch(ROWS, base_offset=offset) for offset in (0, 4, 8)]
    entries[1] = entries[1][:-1] + b"\xff"
    with pytest.raises(CorruptData, match="orders-0 offset 4: the batch states checksum"):
        sets_of(*entries)
    left_out: list[tuple[int, int, str]] = []
    maker = SetMaker("orders-0", 0, 99, left_out=lambda *told: left_out.append(told))
    made = list(maker.sets(memoryview(b"".join(entries))))
    assert [one.last for one in made] == [3, 11]
    assert [(first, last) for first, last, _ in left_out] == [(4, 7)]


def test_batches_are_sent_from_the_memory_they_were_fetched_into() -> None:
    entries = bytearray(build_batch(ROWS, base_offset=70))
    (made,) = SetMaker("orders-0", 0, 99).sets(memoryview(entries))
    assert isinstance(made.data, memoryview)
    assert made.data.obj is entries
    assert HEADER.unpack_from(entries)[BASE_OFFSET] == 0
