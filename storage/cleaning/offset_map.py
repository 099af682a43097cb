"""The newest offset of each key, in memory that has a bound.

A key takes 24 bytes, whatever it is like (`protocol.records.key_loops`). There are several tables,
and each grows when it needs to, so the copy that growing makes is small. All of them together, that
copy included, stay within the bound.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from protocol.records.compact import enter_keys, newest_offsets
from protocol.records.key_loops import DIGEST_SIZE, SLOT_SIZE

if TYPE_CHECKING:
    from protocol.records.compact import Keys

LOAD = 0.9
"""Largest share of slots in use in a table that cannot grow."""
GROWING_LOAD = 0.6
"""The same in one that can."""

TABLES = 64
TABLE_BYTES_WORTHWHILE = 65_536
"""A map whose tables would be smaller than this has one."""
FIRST_SLOTS = 61

GROWN_AT_ONCE = 512
"""Slots that are taken over in one go."""


class OffsetMap:
    """Keys and offsets in at most `max_bytes`, or what the smallest table takes if that is more."""

    __slots__ = ("_rooms", "_slots_max", "_tables")

    def __init__(self, max_bytes: int) -> None:
        count = TABLES if max_bytes >= TABLES * TABLE_BYTES_WORTHWHILE else 1
        # A table that grows is there twice for a moment, the old one at most as large.
        shares = count + 1 if count > 1 else 1
        self._slots_max = _prime_up_to(max_bytes // (shares * SLOT_SIZE))
        slots = self._slots_max if count == 1 else min(FIRST_SLOTS, self._slots_max)
        self._tables = [bytearray(slots * SLOT_SIZE) for _ in range(count)]
        self._rooms = array("q", [self._room_of(slots)]) * count

    def __len__(self) -> int:
        rooms = zip(self._tables, self._rooms, strict=True)
        return sum(self._room_of(len(table) // SLOT_SIZE) - room for table, room in rooms)

    @property
    def byte_size(self) -> int:
        """Bytes of the tables."""
        return sum(map(len, self._tables))

    def _room_of(self, slots: int) -> int:
        return max(1, int(slots * (GROWING_LOAD if slots < self._slots_max else LOAD)))

    def add(self, run: Keys, low: int, high: int) -> int:
        """Enter the keys of records with offsets from `low` up to `high`, which rise.

        Returns how many rows were gone through: fewer than there are when a key needs a slot and
        there is none.
        """
        row, rows, tables = 0, len(run), self._tables
        while True:
            row = enter_keys(run.digests, run.offset_bytes, row, low, high, tables, self._rooms)
            if row == rows:
                return row
            index = run.digests[row * DIGEST_SIZE] % len(tables)
            if len(tables[index]) >= self._slots_max * SLOT_SIZE:
                return row
            self._grow(index)

    def _grow(self, index: int) -> None:
        """Put a table of twice the size, at most the largest, in place of one."""
        table = self._tables[index]
        slots = min(_prime_up_to(2 * len(table) // SLOT_SIZE), self._slots_max)
        larger, room = [bytearray(slots * SLOT_SIZE)], array("q", [self._room_of(slots)])
        step = GROWN_AT_ONCE * SLOT_SIZE
        for start in range(0, len(table), step):
            some = table[start : start + step]
            rows = [some[at : at + SLOT_SIZE] for at in range(0, len(some), SLOT_SIZE)]
            digests = b"".join([row[:DIGEST_SIZE] for row in rows])
            offsets = b"".join([row[DIGEST_SIZE:] for row in rows])
            enter_keys(digests, offsets, 0, 0, 2**63 - 1, larger, room)
        self._tables[index], self._rooms[index] = larger[0], room[0]

    def newest(self, run: Keys) -> array[int]:
        """The offset of the key of each record, -1 for one that is not there."""
        return array("q", newest_offsets(run.digests, self._tables))


def _prime_up_to(number: int) -> int:
    """The largest prime at or below a number, at least 3: with it every step reaches every slot."""
    number = max(number - 1 + number % 2, 3)
    while any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number -= 2
    return number
