"""The segment that takes the place of others, while it is written under `.cleaned` names.

Its indexes are those that a segment builds from the headers of the file (`Segment.note`), and have
an entry for each batch with missing offsets beside it: where no neighbour bears out an offset, the
index does (`storage.chain`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.layout import (
    CODEC_MASK,
    INT64,
    MAGIC_POSITION,
    MESSAGE_ATTRIBUTES_POSITION,
    NO_TIMESTAMP,
)
from storage.errors import StorageError
from storage.layout import (
    CLEANED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from storage.offset_index import ENTRY_SIZE, OffsetIndex
from storage.time_index import TimeIndex
from storage.transaction_index import encode

if TYPE_CHECKING:
    from storage.filesystem import File, Filesystem
    from storage.transaction_index import AbortedTransaction

SYNC_BYTES = 8 << 20
"""Written before the disk is waited for. What piles up in memory, a later sync of the broker's own
would have to wait for as well."""

WRITE_BYTES = 1 << 20
"""Collected before it is written."""


SIZE_MAX = 2**31 - 1
"""Positions in an index are int32. A segment near this size can grow beyond it, because a delete
horizon makes the timestamps of a batch take more bytes."""


BESIDE_HOLES_SHARE = 4
"""One in so many bytes of `segment.index.bytes` at the most is for batches beside holes, so that
small segments can still become one."""


class Output:
    """One new segment. Entries are added in order; nothing is made before there is one."""

    def __init__(
        self,
        files: Filesystem,
        folder: str,
        base_offset: int,
        *,
        interval_bytes: int,
        index_bytes: int,
    ) -> None:
        """`index_bytes` is the largest size of an index (`segment.index.bytes`)."""
        self.size = 0
        """Bytes of the log file, with what is not written yet."""
        self.entries = 0
        self._files = files
        self._folder = folder
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._file: File | None = None
        self._buffers: list[bytes | memoryview] = []
        self._written = self._synced = 0
        self._source = b""
        self._from = self._to = 0
        self._offsets, self._times = OffsetIndex(), TimeIndex()
        self._indexed_position = 0
        self._beside_holes = index_bytes // BESIDE_HOLES_SHARE // ENTRY_SIZE  # entries left
        self._before = -1, base_offset - 1  # position and last offset of the entry before
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, base_offset
        self._aborted: list[AbortedTransaction] = []

    def add(self, entry: bytes, last_offset: int, max_timestamp: int) -> None:
        """Add a new entry. The timestamp is in ms, -1 for none. Raises StorageError if the segment
        gets too large for its index."""
        self._end_copy()
        self._buffers.append(entry)
        self._note(len(entry), first_offset(entry, 0, last_offset), last_offset, max_timestamp)

    def copy(self, data: bytes, start: int, end: int, last_offset: int, max_timestamp: int) -> None:
        """Add data[start:end] as it is; what follows each other there is written as one."""
        if data is not self._source or start != self._to:
            self._end_copy()
            self._source, self._from = data, start
        self._to = end
        self._note(end - start, first_offset(data, start, last_offset), last_offset, max_timestamp)

    def add_aborted(self, entry: AbortedTransaction) -> None:
        """Enter an aborted transaction whose marker is in this segment."""
        self._aborted.append(entry)

    def _note(self, size: int, first: int | None, last_offset: int, max_timestamp: int) -> None:
        position = self.size
        is_beside_hole = first != self._before[1] + 1
        if is_beside_hole:
            self._index_beside_hole()
        self._before = position, last_offset
        if max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = max_timestamp, last_offset
        if position - self._indexed_position > self._interval_bytes:
            self._index(position, last_offset)
            self._indexed_position = position
        elif is_beside_hole:
            self._index_beside_hole()
        self.size = position + size
        self.entries += 1
        if self.size > SIZE_MAX:
            raise StorageError(
                f"{self.path(LOG)}: more than {SIZE_MAX} bytes, which no index can point into"
            )

    def _index(self, position: int, last_offset: int) -> None:
        self._offsets.add(last_offset - self._base_offset, position)
        self._finish_times()

    def _index_beside_hole(self) -> None:
        """Enter what was added last, unless it has an entry. An entry of nothing but zeros would be
        taken for the end of the file."""
        position, last_offset = self._before
        is_new = not len(self._offsets) or self._offsets.last_position < position
        if is_new and last_offset > self._base_offset and self._beside_holes > 0:
            self._index(position, last_offset)
            self._beside_holes -= 1

    def _finish_times(self) -> None:
        self._times.add(self._max_timestamp, self._max_timestamp_offset - self._base_offset)

    def _end_copy(self) -> None:
        if self._to > self._from:
            self._buffers.append(memoryview(self._source)[self._from : self._to])
        self._source, self._from, self._to = b"", 0, 0

    # Files

    def path(self, suffix: str) -> str:
        return f"{self._folder}/{file_name(self._base_offset, suffix)}{CLEANED}"

    def drain(self) -> None:
        """Write what has been collected, if it is enough. Raises OSError."""
        if self.size - self._written >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._end_copy()
        if self._buffers:
            if self._file is None:
                self._file = self._create(LOG)
            self._file.write_at(self._buffers, self._written)
            self._buffers.clear()
            self._written = self.size
            if self._written - self._synced >= SYNC_BYTES:
                self._file.sync()
                self._synced = self._written

    def _create(self, suffix: str) -> File:
        self._files.remove(self.path(suffix))  # what is left of an earlier try may be longer
        return self._files.open_file(self.path(suffix), create=True)

    def finish(self) -> None:
        """Write the rest and the indexes, and return when all is on the disk. Raises OSError."""
        self._write()
        if self._file is None:
            return
        self._file.sync()
        self._file.close()
        self._index_beside_hole()  # nobody knows here where the next segment begins
        self._finish_times()
        contents = {INDEX: self._offsets.encode(), TIME_INDEX: self._times.encode()}
        if self._aborted:
            contents[TRANSACTION_INDEX] = encode(self._aborted)
        for suffix, content in contents.items():
            file = self._create(suffix)
            file.write_at([content], 0)
            file.sync()
            file.close()

    def discard(self) -> None:
        """Remove the files, as far as the disk lets us; a start removes the rest."""
        if self._file is not None:
            self._file.close()
        for suffix in SEGMENT_SUFFIXES:
            try:
                self._files.remove(self.path(suffix))
            except OSError:
                continue


def first_offset(data: bytes, start: int, last_offset: int) -> int | None:
    """The first offset of the entry at `start`; None of a compressed message, which has but its
    last."""
    if data[start + MAGIC_POSITION] == 2:
        offset: int = INT64.unpack_from(data, start)[0]
        return offset
    return None if data[start + MESSAGE_ATTRIBUTES_POSITION] & CODEC_MASK else last_offset
