"""Entries that lose the records below an offset: what is left, and what they go on to say."""

from __future__ import annotations

import struct
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from pipeline.errors import CorruptData, OffsetsGone
from pipeline.left_out import LeftOut
from pipeline.reading.edge_entries import entry_from
from pipeline.reading.plan import Range
from pipeline.reading.ranges import batches_of, read_range
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compact import emptied, made_batch, thinned
from protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from protocol.records.layout import MAGIC_POSITION
from protocol.records.legacy import Message, build_messages, read_messages
from protocol.records.walk import walk
from tests.support.fake_source import FakeSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.reading.ranges import Chunk
    from protocol.records.record import Record

FIRST, COUNT, TIME_MS = 100, 50, 1_700_000_000_000
ROWS = [
    (TIME_MS + 7 * (number % 9), b"key %d" % number, b"value %d" % number, (("h", b"x"),))
    for number in range(COUNT)
]
EDGES = (FIRST, FIRST + 1, FIRST + 27, FIRST + COUNT - 1)


def records_of(entry: bytes | memoryview) -> list[Record]:
    view = memoryview(bytes(entry))
    if not len(view):
        return []
    if view[MAGIC_POSITION] == 2:
        assert Batch(view).is_intact()
        return list(Batch(view).records())
    return list(read_messages(view))


def content(records: list[Record]) -> list[tuple[object, ...]]:
    return [(one.offset, one.timestamp_ms, one.key, one.value, one.headers) for one in records]


def wrapper(magic: int, codec: int, *, append_time_ms: int | None = None) -> bytes:
    return build_messages(
        ROWS, magic=magic, codec=codec, base_offset=FIRST, append_time_ms=append_time_ms
    )


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("edge", EDGES)
def test_a_batch_keeps_its_offsets_its_producer_and_the_records_from_the_edge_on(
    codec: int, edge: int
) -> None:
    stored = build_batch(
        ROWS, base_offset=FIRST, codec=codec, producer_id=7, producer_epoch=3, base_sequence=40,
        transactional=True, leader_epoch=5,
    )  # fmt: skip
    kept = entry_from(memoryview(stored), edge)
    assert content(records_of(kept)) == content(records_of(stored))[edge - FIRST :]
    before, after = Batch(memoryview(stored)), Batch(memoryview(kept))
    for name in (
        "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence",
        "last_sequence", "is_transactional", "leader_epoch", "codec",
    ):  # fmt: skip
        assert getattr(after, name) == getattr(before, name), name
    assert after.record_count == FIRST + COUNT - edge
    assert after.base_timestamp == records_of(kept)[0].timestamp_ms
    assert after.max_timestamp == max(one.timestamp_ms for one in records_of(kept))


def test_nothing_of_the_deleted_records_is_left_in_the_bytes() -> None:
    edge = FIRST + 27
    for stored in (
        build_batch(ROWS, base_offset=FIRST),
        build_batch(ROWS, base_offset=FIRST, codec=ZSTD),
        wrapper(1, GZIP),
    ):
        kept = entry_from(memoryview(stored), edge)
        plain = bytes(kept)
        if kept[MAGIC_POSITION] < 2:
            plain = Message(memoryview(kept)).payload()
        elif Batch(memoryview(kept)).codec:
            plain = Batch(memoryview(kept)).payload()
        assert b"value 27" in plain
        for number in range(27):
            assert not {b"key %d" % number, b"value %d" % number} & {
                field for one in records_of(kept) for field in (one.key, one.value)
            }
            assert b"value %d\x02" % number not in plain


def test_a_batch_of_log_append_time_keeps_its_time() -> None:
    stored = build_batch(ROWS, base_offset=FIRST, log_append_time_ms=TIME_MS + 99)
    kept = entry_from(memoryview(stored), FIRST + 10)
    assert {one.timestamp_ms for one in records_of(kept)} == {TIME_MS + 99}
    assert len(records_of(kept)) == COUNT - 10


def test_a_compacted_batch_may_have_no_record_left() -> None:
    stored = build_batch(ROWS, base_offset=FIRST, codec=LZ4, producer_id=7, base_sequence=0)
    header = Batch(memoryview(stored)).header()
    records = Batch(memoryview(stored)).payload()
    first = records[: records[0] // 2 + 1]
    thin = made_batch(first, thinned(header, first, 1))
    kept = memoryview(entry_from(memoryview(thin), FIRST + 20))
    assert bytes(kept) == made_batch(b"", emptied(Batch(memoryview(thin)).header()))
    assert (Batch(kept).last_offset, Batch(kept).record_count) == (FIRST + COUNT - 1, 0)
    assert entry_from(kept, FIRST + 30) is kept


@pytest.mark.parametrize(("magic", "codec"), [(0, GZIP), (0, LZ4), (1, GZIP), (1, SNAPPY)])
@pytest.mark.parametrize("edge", EDGES)
def test_a_wrapper_keeps_its_last_offset_and_the_messages_from_the_edge_on(
    magic: int, codec: int, edge: int
) -> None:
    stored = wrapper(magic, codec)
    kept = entry_from(memoryview(stored), edge)
    assert content(records_of(kept)) == content(records_of(stored))[edge - FIRST :]
    before, after = Message(memoryview(stored)), Message(memoryview(kept))
    assert (after.offset, after.magic, after.codec) == (before.offset, magic, codec)
    assert after.is_intact()
    stamped = wrapper(1, codec, append_time_ms=TIME_MS + 99)
    assert {one.timestamp_ms for one in records_of(entry_from(memoryview(stamped), edge))} == {
        TIME_MS + 99
    }


def test_a_message_is_there_or_not() -> None:
    (at,) = [build_messages(ROWS[:1], magic=1, base_offset=FIRST)]
    assert bytes(entry_from(memoryview(at), FIRST)) == at
    assert not len(entry_from(memoryview(at), FIRST + 1))


# In a range


def of(start: int, end: int) -> Range:
    return Range("orders", 0, start, end)


@pytest.fixture
def source() -> FakeSource:
    """Three entries of 50 records: a batch, a wrapper of format 1, a batch; the log begins 27
    records into the first one."""
    source = FakeSource()
    log = source.log("orders", 0)
    log.put(100, 149, build_batch(ROWS, base_offset=100, codec=LZ4))
    messages = bytearray(build_messages(ROWS, magic=1, codec=GZIP, base_offset=150))
    log.put(150, 199, bytes(messages))
    log.put(200, 249, build_batch(ROWS, base_offset=200))
    log.start = 127
    return source


def offsets(chunks: Iterator[Chunk]) -> list[int]:
    with closing(chunks) as found:  # type: ignore[type-var]
        return [
            one.offset
            for chunk in found
            for at, size, _ in walk(chunk.entries)
            for one in records_of(chunk.entries[at : at + size])
        ]


def test_whole_entries_have_no_record_below_the_start_of_the_log(source: FakeSource) -> None:
    assert offsets(read_range(source, of(127, 250), whole_entries=True)) == list(range(127, 250))
    for start in (170, 199):
        source.logs[of(0, 1).topic_partition].start = start
        found = offsets(read_range(source, of(start, 250), whole_entries=True))
        assert found == list(range(start, 250))


def test_an_edge_between_two_ranges_leaves_entries_as_they_are(source: FakeSource) -> None:
    edges = [127, 130, 149, 170, 210, 250]
    found = [
        bytes(chunk.entries)
        for pair in pairwise(edges)
        for chunk in read_range(source, of(*pair), whole_entries=True)
    ]
    stored = [raw for _, _, raw in source.logs[of(0, 1).topic_partition].entries]
    assert found[1:] == stored[1:]
    assert [one.offset for one in records_of(found[0])] == list(range(127, 150))


def test_reading_that_is_told_to_begin_inside_of_an_entry_begins_there(source: FakeSource) -> None:
    for begin in (130, 177, 230):
        for start in (begin, begin + 10):
            chunks = read_range(source, of(start, 250), whole_entries=True, begin=begin)
            assert offsets(chunks) == list(range(begin, 250))


def test_what_was_deleted_while_it_was_read_is_a_gap_and_does_not_come(source: FakeSource) -> None:
    log = source.logs[of(0, 1).topic_partition]
    log.start = 100
    log.start_told = 160
    left_out = LeftOut()
    chunks = read_range(source, of(100, 250), whole_entries=True, on_gap="skip", left_out=left_out)
    assert offsets(chunks) == list(range(160, 250))
    assert left_out.offsets_missing == 60
    with pytest.raises(OffsetsGone, match="offsets 100 to 159 were deleted"):
        offsets(read_range(source, of(100, 250), whole_entries=True))
    assert offsets(read_range(source, of(100, 160), whole_entries=True, on_gap="skip")) == []


def test_an_entry_on_the_edge_that_cannot_be_opened_is_left_out_or_an_error(
    source: FakeSource,
) -> None:
    log = source.logs[of(0, 1).topic_partition]
    first, last, raw = log.entries[0]
    spoilt = bytearray(raw)
    spoilt[70] ^= 1
    log.entries[0] = first, last, bytes(spoilt)
    with pytest.raises(CorruptData, match="offset 127: its records before offset 127 cannot"):
        offsets(read_range(source, of(127, 250), whole_entries=True))
    left_out = LeftOut()
    chunks = read_range(
        source, of(127, 250), whole_entries=True, on_corrupt="skip", left_out=left_out
    )
    assert offsets(chunks) == list(range(150, 250))
    assert (left_out.batches_corrupt, left_out.offsets_corrupt) == (1, 23)


def test_rows_of_batches_tell_of_what_is_left(source: FakeSource) -> None:
    (rows,) = batches_of(source, of(127, 250))
    assert rows["records"].to_pylist() == [23, None, 50]
    assert rows["last_offset"].to_pylist() == [149, 199, 249]
    sizes = [len(one) for one in rows["batch"].to_pylist()]
    assert rows["size"].to_pylist() == sizes
    assert struct.unpack_from(">i", rows["batch"][0].as_py(), 57)[0] == 23
