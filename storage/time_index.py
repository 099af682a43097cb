"""The time index of a segment: from a timestamp to the offset at which to start looking.

File (`.timeindex`), no header, no checksum, one entry of 12 bytes after the other:
    0..7    int64   the largest timestamp in the segment up to here (ms)
    8..11   int32   an offset that goes with it, minus the segment's base offset

That offset is the last one of the first batch or wrapper that has the timestamp; of plain messages
of format 1, the first message that has it. No record before the set it belongs to is as late.

An entry is tried whenever the offset index gets one, and once more when the segment is rolled or
closed; it is added only if its timestamp exceeds the last entry's. The last entry
of a closed segment therefore holds the segment's largest timestamp.

What if it is lost: it is built again from the headers of the log file.
"""

from __future__ import annotations

from array import array
from operator import le, lt
from typing import TYPE_CHECKING

from storage.index_columns import SWAPPED, IndexColumns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.index_columns import Columns

ENTRY_SIZE = 12

assert array("q").itemsize == 8


class TimeIndex(IndexColumns):
    """Timestamps and relative offsets in columns, 12 bytes of memory per entry."""

    ENTRY_SIZE = ENTRY_SIZE
    PARTS = (0, 8), (8, 4)

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__((array("q"), array("i")))

    @property
    def last_timestamp(self) -> int:
        """-1 if there is no entry."""
        return self._first[-1] if self._first else -1

    @property
    def last_relative_offset(self) -> int:
        """-1 if there is no entry."""
        return self._second[-1] if self._second else -1

    def add(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if its timestamp is larger than the last; -1 (none) never is."""
        if timestamp > self.last_timestamp:
            self._first.append(timestamp)
            self._second.append(relative_offset)

    def floors(self, timestamp: int, max_count: int) -> Iterator[tuple[int, int]]:
        """The last entries at or below a timestamp, newest first, as (timestamp, relative
        offset)."""
        index = self._count_up_to(0, timestamp)
        for number in range(index - 1, max(index - 1 - max_count, -1), -1):
            found = self.entry(number)
            if found[0] <= timestamp:  # else the file was found to be wrong only now
                yield found

    def offset_of(self, timestamp: int) -> int | None:
        """The relative offset of the entry with this timestamp, None without one."""
        number = self._count_below(0, timestamp)
        if number < len(self):
            found, offset = self.entry(number)
            if found == timestamp:
                return offset
        return None

    def cut_behind(self, timestamp: int) -> None:
        """Keep the entries up to this timestamp."""
        self.cut(self._count_up_to(0, timestamp))

    def count_below(self, relative_offset: int) -> int:
        """Number of entries below an offset."""
        return self._count_below(1, relative_offset)

    @staticmethod
    def encoded(first: array[int], second: array[int]) -> bytes:
        timestamps, offsets = first[:], second[:]
        if SWAPPED:
            timestamps.byteswap()
            offsets.byteswap()
        halves = array("i", timestamps.tobytes())
        words = array("i", bytes(ENTRY_SIZE * len(offsets)))
        words[0::3], words[1::3], words[2::3] = halves[0::2], halves[1::2], offsets
        return words.tobytes()

    @staticmethod
    def decoded(data: bytes) -> Columns:
        words = array("i", data)
        halves = array("i", bytes(8 * (len(data) // ENTRY_SIZE)))
        halves[0::2], halves[1::2] = words[0::3], words[1::3]
        timestamps, offsets = array("q", halves.tobytes()), words[2::3]
        if SWAPPED:
            timestamps.byteswap()
            offsets.byteswap()
        return timestamps, offsets

    @classmethod
    def decode(cls, data: bytes, largest_relative_offset: int) -> TimeIndex | None:
        """Read a file, or None if it cannot be a time index of a segment with these offsets.

        Trailing entries of zeros, which Apache Kafka leaves after a crash, are dropped.
        """
        if len(data) % ENTRY_SIZE:
            return None
        whole = data.rstrip(b"\0")
        entries = -(-len(whole) // ENTRY_SIZE)
        index = cls()
        index._first, index._second = cls.decoded(data[: entries * ENTRY_SIZE])
        index.stored = entries
        return index if index._rises(largest_relative_offset) else None

    def _rises(self, largest_relative_offset: int) -> bool:
        timestamps, offsets = self._first, self._second
        if not offsets:
            return True
        if timestamps[0] < 0 or offsets[0] < 0 or offsets[-1] > largest_relative_offset:
            return False
        return all(map(lt, timestamps, timestamps[1:])) and all(map(le, offsets, offsets[1:]))
