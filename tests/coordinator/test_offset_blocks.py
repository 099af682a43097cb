"""Groups on pages of an earlier process, looked into and placed anew: in Python and in C alike."""

from __future__ import annotations

import random
from array import array
from struct import Struct

import pytest

from broker.coordinator.offsets.blocks import (
    Block,
    interpreted_look_into,
    interpreted_place,
    look_into,
    place,
)
from broker.coordinator.offsets.buckets import ENTRY, ENTRY_BYTES, PAGE_BYTES

_loops = pytest.importorskip("protocol.records._loops")

NAMES = ["", "g", "gruppe-ü", "組", "\U0001f600", "\udc80", "g" * 255, "ü" * 127]
KEY = Struct("<Q")


def record(name: str, keys: list[int]) -> bytes:
    raw = name.encode("utf-8", "surrogateescape")
    entries = b"".join(ENTRY.pack(key, 5, 6, 7) for key in keys)
    return bytes((len(keys), len(raw))) + raw + entries


def block(chance: random.Random, count: int) -> tuple[bytes, bytes]:
    """Addresses and pages of records, among which some are dead."""
    pages, starts, used = [bytearray(PAGE_BYTES)], array("H"), 0
    for number in range(count):
        name = chance.choice([*NAMES, *(f"group-{number}" for _ in range(8))])
        keys = [
            (chance.randrange(1, 4) << 32) + chance.choice([0, 5, 2**31 - 1, -1])
            for _ in range(chance.choice([1, 1, 2, 32]))
        ]
        data = record(name, keys)
        if used + len(data) > PAGE_BYTES:
            if len(pages) == 16:
                break
            pages.append(bytearray(PAGE_BYTES))
            used = 0
        pages[-1][used : used + len(data)] = data
        if not number or chance.random() < 0.9:
            starts.append((len(pages) - 1) * PAGE_BYTES + used)
        used += len(data)
    order = list(starts)
    chance.shuffle(order)
    return array("H", order).tobytes(), b"".join(pages)


def looked_into(starts: bytes, data: bytes) -> tuple[bytes, set[int], int] | None:
    try:
        hashes, topics, entries = interpreted_look_into(starts, data)
    except ValueError:
        return None
    return hashes, set(topics), entries


@pytest.mark.parametrize("seed", range(60))
def test_what_is_in_a_block_is_the_same_in_both(seed: int) -> None:
    chance = random.Random(seed)
    starts, data = block(chance, chance.choice([1, 5, 100]))
    expected = looked_into(starts, data)
    assert expected is not None
    found = _loops.groups_in(starts, data)
    assert (found[0], set(found[1]), found[2]) == expected, f"seed {seed}"
    assert len(found[1]) == len(expected[1])


@pytest.mark.parametrize("seed", range(400))
def test_what_makes_no_sense_is_refused_by_both_or_taken_by_both(seed: int) -> None:
    chance = random.Random(seed)
    starts, data = (bytearray(each) for each in block(chance, 20))
    for _ in range(chance.choice([1, 3])):
        where = chance.choice([starts, data])
        where[chance.randrange(min(len(where), 2000))] = chance.choice([0, 1, 33, 255])
    if chance.random() < 0.3:
        del data[chance.randrange(len(data)) :]
    expected = looked_into(bytes(starts), bytes(data))
    found = _loops.groups_in(bytes(starts), bytes(data))
    assert (found is None) == (expected is None), f"seed {seed}"
    if expected is not None:
        assert (found[0], set(found[1]), found[2]) == expected, f"seed {seed}"


@pytest.mark.parametrize("seed", range(30))
def test_groups_come_to_the_same_places_in_both(seed: int) -> None:
    chance = random.Random(seed)
    blocks = []
    for _ in range(chance.choice([0, 1, 4])):
        starts, data = block(chance, 300)
        hashes, _, _ = look_into(starts, data)
        if chance.random() < 0.3:  # many that begin alike
            same = [0x1234_5678_9A00_0000 + n for n in range(len(hashes) // 8)]
            hashes = array("Q", same).tobytes()
        blocks.append(Block(hashes, starts, data))
    filled = chance.choice([100, 5000, 1 << 20])
    expected = interpreted_place(blocks, filled)
    assert _loops.place_groups(blocks, filled) == expected, f"seed {seed}"
    assert sum(len(slots) for slots, _, _ in expected) == sum(len(each[0]) for each in blocks)


def test_more_pages_than_a_bucket_has_addresses_for_are_refused() -> None:
    starts, data = block(random.Random(1), 1)
    big = record("g" * 255, list(range(1, 33)))
    per_page = PAGE_BYTES // len(big)
    page = (big * per_page).ljust(PAGE_BYTES, b"\0")
    addresses = [p * PAGE_BYTES + n * len(big) for p in range(16) for n in range(per_page)]
    starts, data = array("H", addresses).tobytes(), page * 16
    hashes = array("Q", [7 << 40] * len(addresses)).tobytes()
    blocks = [Block(hashes, starts, data)] * 257
    assert _loops.place_groups(blocks, 1 << 40) is None
    with pytest.raises(ValueError, match="4112 pages"):
        place(blocks, 1 << 40)


@pytest.mark.parametrize(
    "blocks",
    [
        [()],
        [(b"", b"")],
        [(1, 2, 3)],
        ["abc"],
        [(bytes(8), bytes(4), bytes(99))],
        [(bytes(16), bytes(4), bytes(1))],
        [(bytes(8), bytes(2), b"")],
        [(bytes(8), b"\x00\x00", b"\x01\xff" + bytes(100))],
        [(bytes(8), b"\xff\xff", bytes(100))],
    ],
)
def test_blocks_that_are_none_are_left_to_the_twin(
    blocks: list[tuple[bytes, bytes, bytes]],
) -> None:
    assert _loops.place_groups(blocks, 100) is None
    assert ENTRY_BYTES == 24
