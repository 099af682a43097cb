"""Entries for a fetch that may convert: headers, an open file, and the offset to go on at."""

from __future__ import annotations

import random

import pytest

from protocol.records.builder import build_batch
from protocol.records.errors import CorruptBatch
from protocol.records.layout import CONTROL_BIT, RECORD_COUNT
from protocol.records.walk import walk
from storage import segment as segment_module
from storage.disk import DiskFilesystem
from storage.errors import OffsetOutOfRange
from storage.log import Log
from storage.slices import EntrySlice
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    append,
    batch,
    batches_in,
    decoded,
    drop_below_start,
    everything,
    file_of,
    new_log,
    opened,
    produce,
    taken,
    vectors,
)
from tests.storage.message_sets import messages, produce_messages
from tests.support.memory_filesystem import MemoryFilesystem

GZIP, LZ4, ZSTD = 1, 3, 4
Shape = tuple[int, int, int, int, int]


def found(piece: EntrySlice | None) -> EntrySlice:
    assert piece is not None
    return piece


def shapes(piece: EntrySlice | None) -> list[Shape]:
    """Magic, codec, size, first and last offset of each entry."""
    return [(e.magic, e.codec, e.size, e.first_offset, e.last_offset) for e in found(piece).entries]


def compressed(codec: int, *values: bytes) -> bytearray:
    return bytearray(build_batch([(1000, None, value, ()) for value in values], codec=codec))


def log_of_all_forms() -> tuple[MemoryFilesystem, Log]:
    """Offsets 0..1 and 2..3 in format 0, plain and gzip; 4..5, 6..7 in format 1, plain and lz4;
    8..9 and 10..11 in format 2, plain and zstd."""
    files, log = new_log()
    produce_messages(log, -1, -1, magic=0)
    produce_messages(log, -1, -1, magic=0, codec=GZIP)
    produce_messages(log, 5, 6)
    produce_messages(log, 7, 8, codec=LZ4)
    produce(log, b"a", b"b")
    append(log, compressed(ZSTD, b"c", b"d"))
    log.write()
    return files, log


def test_headers_tell_format_codec_and_offsets_of_every_entry() -> None:
    files, log = log_of_all_forms()
    data = file_of(files, ".log")

    piece = found(log.read_entries(0, 1 << 20))

    assert [(e.position, e.size, e.magic) for e in piece.entries] == list(walk(data))
    assert [(e.magic, e.codec, e.first_offset, e.last_offset) for e in piece.entries] == [
        (0, 0, 0, 0), (0, 0, 1, 1), (0, GZIP, 3, 3),
        (1, 0, 4, 4), (1, 0, 5, 5), (1, LZ4, 7, 7),
        (2, 0, 8, 9), (2, ZSTD, 10, 11),
    ]  # fmt: skip
    assert (piece.next_offset, piece.size) == (12, len(data))
    assert b"".join(piece.read(entry) for entry in piece.entries) == data
    assert taken(piece.part(2, 5)) == b"".join(piece.read(e) for e in piece.entries[2:5])
    assert taken(piece.part()) == data


@pytest.mark.parametrize(
    ("offset", "first"), [(1, 1), (2, 3), (3, 3), (6, 7), (7, 7), (8, 9), (9, 9), (11, 11)]
)
def test_the_first_entry_is_the_one_that_holds_the_offset(offset: int, first: int) -> None:
    _, log = log_of_all_forms()

    assert found(log.read_entries(offset, 1 << 20)).entries[0].last_offset == first


def test_entries_fill_max_bytes_and_the_first_is_always_there() -> None:
    _, log = log_of_all_forms()
    sizes = [entry.size for entry in found(log.read_entries(0, 1 << 20)).entries]

    for max_bytes in range(sum(sizes) + 2):
        got = [entry.size for entry in found(log.read_entries(0, max_bytes)).entries]
        count = max(1, next((n for n in range(9) if sum(sizes[: n + 1]) > max_bytes), 8))
        assert got == sizes[: min(count, 8)], f"max_bytes {max_bytes}"


def test_entries_lie_wholly_below_the_end_offset() -> None:
    _, log = log_of_all_forms()

    lasts = {
        end: [e.last_offset for e in piece.entries]
        if (piece := log.read_entries(0, 1 << 20, end_offset=end))
        else []
        for end in range(14)
    }

    whole = [0, 1, 3, 4, 5, 7, 9, 11]
    assert lasts == {end: [last for last in whole if last < end] for end in range(14)}
    assert log.read_entries(2, 1 << 20, end_offset=3) is None


def test_the_end_gives_nothing_and_what_lies_outside_an_error() -> None:
    _, log = log_of_all_forms()
    append(log, batch(b"queued"))

    assert log.read_entries(12, 100) is None
    for offset in (13, -1):
        with pytest.raises(OffsetOutOfRange):
            log.read_entries(offset, 100)
    log.delete_records(5)
    with pytest.raises(OffsetOutOfRange):
        log.read_entries(4, 100)


@pytest.mark.parametrize("vector", vectors(), ids=lambda v: str(v["id"]))
def test_reading_on_from_next_offset_goes_through_all_that_kafka_wrote(
    vector: dict[str, object],
) -> None:
    expect = vector["expect"]
    assert isinstance(expect, dict)
    data, files = decoded(expect["log"]), MemoryFilesystem()
    base = vector["base_offset"]
    assert isinstance(base, int)
    files.write_bytes(f"{FOLDER}/{base:020d}.log", data)
    log = opened(files)

    for max_bytes in (1, 300, 1 << 20):
        offset, got = base, b""
        while piece := log.read_entries(offset, max_bytes):
            got += b"".join(piece.read(entry) for entry in piece.entries)
            offset = piece.next_offset
        assert (got, offset) == (data, log.next_offset)


@pytest.mark.parametrize("seed", range(10))
def test_headers_agree_with_the_bytes_of_a_plain_read(seed: int) -> None:
    rng = random.Random(seed)
    _, log = new_log(Settings(segment_bytes=rng.choice((1500, 40_000)), index_interval_bytes=300))
    for _ in range(rng.randrange(5, 60)):
        size = rng.choice((0, 10, 100, 6000 if log.settings.segment_bytes > 20_000 else 50))
        if rng.random() < 0.5:
            produce(log, *[bytes(size)] * rng.randrange(1, 4))
        else:
            times, magic = range(rng.randrange(1, 6)), rng.randrange(2)
            made = messages(
                *times, magic=magic, codec=rng.choice((0, GZIP)), base_offset=log.next_offset,
                value=bytes(size),
            )  # fmt: skip
            log.append_messages(made, now_ms=NOW_MS)
            log.write()
    whole = everything(log)

    offset, got = 0, b""
    while piece := log.read_entries(offset, rng.choice((1, 500, 5000, 1 << 20))):
        bases = log.segments.base_offsets
        assert len({sum(b <= e.last_offset for b in bases) for e in piece.entries}) == 1
        got += taken(piece.part())
        offset = piece.next_offset
    assert got == whole, f"seed {seed}"


def test_a_key_names_stored_bytes_for_as_long_as_the_process_lives() -> None:
    files, log = new_log(Settings(segment_bytes=300))
    for _ in range(12):
        produce(log, bytes(60))
    keys, offset = {}, 0
    while piece := log.read_entries(offset, 200):
        for entry in piece.entries:
            keys[piece.key(entry)] = piece.read(entry)
        offset = piece.next_offset
    assert len(keys) == 12

    piece = found(log.read_entries(0, 200))  # by now its segment was let go of and opened again
    again = found(opened(files).read_entries(0, 200))

    assert keys[piece.key(piece.entries[0])] == piece.read(piece.entries[0])
    assert again.key(again.entries[0]) not in keys


def test_entries_can_be_read_when_their_segment_is_gone(tmp_path: object) -> None:
    files = DiskFilesystem()
    log = opened(files, Settings(segment_bytes=200), folder=f"{tmp_path}/orders-0")
    for _ in range(6):
        append(log, batch(bytes(80)))
    log.write()
    piece = found(log.read_entries(0, 1000))
    expected = piece.read(piece.entries[0])

    log.delete_records(5)
    assert drop_below_start(log) == 5
    part = piece.part()
    log.close(clean=False)

    assert piece.read(piece.entries[0]) == part.read() == expected


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_shortest_entries_there_are_end_a_file(magic: int) -> None:
    files, log = new_log()
    produce(log, b"a")
    if magic == 2:
        produce(log, b"")
    else:
        log.append_messages(messages(1, magic=magic, value=b""))
        log.write()

    assert shapes(log.read_entries(1, 100)) == [(magic, 0, len(file_of(files, ".log")) - 69, 1, 1)]


def test_damage_ends_a_slice_before_it_and_is_told_when_it_comes_first() -> None:
    files, log = log_of_all_forms()
    path = f"{FOLDER}/{0:020d}.log"
    data = bytearray(file_of(files, ".log"))
    position = found(log.read_entries(4, 1)).entries[0].position
    data[position + 16] = 9
    files.write_bytes(path, bytes(data))
    log.segments.places.clear()
    log.active.release_file()

    assert found(log.read_entries(0, 1 << 20)).next_offset == 4
    with pytest.raises(CorruptBatch, match="magic 9"):
        log.read_entries(4, 1 << 20)


def test_markers_and_emptied_batches_are_told_as_they_are() -> None:
    """As compaction and transactions leave them in a log of Kafka's."""
    _, log = new_log()
    marker, emptied = batch(b"x"), batch(b"y", b"z")
    marker[22] |= CONTROL_BIT
    emptied[57:61] = bytes(4)
    del emptied[61:]
    emptied[8:12] = (49).to_bytes(4, "big")
    append(log, marker)
    append(log, emptied)
    log.write()

    first, second = found(log.read_entries(0, 1000)).entries

    assert first.header is not None
    assert second.header is not None
    assert first.header[5] & CONTROL_BIT
    assert (second.header[RECORD_COUNT], second.size, second.last_offset) == (0, 61, 2)


def test_a_slice_is_cut_before_zstd_and_headers_are_looked_at_once() -> None:
    files, log = new_log()
    for _ in range(5):
        append(log, compressed(GZIP, bytes(5000)))
    for codec in (LZ4, ZSTD, GZIP):
        append(log, compressed(codec, b"x"))
    log.write()

    left = []
    for offset in range(8):
        piece = log.read(offset, 1 << 20)
        assert piece is not None
        whole = piece.size
        there = log.cut_before_zstd(piece)
        left.append(len(batches_in(piece.read())) if there else 0)
        assert there or piece.size == whole
    assert left == [6, 5, 4, 3, 2, 1, 0, 1]

    begin = log.read(0, 1 << 20, end_offset=5)
    assert begin is not None
    log.cut_before_zstd(begin)
    files.reads.clear()
    assert log.cut_before_zstd(begin)
    assert files.reads == []


def test_a_look_for_zstd_is_bounded_and_goes_on_where_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_module, "LOOK_MAX", 10)
    monkeypatch.setattr(segment_module, "LOOK_BYTES", 100)
    _, log = new_log()
    for _ in range(35):
        append(log, compressed(GZIP, b"x"))
    log.write()

    seen = []
    offset = 0
    while (piece := log.read(offset, 1 << 20)) is not None:
        assert log.cut_before_zstd(piece)
        seen.append(len(batches_in(piece.read())))
        offset += seen[-1]

    assert seen == [10, 10, 10, 5]


def test_format_0_and_1_hold_no_zstd_in_a_sealed_segment_either() -> None:
    _, log = new_log()
    produce_messages(log, 1, 2, codec=GZIP)
    produce_messages(log, -1, magic=0)
    log.roll(now_ms=NOW_MS)
    produce(log, b"x")
    piece = log.read(0, 1000)
    assert piece is not None
    size = piece.size

    assert log.cut_before_zstd(piece)
    assert piece.size == size
    log.segments[0].unload()
    assert not log.cut_before_zstd(piece), "nothing is known of a file that was let go of"
