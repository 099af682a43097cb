"""Going through a log file from entry to entry, by their headers.

An entry is a format 2 batch, or one top-level message of format 0 or 1 (a plain message or a
compressed wrapper; either carries the offset of its last record). The walk reads the file in
pieces and skips payloads, unless it is asked to check their sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.crc import crc32, crc32c
from protocol.records.layout import (
    CHECKED_POSITION,
    CODEC_MASK,
    ENTRY,
    ENTRY_OVERHEAD,
    ENTRY_PREFIX,
    HEADER,
    HEADER_SIZE,
    MAGIC_POSITION,
    MESSAGE_1,
    MESSAGE_CHECKED_POSITION,
    MIN_BATCH_LENGTH,
    MIN_MESSAGE_LENGTHS,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.records.layout import Header
    from storage.filesystem import File

PIECE_BYTES = 65536
"""Read at once while walking headers of small entries; hundreds fit a piece."""

LARGE_ENTRY_BYTES = 4096
"""From entries of this size on only the next header is read, not the payloads between."""

MIN_LENGTHS = (*MIN_MESSAGE_LENGTHS, MIN_BATCH_LENGTH)
"""The smallest length field of each format."""


class Entry:
    """The facts of one header. `first_offset` is the batch's base offset; in formats 0 and 1 the
    first offset is unknown without decompressing, and the entry's own (last) offset stands in.
    `header` is the whole one of a format 2 batch, None for a message."""

    __slots__ = (
        "codec",
        "first_offset",
        "header",
        "last_offset",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "position",
        "size",
        "stated_crc",
    )

    first_offset: int
    last_offset: int
    max_timestamp: int
    stated_crc: int
    header: Header | None

    def __init__(self, position: int, size: int, magic: int, buffer: bytes, at: int) -> None:
        self.position = position
        self.size = size
        self.magic = magic
        if magic == 2:
            # Taken apart at once and not by the names of its indexes: this runs per batch sent.
            self.header = header = HEADER.unpack_from(buffer, at)
            (offset, _, self.leader_epoch, _, self.stated_crc, attributes, delta, _,
             self.max_timestamp, _, _, _, count) = header  # fmt: skip
            if not count:
                # Emptied by compaction: no record has the time that the header still states.
                self.max_timestamp = NO_TIMESTAMP
            self.first_offset = offset
            self.last_offset = offset + delta
        else:
            offset, _, self.stated_crc, _, attributes, timestamp = MESSAGE_1.unpack_from(buffer, at)
            self.header = None
            self.leader_epoch = NO_LEADER_EPOCH
            self.max_timestamp = timestamp if magic else NO_TIMESTAMP
            self.first_offset = self.last_offset = offset
        self.codec: int = attributes & CODEC_MASK

    @property
    def end(self) -> int:
        """The position after the entry."""
        return self.position + self.size


class Scan:
    """Iterates over the entries of file[position:end]; afterwards says where and why it stopped.

    `position` is then the end of the last whole entry, and `trouble` is None if that is `end`,
    else a sentence. With `checked`, the checksum of every entry is compared. Offsets must rise:
    an entry that starts at or below `last_offset` is trouble.

    An entry is read whole only when its sum is checked, and only if the file has all its bytes,
    so a wrong length cannot make this allocate more than the segment's size.
    """

    def __init__(
        self, file: File, position: int, end: int, *, last_offset: int = -1, checked: bool = False
    ) -> None:
        self.position = position
        self.trouble: str | None = None
        self._file = file
        self._end = end
        self._last_offset = last_offset
        self._checked = checked

    def __iter__(self) -> Iterator[Entry]:
        end = self._end
        buffer, start, piece = b"", self.position, PIECE_BYTES
        while (position := self.position) < end:
            at = position - start
            if len(buffer) - at < HEADER_SIZE and (not buffer or start + len(buffer) < end):
                buffer = self._file.pread(min(piece, end - position), position)
                start, at = position, 0
            entry = self._entry(buffer, at)
            if entry is None:
                return
            if self._checked and not self._is_intact(entry, buffer, at):
                self.trouble = "the checksum does not fit"
                return
            large = entry.size >= LARGE_ENTRY_BYTES and not self._checked
            piece = HEADER_SIZE if large else PIECE_BYTES
            self._last_offset = entry.last_offset
            self.position = entry.end
            yield entry

    def _entry(self, buffer: bytes, at: int) -> Entry | None:
        """The entry at `at`, or None and the trouble with it."""
        left = self._end - self.position
        size = entry_size(buffer, at)
        if isinstance(size, str):
            self.trouble = size
            return None
        if size > left or len(buffer) - at < min(size, HEADER_SIZE):
            self.trouble = f"an entry of {size} bytes is cut, {left} are there"
            return None
        entry = Entry(self.position, size, buffer[at + MAGIC_POSITION], buffer, at)
        if entry.first_offset <= self._last_offset:
            self.trouble = f"offset {entry.first_offset} follows offset {self._last_offset}"
            return None
        if entry.last_offset < entry.first_offset:
            self.trouble = f"the last offset is {entry.last_offset}, the first {entry.first_offset}"
            return None
        return entry

    def _is_intact(self, entry: Entry, buffer: bytes, at: int) -> bool:
        whole: bytes | memoryview
        if len(buffer) - at >= entry.size:
            whole = memoryview(buffer)[at : at + entry.size]
        else:
            whole = self._file.pread(entry.size, entry.position)
            if len(whole) != entry.size:
                return False
        if entry.magic == 2:
            return crc32c(memoryview(whole)[CHECKED_POSITION:]) == entry.stated_crc
        return crc32(memoryview(whole)[MESSAGE_CHECKED_POSITION:]) == entry.stated_crc


def entry_size(buffer: bytes, at: int) -> int | str:
    """The size in bytes of the entry whose first bytes are at `at`, or why there is none."""
    if len(buffer) - at < ENTRY_PREFIX:
        return f"{len(buffer) - at} bytes are not enough for an entry"
    length: int = ENTRY.unpack_from(buffer, at)[1]
    magic = buffer[at + MAGIC_POSITION]
    if magic > 2:
        return f"magic {magic} is unknown"
    smallest = MIN_LENGTHS[magic]
    if length < smallest:
        return f"length {length} is below {smallest}, the least of format {magic}"
    return length + ENTRY_OVERHEAD


def first_entry(file: File, position: int, end: int) -> Entry | None:
    """The entry at a position, without looking at its payload; None if there is none whole."""
    buffer = file.pread(min(HEADER_SIZE, max(end - position, 0)), position)
    size = entry_size(buffer, 0)
    if isinstance(size, str) or size > end - position or len(buffer) < min(size, HEADER_SIZE):
        return None
    return Entry(position, size, buffer[MAGIC_POSITION], buffer, 0)


def read_headers(
    file: File, position: int, end: int, *, max_bytes: int, end_offset: int
) -> list[Entry]:
    """The entries of file[position:end] below `end_offset` that make up at most `max_bytes`; a
    first one that is larger comes alone. Stops before whatever a `Scan` would have trouble with.

    It is that walk once more, for the way to a reader: 1 MiB of 16 KiB batches in 0.1 ms.
    """
    entries: list[Entry] = []
    pread, unpack, limit = file.pread, ENTRY.unpack_from, position + max_bytes
    start, buffer, piece, last_offset = position, b"", LARGE_ENTRY_BYTES, -1
    while position < end:
        at = position - start
        if len(buffer) - at < HEADER_SIZE:
            buffer = pread(piece, position)
            if len(buffer) < HEADER_SIZE:
                buffer += bytes(HEADER_SIZE)  # a short message ends the file
            start, at = position, 0
        length = unpack(buffer, at)[1]
        magic = buffer[at + MAGIC_POSITION]
        size = length + ENTRY_OVERHEAD
        if magic > 2 or length < MIN_LENGTHS[magic] or size > end - position:
            break
        entry = Entry(position, size, magic, buffer, at)
        position += size
        if not last_offset < entry.first_offset <= entry.last_offset < end_offset:
            break
        if position > limit and entries:
            break
        last_offset = entry.last_offset
        entries.append(entry)
        piece = HEADER_SIZE if size >= LARGE_ENTRY_BYTES else PIECE_BYTES
    return entries
