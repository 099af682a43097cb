"""All entries of a buffer at once: the loop in Python and the one in C, against `walk`."""

from __future__ import annotations

import contextlib
import os
import random
import struct
from typing import TYPE_CHECKING, Any

import pytest

from protocol.records.builder import build_batch
from protocol.records.entry_rows import ROW, ROW_FIELDS, entry_rows, interpreted_entry_rows
from protocol.records.errors import CorruptBatch
from protocol.records.legacy import build_messages
from protocol.records.record import INT64_MAX, INT64_MIN
from protocol.records.walk import last_offset, walk
from tests.records.loop_inputs import message, required

if TYPE_CHECKING:
    from protocol.records.loops import Data

SEED = int(os.environ.get("FUZZ_SEED", "20261122"))
MUTANTS = 20_000 * int(os.environ.get("TEST_FUZZ_FACTOR", "1"))

BATCH = bytes(build_batch([(1, None, b"v%d" % number, ()) for number in range(4)], base_offset=9))
WRAPPER = bytes(build_messages([(1, None, b"v", ())] * 3, magic=1, codec=1))
ENTRIES = [message(0, 7, value=b"v"), message(1, 8, 5, b"k"), BATCH, WRAPPER, message(0, 20)]
MIXED = b"".join(ENTRIES)


@pytest.fixture(params=["interpreted", "compiled"])
def twin(request: pytest.FixtureRequest) -> Any:
    return interpreted_entry_rows if request.param == "interpreted" else required().entry_rows


def rows(found: bytes) -> list[tuple[int, ...]]:
    return list(ROW.iter_unpack(found))


def walked(data: Data) -> list[tuple[int, int, int]]:
    """What `walk` yields before it raises."""
    found = []
    with contextlib.suppress(CorruptBatch):
        for entry in walk(data):
            found.append(entry)  # noqa: PERF402
    return found


def test_entries_of_all_formats_are_found_with_their_offsets(twin: Any) -> None:
    found = rows(twin(MIXED))
    assert [row[:3] for row in found] == list(walk(MIXED))
    assert [row[3:] for row in found] == [(7, 7), (8, 8), (9, 12), (2, 2), (20, 20)]
    assert len(found[0]) == ROW_FIELDS
    assert twin(memoryview(b"gap" + MIXED)[3:]) == twin(MIXED)


def test_a_cut_entry_ends_them(twin: Any) -> None:
    for end in range(len(MIXED) + 1):
        assert [row[:3] for row in rows(twin(MIXED[:end]))] == list(walk(MIXED[:end]))


@pytest.mark.parametrize(
    "wrong", [b"\0\0\0\r" + BATCH[12:], b"\xff" * 4 + BATCH[12:], b"\0\0\0\x30" + BATCH[12:],
              BATCH[8:16] + b"\x03" + BATCH[17:], BATCH[8:16] + b"\xff" + BATCH[17:]],
)  # fmt: skip
def test_so_does_what_cannot_be_an_entry(twin: Any, wrong: bytes) -> None:
    data = MIXED + bytes(8) + wrong + MIXED
    with pytest.raises(CorruptBatch):
        list(walk(data))
    assert twin(data) == twin(MIXED)


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [
        (INT64_MAX - 1, 1, INT64_MAX),
        (INT64_MAX - 1, 2, INT64_MAX),
        (INT64_MAX, 2**31 - 1, INT64_MAX),
        (INT64_MIN, -1, INT64_MIN),
        (INT64_MIN, 2**31 - 1, INT64_MIN + 2**31 - 1),
        (5, -(2**31), 5 - 2**31),
    ],
)
def test_offsets_stay_within_64_bits(twin: Any, base: int, delta: int, last: int) -> None:
    data = struct.pack(">q", base) + BATCH[8:23] + struct.pack(">i", delta) + BATCH[27:]
    assert rows(twin(data)) == [(0, len(BATCH), 2, base, last)]


def test_both_find_the_same_in_damaged_buffers() -> None:
    compiled = required().entry_rows
    rng = random.Random(SEED)
    for _ in range(MUTANTS):
        mutant = bytearray(b"".join(rng.choices(ENTRIES, k=rng.randrange(6))))
        for _ in range(rng.randrange(4) if mutant else 0):
            mutant[rng.randrange(len(mutant))] = rng.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF))
        cut = rng.randrange(len(mutant) + 1) if rng.random() < 0.2 else len(mutant)
        data = bytes(mutant[:cut])
        found = compiled(data)
        assert found == interpreted_entry_rows(data) == entry_rows(data), data.hex()
        for at, size, magic, _, last in rows(found):
            true_last = last_offset(data, at, magic)
            assert last == max(min(true_last, INT64_MAX), INT64_MIN)
            assert at + size <= len(data)
        assert [row[:3] for row in rows(found)] == walked(data), data.hex()
