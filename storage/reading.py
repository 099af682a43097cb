"""A log as its readers see it: from an offset, or a point in time, to bytes in a file.

    start_offset <= written_offset <= next_offset

Readers get what is in a file, never what is only queued. On a single node `written_offset` is the
high watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.batch import MAX_DECOMPRESSED_BYTES
from protocol.records.errors import CorruptBatch
from storage.errors import LogFailed, OffsetOutOfRange
from storage.scan import Scan, read_headers
from storage.slices import EntrySlice, FileSlice
from storage.timestamps import (
    TimestampOffset,
    first_at_or_after,
    largest,
    offsets_of_segments,
)

if TYPE_CHECKING:
    from storage.epochs import LeaderEpochs
    from storage.segment import Segment
    from storage.segments import Place, Segments


class ReadableLog:
    """The reading half of `storage.log.Log`, which sets and moves all its attributes."""

    __slots__ = (
        "active", "epochs", "leader_epoch", "next_offset", "segments", "start_offset",
        "unavailable", "written_offset",
    )  # fmt: skip

    active: Segment
    epochs: LeaderEpochs
    leader_epoch: int
    next_offset: int
    segments: Segments
    start_offset: int
    unavailable: str | None
    """Why nothing of the log may be read (`storage.unavailable`); None for any other."""
    written_offset: int

    def require_available(self) -> None:
        """Raises LogFailed if nothing of the log may be read."""
        if self.unavailable is not None:
            raise LogFailed(self.unavailable)

    @property
    def written_max_timestamp(self) -> int:
        """The largest timestamp (ms) in the active segment's file; -1 for none."""
        raise NotImplementedError

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        at_least_one: bool = True,
    ) -> FileSlice | None:
        """Whole batches, the first of which holds `offset` or the next offset there is.

        At most `max_bytes`, except that a first batch larger than that is returned alone if
        `at_least_one` (Fetch v3 and later, so that a consumer never gets stuck). Batches with
        offsets at or above `end_offset` are left out. A slice lies in one segment; a short one
        does not mean that there is no more. None if there is nothing (that fits).

        Raises OffsetOutOfRange outside start_offset..written_offset, CorruptBatch if there is no
        batch where one should be, LogFailed if nothing may be read.
        """
        place = self._place(offset, end_offset)
        if place is None:
            return None
        segment, position = place
        file = segment.file
        stop, end = segment.written_size, self.written_offset
        if end_offset is not None and end_offset < end:
            beyond = segment.find(end_offset)
            if beyond is not None:
                stop = min(stop, beyond.position)
        stop = self._readable(segment, position, stop, max_bytes)
        if stop - position > max_bytes:
            try:
                stop = self.segments.cut(place, stop, max_bytes, at_least_one=at_least_one)
            except CorruptBatch:
                stop = self._looked_at_again(segment, position, stop, max_bytes)
                stop = self.segments.cut(place, stop, max_bytes, at_least_one=at_least_one)
        elif segment is self.active and stop == segment.written_size:
            self.segments.remember(end, segment, stop)
        if stop <= position:
            return None
        return FileSlice(file, position, stop - position)

    def read_entries(
        self, offset: int, max_bytes: int, *, end_offset: int | None = None
    ) -> EntrySlice | None:
        """The headers of whole entries from the one that holds `offset` on, for conversion.

        An entry is a format 2 batch or a top-level message of format 0 or 1. They lie in one
        segment and below `end_offset`, and make up at most `max_bytes`, but for the first one,
        which is always there. To read on, past entries that a reader is not to see or into the
        next segment, ask again from the slice's `next_offset`. None at the end of the log or of
        what `end_offset` lets through.

        Raises OffsetOutOfRange outside start_offset..written_offset, CorruptBatch if the first
        entry is none; before a later one that is none the slice ends.
        """
        place = self._place(offset, end_offset)
        if place is None:
            return None
        segment, position = place
        end = self.written_offset
        entries = read_headers(
            segment.file,
            position,
            self._readable(segment, position, segment.written_size, max_bytes),
            max_bytes=max_bytes,
            end_offset=end if end_offset is None else min(end, end_offset),
        )
        if not entries:
            self._looked_at_again(segment, position, segment.written_size, max_bytes)
            self._expect_entry(segment, position)
            return None
        last = entries[-1]
        if last.end < segment.written_size or segment is self.active:
            self.segments.remember(last.last_offset + 1, segment, last.end)
        return EntrySlice(segment.file, entries, segment.serial)

    def _place(self, offset: int, end_offset: int | None) -> Place | None:
        """Where the entry is that holds `offset`, or the next there is, below `end_offset`."""
        end = self.written_offset
        if self.unavailable is not None:
            raise LogFailed(self.unavailable)
        if offset >= end or offset < self.start_offset:
            if offset == end:
                return None
            raise OffsetOutOfRange(offset, self.start_offset, end)
        if end_offset is not None and offset >= end_offset:
            return None
        segments = self.segments
        place = segments.places.get(offset) or segments.locate(offset)
        if place is not None:
            segments.keep_open(place[0])
        return place

    def _readable(self, segment: Segment, position: int, stop: int, max_bytes: int) -> int:
        """Where to stop instead of at `stop`, if that is within `max_bytes`: before damage, or what
        has not been looked at yet. Raises CorruptBatch for damage at `position`."""
        wanted = min(stop, position + max(max_bytes, 1))
        if position >= wanted:
            return stop
        was_loaded = segment.loaded
        ahead = segment.verified.readable_to(position, wanted)
        if segment.loaded and not was_loaded:
            self.segments.keep_open(segment)  # its indexes count now
        if ahead == wanted:
            return stop
        next_offset = segment.verified.next_offset_at(ahead)
        if next_offset is not None:
            self.segments.remember(next_offset, segment, ahead)
        return ahead

    def _looked_at_again(self, segment: Segment, position: int, stop: int, max_bytes: int) -> int:
        """The same where no entry was found, though one was there when it was looked at."""
        segment.verified.forget()
        return self._readable(segment, position, stop, max_bytes)

    def _expect_entry(self, segment: Segment, position: int) -> None:
        scan = Scan(segment.file, position, segment.written_size)
        if next(iter(scan), None) is None and scan.trouble is not None:
            raise CorruptBatch(f"{segment.path()}, position {position}: {scan.trouble}")

    def cut_before_zstd(self, piece: FileSlice) -> bool:
        """Shorten a slice that `read` returned to what is known to hold no batch of codec zstd, for
        Fetch below v10. False, and the slice as it was, if that is nothing.

        Headers are looked at once, a bounded number at a time; a segment remembers the stretch.
        """
        segment = self.segments.of_file(piece.file)
        if segment is None:
            return False
        stop = segment.end_without_zstd(piece.position, piece.end)
        if stop == piece.position:
            return False
        piece.size = stop - piece.position
        return True

    def offset_for_timestamp(
        self, timestamp_ms: int, *, limit: int = MAX_DECOMPRESSED_BYTES
    ) -> TimestampOffset | None:
        """Timestamp, offset and leader epoch of the first record at or after a time.

        `limit` is what one batch or wrapper may expand to in bytes (max.decompressed.batch.bytes);
        InvalidRecord is raised for one that goes beyond it.
        """
        return first_at_or_after(self, timestamp_ms, limit)

    def max_timestamp(self, *, limit: int = MAX_DECOMPRESSED_BYTES) -> TimestampOffset | None:
        """The same of the first record with the largest timestamp (ListOffsets -3)."""
        return largest(self, limit)

    def offsets_before(self, timestamp_ms: int, max_count: int, *, now_ms: int) -> list[int]:
        """Offsets at which segments begin, newest first, at most `max_count` (ListOffsets v0).

        Segments count by when their files were last written to, at or before `timestamp_ms`; -1
        means all of them and the log's end, -2 the log's start alone. Raises OSError.
        """
        return offsets_of_segments(self, timestamp_ms, max_count, now_ms)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """The largest epoch at or below `epoch` and its end offset; (-1, -1) if there is none."""
        start, end, leading = self.start_offset, self.written_offset, self.leader_epoch
        return self.epochs.end_offset_for(epoch, log_start=start, log_end=end, leading=leading)
