"""Through a whole `.log` file, also where it is damaged.

Every entry is read and its checksum computed. Where there is no whole entry, the walk looks for
the next one and says which bytes it went over: a `Damage`. So one flipped bit costs one entry.

The file is read in pieces of `PIECE_BYTES`; a larger entry is summed piece by piece. A length is a
claim: nothing is allocated from it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from protocol.records.crc import crc32, crc32c
from protocol.records.layout import (
    CHECKED_POSITION,
    ENTRY_PREFIX,
    HEADER_SIZE,
    MAGIC_POSITION,
    MESSAGE_CHECKED_POSITION,
)
from storage.inspection.findings import no_progress
from storage.scan import Entry, entry_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.filesystem import File
    from storage.inspection.findings import Progress

PIECE_BYTES = 4 * 1024 * 1024
"""Read at once."""

SEARCH_SUMS = 4
"""Bytes summed at most in search of the next whole entry, in sizes of the file: a file may be full
of headers that claim large entries."""
SEARCH_SUMS_FREE = 64 * 1024 * 1024
"""And so many bytes whatever the size."""
SEARCH_TRIES = 5_000_000
"""And so many places that look like a header."""

RELATIVE_OFFSET_MAX = 2**31 - 1

TORN = "torn"
ZEROS = "zeros"
CHECKSUM = "checksum"
ORDER = "offset-order"
GARBAGE = "no-entry"


class Damage:
    """Bytes file[position:end] that are no whole entry. `last_offset` is that of the entry before.

    `kind` is `torn` (an entry that the end of the file cuts off, with nothing whole after it),
    `zeros` (up to the end), `checksum`, `offset-order` (a whole entry with offsets that cannot
    be), or `no-entry`. `next_offset` is where the entry after it begins, -1 if none is known.
    """

    __slots__ = ("end", "kind", "last_offset", "next_offset", "position", "reason")

    def __init__(self, kind: str, position: int, end: int, last_offset: int, reason: str) -> None:
        self.kind = kind
        self.position = position
        self.end = end
        self.last_offset = last_offset
        self.next_offset = -1
        self.reason = reason

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.position

    def __repr__(self) -> str:
        return f"Damage({self.kind}, {self.position}..{self.end}: {self.reason})"


class Trouble:
    """The reason why no whole entry is at a position; `claimed_end` is the end it states, or -1."""

    __slots__ = ("claimed_end", "kind", "reason")

    def __init__(self, kind: str, reason: str, claimed_end: int = -1) -> None:
        self.kind = kind
        self.reason = reason
        self.claimed_end = claimed_end


class LogWalk:
    """Iterates over the entries and the damages of a log file of `size` bytes, in order.

    No offset may be below `lowest`, the segment's base, or further from it than an index can say.
    An entry that jumps to `following`, the base of the next segment, or beyond, is damage as well;
    a segment that simply goes on that far overlaps with the next.
    """

    def __init__(
        self,
        file: File,
        size: int,
        *,
        lowest: int = 0,
        following: int | None = None,
        progress: Progress = no_progress,
    ) -> None:
        self.size = size
        self.last_offset = lowest - 1
        self._file = file
        self._lowest = lowest
        self._highest = lowest + RELATIVE_OFFSET_MAX
        self._following = self._highest + 1 if following is None else following
        self._progress = progress
        self._buffer = b""
        self._start = 0
        self._sums_left = SEARCH_SUMS * size + SEARCH_SUMS_FREE
        self._tries_left = SEARCH_TRIES

    def __iter__(self) -> Iterator[Entry | Damage]:
        position, told = 0, 0
        while position < self.size:
            entry = self._entry(position)
            if isinstance(entry, Trouble):
                found = self._damage(position, entry)
                position = found.end
                yield found
            else:
                self.last_offset = entry.last_offset
                position = entry.position + entry.size
                yield entry
            if position - told >= PIECE_BYTES:
                self._progress(position - told)
                told = position
        self._progress(position - told)

    def bytes_of(self, entry: Entry) -> memoryview:
        """The bytes of an entry that was just yielded."""
        at = entry.position - self._start
        if at >= 0 and at + entry.size <= len(self._buffer):
            return memoryview(self._buffer)[at : at + entry.size]
        return memoryview(self._file.pread(entry.size, entry.position))

    def _load(self, position: int) -> None:
        self._buffer = self._file.pread(min(PIECE_BYTES, self.size - position), position)
        self._start = position

    def _entry(self, position: int) -> Entry | Trouble:
        """The entry at a position if it is whole, intact, and follows the one before."""
        entry = self._intact(position)
        if isinstance(entry, Trouble):
            return entry
        first, last = entry.first_offset, entry.last_offset
        if first <= self.last_offset:
            return Trouble(
                ORDER,
                f"offset {first} below the base offset {self._lowest}"
                if first < self._lowest
                else f"offset {first} follows offset {self.last_offset}",
                entry.end,
            )
        if last < first or last > self._highest:
            return Trouble(
                ORDER, f"offsets {first}..{last}, wanted at most {self._highest}", entry.end
            )
        if last >= self._following and first > self.last_offset + 1 and entry.magic == 2:
            return Trouble(
                ORDER, f"offset {first}; the next segment begins at {self._following}", entry.end
            )
        if first > self.last_offset + 1 and entry.end < self.size:
            after = self._intact(entry.end)
            if not isinstance(after, Trouble) and self.last_offset < after.first_offset <= last:
                return Trouble(
                    ORDER,
                    f"offset {first} stands between {self.last_offset} and {after.first_offset}",
                    entry.end,
                )
            if entry.position < self._start:
                self._load(entry.position)
        return entry

    def _intact(self, position: int) -> Entry | Trouble:
        at = position - self._start
        if not 0 <= at <= len(self._buffer) - HEADER_SIZE:
            self._load(position)
            at = 0
        buffer = self._buffer
        size = entry_size(buffer, at)
        if isinstance(size, str):
            short = len(buffer) - at < ENTRY_PREFIX
            return Trouble(TORN if short else GARBAGE, size)
        left = self.size - position
        if size > left:
            return Trouble(TORN, f"an entry of {size} bytes is cut, {left} are there")
        end = at + size
        if end > len(buffer) and size <= PIECE_BYTES and at:
            self._load(position)
            buffer, at, end = self._buffer, 0, size
        magic = buffer[at + MAGIC_POSITION]
        entry = Entry(position, size, magic, buffer, at)
        first = CHECKED_POSITION if magic == 2 else MESSAGE_CHECKED_POSITION
        if end <= len(buffer):
            view = memoryview(buffer)[at + first : end]
            found = crc32c(view) if magic == 2 else crc32(view)
        else:
            found = self._sum(position + first, position + size, magic)
        if found != entry.stated_crc:
            return Trouble(
                CHECKSUM,
                f"the checksum is {entry.stated_crc:#010x}, the bytes have {found:#010x}",
                entry.end,
            )
        return entry

    def _sum(self, position: int, end: int, magic: int) -> int:
        """The checksum of file[position:end], which is more than is kept in memory."""
        compute = crc32c if magic == 2 else crc32
        value = 0
        while position < end:
            piece = self._file.pread(min(PIECE_BYTES, end - position), position)
            if not piece:
                break
            value = compute(piece, value)
            position += len(piece)
        return value

    # Where there is no entry

    def _damage(self, position: int, trouble: Trouble) -> Damage:
        kind, reason, last_offset = trouble.kind, trouble.reason, self.last_offset
        if kind == ORDER:
            return Damage(kind, position, trouble.claimed_end, last_offset, reason)
        if kind == CHECKSUM and (
            trouble.claimed_end == self.size
            or not isinstance(self._intact(trouble.claimed_end), Trouble)
        ):
            return Damage(kind, position, trouble.claimed_end, last_offset, reason)
        if kind == GARBAGE and self._only_zeros(position):
            return Damage(ZEROS, position, self.size, last_offset, "zero bytes up to the end")
        end = self._search(position + 1)
        if end < self.size and kind == TORN:
            kind = GARBAGE
        return Damage(kind, position, end, last_offset, reason)

    def _only_zeros(self, position: int) -> bool:
        while position < self.size:
            piece = self._file.pread(min(PIECE_BYTES, self.size - position), position)
            if not piece or piece.count(0) != len(piece):
                return False
            position += len(piece)
        return True

    def _search(self, position: int) -> int:
        """Position of the next whole entry that may follow; the file's end if there is none."""
        pattern = _header_pattern(self.last_offset + 1, self._highest)
        while position < self.size and self._tries_left > 0 and self._sums_left > 0:
            buffer = self._file.pread(min(PIECE_BYTES, self.size - position), position)
            for match in pattern.finditer(buffer):
                self._tries_left -= 1
                if self._tries_left <= 0 or self._sums_left <= 0:
                    break
                if self._follows(position + match.start(), buffer, match.start()):
                    return position + match.start()
            if len(buffer) <= ENTRY_PREFIX:
                break
            position += len(buffer) - ENTRY_PREFIX + 1
        return self.size

    def _follows(self, position: int, buffer: bytes, at: int) -> bool:
        size = entry_size(buffer, at)
        if isinstance(size, str) or size > self.size - position:
            return False
        if len(buffer) - at < min(size, HEADER_SIZE):
            buffer, at = self._file.pread(HEADER_SIZE, position), 0
            if len(buffer) < min(size, HEADER_SIZE):
                return False
        entry = Entry(position, size, buffer[at + MAGIC_POSITION], buffer, at)
        if not self.last_offset < entry.first_offset <= entry.last_offset <= self._highest:
            return False
        self._sums_left -= size
        first = CHECKED_POSITION if entry.magic == 2 else MESSAGE_CHECKED_POSITION
        return self._sum(position + first, position + size, entry.magic) == entry.stated_crc


def _header_pattern(lowest: int, highest: int) -> re.Pattern[bytes]:
    """Pattern of the header of an entry with such offsets: upper half of the offset, a length that
    is not zero, a known magic. Matches nothing but the place, so places may overlap."""
    halves = {max(lowest, 0) >> 32, max(highest, 0) >> 32}
    upper = b"|".join(re.escape(half.to_bytes(4, "big")) for half in sorted(halves))
    return re.compile(
        b"(?=(?:" + upper + rb").{4}(?!\x00{4})[\x00-\x7f].{7}[\x00-\x02])", re.DOTALL
    )
