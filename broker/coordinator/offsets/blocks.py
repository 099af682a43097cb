"""Groups that have few offsets, as they come from a snapshot, and how they get into buckets.

A block is up to 16 pages of an earlier process (`offset_buckets`) and the addresses of the records
in it. Hashes are keyed anew in each process, so every record goes to another place: it is looked
into for the hash of its group, and copied to a page of the bucket that this belongs to.

`_loops.c` has both steps in C, ten times as fast; `look_into` and `place` are those where it was
built. A million groups then take 0.15 s in place of 1.5.
"""

from __future__ import annotations

import sys
from array import array
from itertools import repeat
from operator import add, mul
from typing import NamedTuple

from broker.coordinator.offsets.buckets import (
    ADDRESS_MASK,
    ENTRY_BYTES,
    FEW_ENTRIES,
    HASH_BITS,
    HASH_MASK,
    MAX_PAGES,
    NAME,
    PAGE_BYTES,
)
from protocol.records.transcode import first_of

KEY_WORDS = ENTRY_BYTES // 8
"""An entry has so many words of 64 bits; the first is its key."""
HALF = 1 << 31


class Block(NamedTuple):
    """Records in `data` at `starts` (u16), and the hashes of their groups (u64); native order."""

    hashes: bytes
    starts: bytes
    data: bytes


Placed = tuple[bytes, list[bytearray], int]
"""A bucket: slots (u64, native), pages, used bytes of the last page."""


def interpreted_look_into(starts: bytes, data: bytes) -> tuple[bytes, list[int], int]:
    """The hashes of the groups whose records begin at these addresses, the numbers of the topics in
    them, each at least once, and how many entries they have.

    Raises ValueError if there is no record where one should be.
    """
    addresses = array("H", starts).tolist()
    if not addresses or max(addresses) + NAME > len(data):
        raise ValueError(f"{len(addresses)} addresses in {len(data)} bytes")
    counts = list(map(data.__getitem__, addresses))
    names_at = list(map(add, addresses, repeat(NAME)))
    sizes = map(data.__getitem__, map(add, addresses, repeat(1)))
    entries_at = list(map(add, names_at, sizes))
    ends = list(map(add, entries_at, map(mul, counts, repeat(ENTRY_BYTES))))
    if min(counts) < 1 or max(counts) > FEW_ENTRIES or max(ends) > len(data):
        raise ValueError(f"a group of {min(counts)} to {max(counts)} offsets, up to {max(ends)}")
    entries = b"".join(map(data.__getitem__, map(slice, entries_at, ends)))
    keys = set(_little("Q", entries)[::KEY_WORDS])
    names = map(data.__getitem__, map(slice, names_at, entries_at))
    groups = map(str, names, repeat("utf-8"), repeat("surrogateescape"))
    hashes = array("Q", [hashed & HASH_MASK for hashed in map(hash, groups)])
    return hashes.tobytes(), [(key + HALF) >> 32 for key in keys], sum(counts)


def interpreted_place(blocks: list[Block], filled_bytes: int) -> list[Placed]:
    """The records of blocks that have been looked into, in buckets of about so many bytes: their
    number is a power of two, and a bucket has the hashes that begin with its number.

    Records lie by the first 40 bits of their hashes, those of equal ones as they come. Raises
    ValueError if a bucket would have too many pages.
    """
    hashes: list[int] = []
    records: list[bytes] = []
    for block in blocks:
        data = block.data
        hashes += array("Q", block.hashes)
        records += [data[start : start + record_size(data, start)] for start in _starts(block)]
    depth = (sum(len(record) for record in records) // filled_bytes).bit_length()
    together: list[list[int]] = [[] for _ in range(1 << depth)]
    # Step by step, not in one call for all: the interpreter has other threads, too.
    for number, hashed in enumerate(hashes):
        together[hashed >> HASH_BITS - depth].append(number)
    return [
        _bucket(
            [hashes[number] & ~ADDRESS_MASK for number in numbers],
            [records[number] for number in numbers],
        )
        for numbers in together
    ]


def record_size(data: bytes, start: int) -> int:
    return NAME + data[start + 1] + ENTRY_BYTES * data[start]


def _starts(block: Block) -> array[int]:
    return array("H", block.starts)


def _bucket(tags: list[int], records: list[bytes]) -> Placed:
    # As float: exact, for a tag has 40 bits, and compared in a quarter of the time.
    order = sorted(range(len(tags)), key=list(map(float, tags)).__getitem__)
    slots = array("Q")
    pages: list[bytearray] = []
    pieces: list[bytes] = []
    base, used = -PAGE_BYTES, PAGE_BYTES
    for number in order:
        record = records[number]
        if used + len(record) > PAGE_BYTES:
            _end_page(pages, pieces)
            base, used = base + PAGE_BYTES, 0
        slots.append(tags[number] + base + used)
        pieces.append(record)
        used += len(record)
    _end_page(pages, pieces)
    if len(pages) > MAX_PAGES:
        raise ValueError(f"{len(pages)} pages of groups whose hashes begin alike")
    return slots.tobytes(), pages, used


def _end_page(pages: list[bytearray], pieces: list[bytes]) -> None:
    if pieces:
        pages.append(bytearray(b"".join(pieces).ljust(PAGE_BYTES, b"\0")))
        pieces.clear()


def _little(code: str, data: bytes) -> array[int]:
    numbers: array[int] = array(code, data)
    if sys.byteorder != "little":
        numbers.byteswap()
    return numbers


look_into = interpreted_look_into
place = interpreted_place
try:
    from protocol.records import _loops
except ImportError:
    pass  # built where there was no C compiler
else:
    look_into = first_of(_loops.groups_in, interpreted_look_into)
    place = first_of(_loops.place_groups, interpreted_place)
