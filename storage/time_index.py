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
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from storage.offset_index import SWAPPED

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRY_SIZE = 12

assert array("q").itemsize == 8


class TimeIndex:
    """Entries in two columns, 12 bytes of memory per entry."""

    __slots__ = ("_offsets", "_timestamps", "stored")

    def __init__(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("i")
        self.stored = 0
        """Entries that are in the file already."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last_timestamp(self) -> int:
        """-1 if there is no entry."""
        return self._timestamps[-1] if self._timestamps else -1

    @property
    def last_relative_offset(self) -> int:
        """-1 if there is no entry."""
        return self._offsets[-1] if self._offsets else -1

    def add(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if its timestamp is larger than the last; -1 (none) never is."""
        if timestamp > self.last_timestamp:
            self._timestamps.append(timestamp)
            self._offsets.append(relative_offset)

    def floors(self, timestamp: int, max_count: int) -> Iterator[tuple[int, int]]:
        """The last entries at or below a timestamp, newest first, as (timestamp, relative
        offset)."""
        index = bisect_right(self._timestamps, timestamp)
        for number in range(index - 1, max(index - 1 - max_count, -1), -1):
            yield self._timestamps[number], self._offsets[number]

    def offset_of(self, timestamp: int) -> int | None:
        """The relative offset of the entry with this timestamp, None without one."""
        number = bisect_left(self._timestamps, timestamp)
        if number < len(self._timestamps) and self._timestamps[number] == timestamp:
            return self._offsets[number]
        return None

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        del self._timestamps[count:]
        del self._offsets[count:]
        self.stored = min(self.stored, count)

    def count_below(self, relative_offset: int) -> int:
        """Number of entries below an offset."""
        return bisect_left(self._offsets, relative_offset)

    def encode(self, first: int = 0) -> bytes:
        """The bytes of the entries from index `first` on."""
        timestamps, offsets = self._timestamps[first:], self._offsets[first:]
        if SWAPPED:
            timestamps.byteswap()
            offsets.byteswap()
        halves = array("i", timestamps.tobytes())
        words = array("i", bytes(ENTRY_SIZE * len(offsets)))
        words[0::3], words[1::3], words[2::3] = halves[0::2], halves[1::2], offsets
        return words.tobytes()

    @classmethod
    def decode(cls, data: bytes, largest_relative_offset: int) -> TimeIndex | None:
        """Read a file, or None if it cannot be a time index of a segment with these offsets.

        Trailing entries of zeros, which Apache Kafka leaves after a crash, are dropped.
        """
        if len(data) % ENTRY_SIZE:
            return None
        whole = data.rstrip(b"\0")
        entries = -(-len(whole) // ENTRY_SIZE)
        words = array("i", data[: entries * ENTRY_SIZE])
        halves = array("i", bytes(8 * entries))
        halves[0::2], halves[1::2] = words[0::3], words[1::3]
        index = cls()
        index._timestamps = array("q", halves.tobytes())
        index._offsets = words[2::3]
        if SWAPPED:
            index._timestamps.byteswap()
            index._offsets.byteswap()
        index.stored = entries
        return index if index._rises(largest_relative_offset) else None

    def _rises(self, largest_relative_offset: int) -> bool:
        timestamps, offsets = self._timestamps, self._offsets
        if not offsets:
            return True
        if timestamps[0] < 0 or offsets[0] < 0 or offsets[-1] > largest_relative_offset:
            return False
        return all(map(int.__lt__, timestamps, timestamps[1:])) and all(
            map(int.__le__, offsets, offsets[1:])
        )
