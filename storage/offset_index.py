"""The offset index of a segment: which batch is where, sparsely.

File (`.index`), no header, no checksum, one entry of 8 bytes after the other:
    0..3    int32   last offset of a set, minus the segment's base offset
    4..7    int32   position in the log file at which that set starts

A set is what one append brought: one batch nearly always, or a run of messages of format 0 or 1. It
gets an entry when it starts more than `index.interval.bytes` after the last set that got one. Hence
every entry's position is where a batch or message starts, and between two entries no set starts
further than one interval from the first of them. Built from the log file alone, where one cannot
see what came together, an index has its entries per batch and message; both kinds are right.

What if it is lost: it is built again from the log file's headers. Lookups in a log without it
are slower, never wrong.
"""

from __future__ import annotations

from array import array
from operator import lt
from typing import TYPE_CHECKING

from storage.index_columns import SWAPPED, IndexColumns

if TYPE_CHECKING:
    from storage.index_columns import Columns

ENTRY_SIZE = 8
RELATIVE_OFFSET_MAX = 2**31 - 1
"""An offset in an index is an int32 counted from the segment's base."""

DROPPED_MAX = 4
DROPPED_SHARE = 8
"""Entries of a file that may be wrong before it is taken for another file's: so many, and not more
than one in eight. An index of a few entries is made anew in no time."""

assert array("i").itemsize == 4


class OffsetIndex(IndexColumns):
    """Relative offsets and positions, columns of int32: 8 bytes of memory per entry."""

    ENTRY_SIZE = ENTRY_SIZE
    PARTS = (0, 4), (4, 4)

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__((array("i"), array("i")))

    @property
    def first_position(self) -> int:
        """The position of the first entry in memory, which must be there."""
        return self._second[0]

    @property
    def last_position(self) -> int:
        """The position of the last entry, 0 if there is none."""
        return self._second[-1] if self._second else 0

    @property
    def last_relative_offset(self) -> int:
        """The relative offset of the last entry, -1 if there is none."""
        return self._first[-1] if self._first else -1

    def add(self, relative_offset: int, position: int) -> None:
        self._first.append(relative_offset)
        self._second.append(position)

    def floor(self, relative_offset: int) -> int:
        """The position of the last entry at or below an offset; 0 if there is none."""
        found = self._last_up_to(0, relative_offset)
        return found[1] if found else 0

    def boundary(self, position: int) -> int:
        """The largest entry position at or below `position`; 0 if there is none."""
        found = self._last_up_to(1, position)
        return found[1] if found else 0

    def offset_from(self, position: int) -> int | None:
        """The relative offset of the first entry at or above a position; None if there is none."""
        number = self._count_below(1, position)
        return self.entry(number)[0] if number < len(self) else None

    def count_positions_below(self, position: int) -> int:
        """Number of entries below a position."""
        return self._count_below(1, position)

    def position_of(self, number: int, otherwise: int) -> int:
        """The position of an entry by its number; `otherwise` if there are not so many."""
        return self.entry(number)[1] if number < len(self) else otherwise

    def relative_of(self, number: int) -> int:
        """The relative offset of an entry by its number."""
        return self.entry(number)[0]

    def drop(self, position: int) -> None:
        """Take out the entry with this position, which leads nowhere."""
        number = self._count_below(1, position)
        if number < len(self) and self.entry(number)[1] == position:
            if number < self.dropped:
                self.make_whole()
                self.drop(position)
                return
            del self._first[number - self.dropped], self._second[number - self.dropped]
            self.stored = min(self.stored, number)

    def cut_behind(self, position: int) -> None:
        """Keep the entries up to this position."""
        self.cut(self._count_up_to(1, position))

    def count_below(self, relative_offset: int, position: int) -> int:
        """Number of entries below both an offset and a position."""
        return min(self._count_below(0, relative_offset), self._count_below(1, position))

    @staticmethod
    def encoded(first: array[int], second: array[int]) -> bytes:
        words = array("i", bytes(ENTRY_SIZE * len(first)))
        words[0::2] = first
        words[1::2] = second
        if SWAPPED:
            words.byteswap()
        return words.tobytes()

    @staticmethod
    def decoded(data: bytes) -> Columns:
        words = array("i", data)
        if SWAPPED:
            words.byteswap()
        return words[0::2], words[1::2]

    @classmethod
    def decode(cls, data: bytes, log_size: int) -> OffsetIndex | None:
        """Read a file, or None if it cannot be the index of a log file of `log_size` bytes.

        Apache Kafka makes the file at its full size and cuts it when the segment is rolled or
        closed; after a crash it ends in zeros, which are dropped here.
        """
        if len(data) % ENTRY_SIZE:
            return None
        index = cls()
        index._first, index._second = cls.decoded(data)
        index._drop_zeros()
        index.stored = len(index)
        if index._rises(log_size):
            return index
        index._drop_wrong(log_size)
        return index if index._rises(log_size) else None

    def _drop_wrong(self, log_size: int) -> None:
        """Take out a few entries that do not stand between the two beside them: the others are as
        good as before. Of two that contradict each other it is the one without which the rest
        rises."""
        for _ in range(min(len(self) // DROPPED_SHARE, DROPPED_MAX)):
            number = self._first_wrong(log_size)
            if number < 0:
                return
            del self._first[number], self._second[number]
            self.stored = min(self.stored, number)

    def _first_wrong(self, log_size: int) -> int:
        """The number of an entry that does not rise, -1 without one."""
        before, offsets, positions = (-1, -1), self._first, self._second
        for number, entry in enumerate(zip(offsets, positions, strict=True)):
            if entry[1] >= log_size:
                return number
            if not (before[0] < entry[0] and before[1] < entry[1]):
                if number > 1:
                    earlier = offsets[number - 2], positions[number - 2]
                    if earlier[0] < entry[0] and earlier[1] < entry[1]:
                        return number - 1  # fits without the one before, which was too high
                elif number == 1 and entry[0] >= 0 and entry[1] >= 0:
                    return 0
                return number
            before = entry
        return -1

    def _drop_zeros(self) -> None:
        count = len(self._first)
        if count and not self._second[-1]:
            # Positions of real entries rise from above 0, so the zeros are what is left of them.
            low, high = 0, count
            while low < high:
                middle = (low + high) // 2
                if self._second[middle]:
                    low = middle + 1
                else:
                    high = middle
            if not any(self._first[low:]):
                self.cut(low)

    def _rises(self, log_size: int) -> bool:
        offsets, positions = self._first, self._second
        if not offsets:
            return True
        if offsets[0] < 0 or positions[0] < 0 or positions[-1] >= log_size:
            return False
        return all(map(lt, offsets, offsets[1:])) and all(map(lt, positions, positions[1:]))
