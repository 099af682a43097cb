"""A log file is changed while the broker has it open; it costs the changed batch at the most."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from protocol.records.compression import GZIP
from protocol.records.errors import CorruptBatch
from protocol.records.layout import LENGTH_POSITION, MAGIC_POSITION
from storage.log import Log
from tests.storage.flipped import Stored, consumed, filled, wanted, written
from tests.storage.logs import Settings, new_log, produce, taken
from tests.storage.message_sets import produce_messages
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER_BYTES = 27
"""Base offset, length, leader epoch, magic, checksum, attributes and last offset delta."""

INHERITED = filled(clean=True)


class Open(NamedTuple):
    """An open log and what was stored in it."""

    files: MemoryFilesystem
    log: Log
    batches: list[Stored]

    def flip(self, one: Stored, byte: int, bit: int, *, rots: bool = False) -> None:
        """Turn one bit of a batch by a write, or without one, as a medium does."""
        file = self.files.open_file(one.path)
        at = one.position + byte
        turned = bytes([file.pread(1, at)[0] ^ 1 << bit])
        if rots:
            file.inode.data[at : at + 1] = turned
        else:
            file.write_at([turned], at)

    def readers_miss(self, why: str) -> set[int]:
        """The offsets that readers of every kind do not get; what they get must be right."""
        whole, missing = wanted(self.batches), set[int]()
        for max_bytes, jump in ((1 << 20, False), (1, True), (400, False)):
            found = consumed(self.log, max_bytes=max_bytes, jump=jump)
            wrong = {o: r for o, r in found.items() if o in whole and whole[o] != r}
            assert not wrong, (why, max_bytes, wrong)
            missing |= whole.keys() - found.keys()
            self.log.segments.places.clear()
        return missing


def inherited() -> Open:
    case = INHERITED._replace(files=INHERITED.files.copy())
    return Open(case.files, case.opened()[0], case.batches)


def own() -> Open:
    return Open(*written())


def offsets_of(one: Stored) -> set[int]:
    return set(range(one.base, one.last + 1))


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("was_read", [True, False])
@pytest.mark.parametrize("make", [inherited, own])
def test_a_bit_that_is_turned_in_an_open_file_costs_its_batch_and_nothing_else(
    make: Callable[[], Open], was_read: bool, part: int
) -> None:
    rng, opened = random.Random(part), make()
    for number, one in enumerate(opened.batches):
        for byte in range((part + number) % 4, HEADER_BYTES, 8):
            opened, bit = make(), rng.randrange(8)
            why = f"batch {number} of {one.path}, byte {byte}, bit {bit}"
            if was_read:
                assert opened.readers_miss(why) == set()

            opened.flip(one, byte, bit)

            assert opened.readers_miss(why) <= offsets_of(one), why


def test_what_is_appended_behind_a_turned_bit_is_read_and_the_bit_found() -> None:
    for byte in range(HEADER_BYTES):
        opened = own()
        one = opened.batches[-3]
        assert opened.readers_miss("before") == set()

        opened.flip(one, byte, 4)
        offset = produce(opened.log, b"appended")

        assert opened.readers_miss(f"byte {byte}") <= offsets_of(one)
        assert b"appended" in taken(opened.log.read(offset, 1000))


@pytest.mark.parametrize("make", [inherited, own])
def test_a_header_that_rots_without_a_write_costs_its_neighbours_nothing(
    make: Callable[[], Open],
) -> None:
    for number in range(0, 40, 3):
        for byte in (LENGTH_POSITION, LENGTH_POSITION + 1, MAGIC_POSITION):
            opened = make()
            one = opened.batches[number]
            assert opened.readers_miss("before") == set()

            opened.flip(one, byte, 2 + number % 6, rots=True)

            for other in opened.batches[max(number - 2, 0) : number] + opened.batches[number + 1 :]:
                assert taken(opened.log.read(other.base, 1)) == other.raw, (number, byte)


def test_a_file_that_only_we_write_to_is_not_looked_at_again() -> None:
    opened = own()
    log = opened.log
    before = log.active.verified.inherited

    offset = produce(log, b"appended")
    log.read(offset, 1000)
    produce(log, b"appended once more")

    assert log.active.verified.inherited == before == 0


def test_damage_is_told_of_though_the_index_leads_past_it() -> None:
    opened = own()
    one = opened.batches[5]
    opened.flip(one, MAGIC_POSITION, 3)

    with pytest.raises(CorruptBatch, match="magic"):
        opened.log.read(one.base, 1000)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_length_that_is_turned_costs_its_compressed_set_though_the_index_names_that(
    magic: int,
) -> None:
    for number in range(5):
        for bit in range(32):
            files, log = new_log(Settings(index_interval_bytes=1))
            positions, bases = [], []
            for _ in range(6):
                positions.append(log.active.size)
                bases.append(produce_messages(log, *range(1000, 1020), magic=magic, codec=GZIP))
            file = files.open_file(log.active.path())
            at = positions[number] + LENGTH_POSITION + bit // 8
            file.write_at([bytes([file.pread(1, at)[0] ^ 1 << bit % 8])], at)

            for read in range(6):  # each remembers where the next one is
                try:
                    log.read(bases[read], 1 << 20)
                except CorruptBatch:
                    assert read == number, (number, read, bit)
