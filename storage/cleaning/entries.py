"""The sources of a cleaning, entry by entry, each one checked.

Files are read in large pieces, and an entry is seen in the piece it came with. Plain messages of
formats 0 and 1 come together, as long as they follow each other in a piece.

A damaged entry ends the cleaning of the log with an error that says where it is: what comes after
it cannot be trusted, and nothing of the sources is given up for a copy that lacks something.
"""

from __future__ import annotations

from operator import lt
from typing import TYPE_CHECKING

from protocol.records.compact import keys_in_run
from protocol.records.crc import crc32, crc32c
from protocol.records.errors import CorruptBatch
from protocol.records.layout import (
    BASE_OFFSET,
    CHECKED_POSITION,
    CODEC_MASK,
    CRC,
    ENTRY_OVERHEAD,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAGIC_POSITION,
    MESSAGE_0,
    MESSAGE_CHECKED_POSITION,
    MIN_BATCH_LENGTH,
)
from storage.layout import LOG, file_name
from storage.offset_index import RELATIVE_OFFSET_MAX
from storage.scan import entry_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.records.compact import Keys
    from protocol.records.layout import Header
    from storage.cleaning.plan import Source
    from storage.filesystem import File, Filesystem

PIECE_BYTES = 1 << 20
"""Read at once. An entry that is larger is read alone."""


class SourceEntry:
    """data[start:end] is one batch (`header`), a run of plain messages (`run`), or else a message
    of format `magic` by itself: a wrapper, or one whose fields do not fit."""

    __slots__ = ("data", "end", "header", "last_offset", "magic", "run", "start")

    def __init__(self, data: bytes, start: int, end: int, magic: int) -> None:
        self.data = data
        self.start = start
        self.end = end
        self.magic = magic
        self.header: Header | None = None
        self.run: Keys | None = None
        self.last_offset = -1


class SourceReader:
    """Reads one source after the other. Raises OSError, and CorruptBatch for a damaged entry."""

    def __init__(self, files: Filesystem, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._path = ""
        self._base_offset = self._last_offset = 0

    def pieces(self, source: Source) -> Iterator[list[SourceEntry]]:
        """The entries of a source, those of one piece of the file together."""
        self._path = f"{self._folder}/{file_name(source.base_offset, LOG)}"
        self._base_offset = source.base_offset
        self._last_offset = source.base_offset - 1
        if not source.size:
            return
        file = self._files.open_to_read(self._path)
        try:
            position = 0
            while position < source.size:
                data = self._read(file, position, source.size)
                found = self._entries(data, position)
                yield found
                position += found[-1].end
        finally:
            file.close()

    def _read(self, file: File, position: int, end: int) -> bytes:
        """A piece that holds at least one whole entry, or damage."""
        wanted = min(PIECE_BYTES, end - position)
        data = file.pread(wanted, position)
        size = entry_size(data, 0)
        if isinstance(size, str):
            raise self._damaged(position, size)
        if size > end - position:
            raise self._damaged(
                position, f"an entry of {size} bytes is cut, {end - position} are there"
            )
        if size > wanted:
            wanted = size
            data = file.pread(wanted, position)
        if len(data) < wanted:
            raise self._damaged(position, f"the file has {position + len(data)} bytes, not {end}")
        return data

    def _entries(self, data: bytes, position: int) -> list[SourceEntry]:
        entries: list[SourceEntry] = []
        at, total, view = 0, len(data), memoryview(data)
        last, largest = self._last_offset, self._base_offset + RELATIVE_OFFSET_MAX
        while total - at >= HEADER_SIZE or (total > at and self._is_whole(data, at)):
            magic, length = data[at + MAGIC_POSITION], 0
            size: int | str = 0
            if magic == 2 and total - at >= HEADER_SIZE:
                # Written out, because a log may have a batch for each record.
                header = HEADER.unpack_from(data, at)
                length = header[LENGTH]
                size = length + ENTRY_OVERHEAD
            if length < MIN_BATCH_LENGTH:
                size = entry_size(data, at)
            if isinstance(size, str):
                raise self._damaged(position + at, size)
            end = at + size
            if end > total:
                break
            found = SourceEntry(data, at, end, magic)
            if magic == 2:
                found.header = header
                if crc32c(view[at + CHECKED_POSITION : end]) != header[CRC]:
                    raise self._damaged(position + at, "the checksum does not fit")
                first = header[BASE_OFFSET]
                found.last_offset = first + header[LAST_OFFSET_DELTA]
            else:
                first = self._message(found, position)
            before, last = last, found.last_offset
            if not before < first <= last <= largest:
                raise self._damaged(position + at, f"offsets {first} to {last} follow {before}")
            entries.append(found)
            at = found.end
        self._last_offset = last
        return entries

    def _is_whole(self, data: bytes, at: int) -> bool:
        """Whether an entry, if there is one, ends in this piece; near its end that is rare."""
        size = entry_size(data, at)
        return isinstance(size, int) and at + size <= len(data)

    def _message(self, found: SourceEntry, position: int) -> int:
        """A message and the plain ones that follow it. Returns the first offset."""
        data, at, magic = found.data, found.start, found.magic
        offset, _, crc, _, attributes = MESSAGE_0.unpack_from(data, at)
        if not attributes & CODEC_MASK:
            run = keys_in_run(data, at, magic)
            if len(run):
                found.run = run
                found.end = run.starts[-1]
                found.last_offset = run.offsets[-1]
                if not all(map(lt, run.offsets, run.offsets[1:])):
                    raise self._damaged(position + at, "the offsets of messages do not rise")
                return run.offsets[0]
        if crc32(memoryview(data)[at + MESSAGE_CHECKED_POSITION : found.end]) != crc:
            raise self._damaged(position + at, "the checksum does not fit")
        found.last_offset = offset
        return int(offset)

    def _damaged(self, position: int, trouble: str) -> CorruptBatch:
        return CorruptBatch(f"{self._path}, position {position}: {trouble}")
