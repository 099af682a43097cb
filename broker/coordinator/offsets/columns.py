"""The offsets of a group that has many: columns sorted by key, in parts of bounded length.

A key is (topic number << 32) + partition. Four arrays lie side by side, 24 bytes an entry: key u64,
offset i64, commit time in seconds u32, leader epoch i32. Whatever changes moves at most one part,
so the order in which partitions come does not matter, and no place is kept for those that did not.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Entries in a part. One in the midst of it moves 12 KB, which costs about what the call does.
PART_ENTRIES = 1024
#: An array that shrinks by one gives no memory back. A copy, now and then, does.
SHRINK_ENTRIES = 16

#: Key, offset, commit time in seconds since 1970, leader epoch.
Row = tuple[int, int, int, int]


class Columns:
    """Entries in the order of their keys.

    Columns that are `shared` are read by others, on any thread: nobody changes them any more.
    """

    __slots__ = ("epochs", "keys", "offsets", "seconds", "shared")

    def __init__(
        self,
        keys: array[int],
        offsets: array[int],
        seconds: array[int],
        epochs: array[int],
    ) -> None:
        self.keys = keys
        self.offsets = offsets
        self.seconds = seconds
        self.epochs = epochs
        self.shared = False

    @classmethod
    def of(
        cls,
        keys: Sequence[int],
        offsets: Sequence[int],
        seconds: Sequence[int],
        epochs: Sequence[int],
    ) -> Columns:
        """Raises OverflowError for a number that its column has no room for."""
        return cls(array("Q", keys), array("q", offsets), array("I", seconds), array("i", epochs))

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, span: slice) -> Columns:
        return Columns(self.keys[span], self.offsets[span], self.seconds[span], self.epochs[span])

    def __setitem__(self, span: slice, other: Columns) -> None:
        self.keys[span] = other.keys
        self.offsets[span] = other.offsets
        self.seconds[span] = other.seconds
        self.epochs[span] = other.epochs

    def __delitem__(self, span: slice) -> None:
        del self.keys[span], self.offsets[span], self.seconds[span], self.epochs[span]

    def insert(self, at: int, entry: Row) -> None:
        key, offset, seconds, epoch = entry
        self.keys.insert(at, key)
        self.offsets.insert(at, offset)
        self.seconds.insert(at, seconds)
        self.epochs.insert(at, epoch)

    def extend(self, other: Columns) -> None:
        self[len(self) : len(self)] = other

    def entries(self) -> list[Row]:
        return list(zip(self.keys, self.offsets, self.seconds, self.epochs, strict=True))


class WideGroup:
    """The entries of one group, in parts: each has the keys from its start to the next start."""

    __slots__ = ("_parts", "_starts")

    def __init__(self, columns: Columns) -> None:
        """Takes the columns for its own."""
        self._parts = [columns]
        # The first part has everything below the second's start, also what comes before all others.
        self._starts = array("Q", [0])
        self._cut(0)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __bool__(self) -> bool:
        return len(self._parts) > 1 or len(self._parts[0]) > 0

    def share(self) -> list[Columns]:
        """All entries in order as they are, and will stay: what changes them changes copies."""
        for part in self._parts:
            part.shared = True
        return self._parts[:]

    def _own(self, number: int) -> Columns:
        """A part that is about to be changed."""
        part = self._parts[number]
        if part.shared:
            part = self._parts[number] = part[:]
        return part

    def put(self, key: int, offset: int, seconds: int, epoch: int) -> int:
        """Set an entry; says how many that added, 0 or 1."""
        parts = self._parts
        number = 0 if len(parts) == 1 else bisect_right(self._starts, key) - 1
        part = parts[number]
        if part.shared:
            part = self._own(number)
        keys = part.keys
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at] == key:
            part.offsets[at] = offset
            part.seconds[at] = seconds
            part.epochs[at] = epoch
            return 0
        self._insert(number, at, (key, offset, seconds, epoch))
        return 1

    def put_run(self, run: Columns) -> int:
        """Set many, whose keys ascend; says how many that added."""
        added = at = 0
        while at < len(run):
            number = bisect_right(self._starts, run.keys[at]) - 1
            last = number + 1 == len(self._parts)
            stop = len(run) if last else bisect_left(run.keys, self._starts[number + 1], at)
            added += self._put_within(number, run if stop - at == len(run) else run[at:stop])
            at = stop
        return added

    def get(self, key: int) -> Row | None:
        part = self._parts[bisect_right(self._starts, key) - 1]
        at = bisect_left(part.keys, key)
        if at == len(part.keys) or part.keys[at] != key:
            return None
        return key, part.offsets[at], part.seconds[at], part.epochs[at]

    def remove(self, key: int) -> int:
        """Remove an entry; says how many that took away, 0 or 1."""
        number = bisect_right(self._starts, key) - 1
        part = self._parts[number]
        at = bisect_left(part.keys, key)
        if at == len(part.keys) or part.keys[at] != key:
            return 0
        part = self._own(number)
        del part[at : at + 1]
        if len(part) % SHRINK_ENTRIES == 0:
            self._parts[number] = part[:]
        for left in (number, number - 1):
            if 0 <= left < len(self._parts) - 1:
                self._join(left)
        return 1

    def span(self, first: int, end: int, limit: int) -> Columns:
        """The entries with first <= key < end, the first `limit` of them."""
        number = bisect_right(self._starts, first) - 1
        found = Columns.of((), (), (), ())
        while number < len(self._parts) and self._starts[number] < end and len(found) < limit:
            part = self._parts[number]
            start, stop = bisect_left(part.keys, first), bisect_left(part.keys, end)
            found.extend(part[start : min(stop, start + limit - len(found))])
            number += 1
        return found

    def oldest(self) -> int:
        """The earliest of all commit times."""
        return min(min(part.seconds) for part in self._parts if part)

    def size_bytes(self) -> int:
        columns = [
            column
            for part in self._parts
            for column in (part, part.keys, part.offsets, part.seconds, part.epochs)
        ]
        return sum(map(sys.getsizeof, [self, self._parts, self._starts, *columns]))

    def _insert(self, number: int, at: int, entry: Row) -> None:
        part = self._parts[number]
        if at < len(part) or len(part) < PART_ENTRIES:
            part.insert(at, entry)
            self._cut(number)
            return
        # Behind a full part: keys that ascend fill part after part, instead of leaving halves.
        after = number + 1
        if after == len(self._parts) or len(self._parts[after]) >= PART_ENTRIES:
            self._parts.insert(after, Columns.of((), (), (), ()))
            self._starts.insert(after, entry[0])
        self._own(after).insert(0, entry)
        self._starts[after] = entry[0]

    def _put_within(self, number: int, run: Columns) -> int:
        part = self._parts[number]
        at = bisect_left(part.keys, run.keys[0])
        if part.keys[at : at + len(run)] == run.keys:
            self._own(number)[at : at + len(run)] = run
            return 0
        if at == len(part) or run.keys[-1] < part.keys[at]:
            self._own(number)[at:at] = run
            self._cut(number)
            return len(run)
        # Some are there and some are not; `put` may cut parts, and finds its way each time.
        return sum(self.put(*entry) for entry in run.entries())

    def _cut(self, number: int) -> None:
        """Make parts of a part that is too long."""
        part = self._parts[number]
        if len(part) <= PART_ENTRIES:
            return
        size = PART_ENTRIES if len(part) >= 2 * PART_ENTRIES else (len(part) + 1) // 2
        pieces = [part[start : start + size] for start in range(0, len(part), size)]
        self._parts[number : number + 1] = pieces
        self._starts[number + 1 : number + 1] = array("Q", [each.keys[0] for each in pieces[1:]])

    def _join(self, number: int) -> None:
        """Make one of a part and the next if that is no more than half full, or one is empty."""
        part, other = self._parts[number : number + 2]
        if not (part and other) or len(part) + len(other) <= PART_ENTRIES // 2:
            self._own(number).extend(other)
            del self._parts[number + 1], self._starts[number + 1]
