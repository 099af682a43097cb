from __future__ import annotations

import struct

import pytest

from protocol.records.builder import build_batch
from protocol.records.walk import CorruptBatch, last_offset, walk
from tests.records.corpus import raw, sets

BATCH = build_batch([(1, b"k", b"v", ()), (2, None, None, ())], base_offset=40)


def message(offset: int, magic: int) -> bytes:
    body = bytes((magic, 0)) + (bytes(8) if magic else b"") + struct.pack(">ii", -1, -1)
    return struct.pack(">qiI", offset, len(body) + 4, 0) + body


def test_entries_of_all_formats_are_passed_in_one_go() -> None:
    parts = [message(5, 0), message(6, 1), BATCH, message(50, 0)]
    assert list(walk(b"".join(parts))) == [
        (0, 26, 0),
        (26, 34, 1),
        (60, len(BATCH), 2),
        (60 + len(BATCH), 26, 0),
    ]


def test_an_entry_is_found_by_its_last_offset_in_every_format() -> None:
    assert last_offset(b"..." + message(5, 0), 3, 0) == 5
    assert last_offset(message(6, 1), 0, 1) == 6
    assert last_offset(b"." + BATCH, 1, 2) == 41


@pytest.mark.parametrize("left", [0, 1, 11, 12, 16, 17, 60, len(BATCH) - 1])
def test_an_entry_that_is_cut_ends_the_set_without_an_error(left: int) -> None:
    assert list(walk(BATCH + BATCH[:left])) == [(0, len(BATCH), 2)]


def test_the_walk_keeps_to_the_part_it_was_given() -> None:
    buffer = b"\xff" * 7 + BATCH + BATCH + b"\xff" * 30
    size = len(BATCH)
    assert list(walk(buffer, 7, 7 + 2 * size)) == [(7, size, 2), (7 + size, size, 2)]
    assert list(walk(buffer, 7, 7 + 2 * size - 1)) == [(7, size, 2)]
    assert list(walk(memoryview(bytearray(buffer)), 7 + size, 7 + 2 * size)) == [
        (7 + size, size, 2)
    ]


@pytest.mark.parametrize("length", [13, 0, -1, -(2**31)])
def test_a_length_no_format_has_is_corrupt_even_if_the_entry_is_cut(length: int) -> None:
    with pytest.raises(CorruptBatch, match=f"position 0 has length {length}"):
        list(walk(struct.pack(">qi", 0, length)))


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    entry = bytearray(BATCH)
    entry[16] = magic
    with pytest.raises(CorruptBatch, match=f"position {len(BATCH)} has magic {magic}"):
        list(walk(BATCH + entry))


def test_a_batch_shorter_than_its_own_header_is_corrupt() -> None:
    entry = bytearray(BATCH)
    entry[8:12] = struct.pack(">i", 48)
    with pytest.raises(CorruptBatch, match="length 48"):
        list(walk(entry))


def test_real_sets_are_walked_as_they_were_made() -> None:
    for vector in sets(0, 1, 2):
        data = raw(vector["bytes"])
        assert [(size, magic) for _, size, magic in walk(data)] == [
            (entry["size"], entry["magic"]) for entry in vector["expect"]
        ], vector["id"]
        assert [last_offset(data, position, magic) for position, _, magic in walk(data)] == [
            entry["last_offset"] if "last_offset" in entry else entry["offset"]
            for entry in vector["expect"]
        ], vector["id"]
