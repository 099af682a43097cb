"""Going through a log file from entry to entry, by their headers.

An entry is a format 2 batch, or one top-level message of format 0 or 1 (a plain message or a
compressed wrapper; either carries the offset of its last record). The walk reads the file in
pieces and skips payloads, unless it is asked to check their sums.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from protocol.records.crc import crc32, crc32c
from protocol.records.layout import (
    BASE_OFFSET,
    CHECKED_POSITION,
    CRC,
    ENTRY,
    ENTRY_OVERHEAD,
    ENTRY_PREFIX,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC_POSITION,
    MAX_TIMESTAMP,
    MIN_BATCH_LENGTH,
    MIN_ENTRY_LENGTH,
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

MESSAGE_PREFIX = Struct(">qiIbbq")
"""Formats 0 and 1: offset, length, CRC-32, magic, attributes, and (format 1 only) timestamp."""

MIN_STAMPED_LENGTH = 22
"""Smallest length field of format 1: 8 bytes of timestamp more than format 0."""

MESSAGE_CHECKED_POSITION = 16
"""First byte under the checksum in formats 0 and 1."""

assert MESSAGE_PREFIX.size == 26


class Entry:
    """What one header says. `first_offset` is the batch's base offset; in formats 0 and 1 the
    first offset is unknown without decompressing, and the entry's own (last) offset stands in."""

    __slots__ = (
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

    def __init__(self, position: int, size: int, magic: int, buffer: bytes, at: int) -> None:
        self.position = position
        self.size = size
        self.magic = magic
        self.header: Header | None = None
        if magic == 2:
            header = self.header = HEADER.unpack_from(buffer, at)
            self.first_offset: int = header[BASE_OFFSET]
            self.last_offset: int = self.first_offset + header[LAST_OFFSET_DELTA]
            self.max_timestamp: int = header[MAX_TIMESTAMP]
            self.leader_epoch: int = header[LEADER_EPOCH]
            self.stated_crc: int = header[CRC]
        else:
            offset, _, crc, _, _, timestamp = MESSAGE_PREFIX.unpack_from(buffer, at)
            self.first_offset = self.last_offset = offset
            self.max_timestamp = timestamp if magic == 1 else NO_TIMESTAMP
            self.leader_epoch = NO_LEADER_EPOCH
            self.stated_crc = crc

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
        if size > left:
            self.trouble = f"an entry of {size} bytes is cut, {left} are there"
            return None
        magic = buffer[at + MAGIC_POSITION]
        # A shortest possible message of format 0 has no bytes where the timestamp would be.
        if len(buffer) - at < MESSAGE_PREFIX.size:
            buffer, at = buffer[at:] + bytes(MESSAGE_PREFIX.size), 0
        entry = Entry(self.position, size, magic, buffer, at)
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
    smallest = (MIN_ENTRY_LENGTH, MIN_STAMPED_LENGTH, MIN_BATCH_LENGTH)[magic]
    if length < smallest:
        return f"length {length} is below {smallest}, the least of format {magic}"
    return length + ENTRY_OVERHEAD


def first_entry(file: File, position: int, end: int) -> Entry | None:
    """The entry at a position, without looking at its payload; None if there is none whole."""
    buffer = file.pread(min(HEADER_SIZE, max(end - position, 0)), position)
    size = entry_size(buffer, 0)
    if isinstance(size, str) or size > end - position:
        return None
    magic = buffer[MAGIC_POSITION]
    return Entry(position, size, magic, buffer + bytes(MESSAGE_PREFIX.size), 0)
