"""The loops over keys in Python and in C are held against each other, on good and on mutated input.

`FUZZ_SEED` gives other inputs.
"""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest

from protocol.records import compact, key_loops
from protocol.records.key_loops import SLOT_SIZE
from tests.fuzz.test_loops import FACTOR, SEED, messages, mutate, records, resealed
from tests.records.loop_inputs import outcome, required

SETS = 1_500 * FACTOR
MUTANTS = 20_000 * FACTOR
PRIMES = (3, 5, 13, 61)


def agree(name: str, *args: Any, about: str) -> bool:
    """Whether both refuse. Raises AssertionError where the loops differ."""
    expected = outcome((name, args, {}), key_loops)
    assert outcome((name, args, {}), compact) == expected, f"{about}: {name}{args}"
    alone = outcome((name, args, {}), required())
    refused = isinstance(expected[0], type)
    assert alone is None if refused else alone == tuple(expected), f"{about}: {name}{args}"
    return refused


def test_the_loops_see_the_same_keys() -> None:
    rng = random.Random(SEED)
    refused = 0
    for number in range(SETS):
        data, count = records(rng)
        about = f"seed {SEED}, set {number}"
        assert not agree("keys_of_records", data, count, rng.randrange(1 << 40), about=about)
        magic = rng.randrange(2)
        refused += agree("keys_of_messages", messages(rng, magic), 0, magic, about=about)
    assert not refused


@pytest.mark.timeout(240 * FACTOR + 60)
def test_the_loops_see_and_refuse_the_same_of_mutated_input() -> None:
    rng = random.Random(SEED)
    refused = 0
    for number in range(MUTANTS):
        about = f"seed {SEED}, mutant {number}"
        data, count = records(rng)
        count += rng.choice((0, 0, 0, 1, -1, 1 << 31))
        refused += agree("keys_of_records", mutate(rng, data), count, 5, about=about)
        magic = rng.randrange(2)
        data = mutate(rng, messages(rng, magic))
        data = resealed(data) if rng.random() < 0.7 else data
        agree("keys_of_messages", data, rng.randrange(3) % (len(data) + 1), magic, about=about)
    assert MUTANTS * 0.1 < refused < MUTANTS * 0.9


def test_the_loops_fill_tables_with_the_same_bytes() -> None:
    rng = random.Random(SEED)
    for number in range(SETS):
        slots = [rng.choice(PRIMES) for _ in range(rng.choice((1, 1, 3, 64)))]
        rooms = array("q", [rng.randrange(1, count) for count in slots])
        mine, others = [bytearray(count * SLOT_SIZE) for count in slots], array("q", rooms)
        theirs = [bytearray(table) for table in mine]
        pool = [rng.choice((bytes(16), rng.randbytes(16))) for _ in range(rng.randrange(1, 99))]
        for _ in range(4):
            digests = b"".join(rng.choices(pool, k=rng.randrange(20)))
            offsets = array("q", sorted(rng.randrange(99) for _ in range(len(digests) // 16)))
            span = (rng.randrange(30), rng.randrange(60, 120))
            args = (digests, offsets.tobytes(), 0, *span)
            taken = key_loops.enter_keys(*args, mine, rooms)
            about = f"seed {SEED}, set {number}"
            assert required().enter_keys(*args, theirs, others) == taken, about
            assert (mine, rooms) == (theirs, others), about
            found = key_loops.newest_offsets(digests, mine)
            assert required().newest_offsets(digests, theirs) == found, about
