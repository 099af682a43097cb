"""The segments of one log, in order, and how to find a place in them quickly.

A consumer that reads in sequence asks for the offset after the batch it got last. Where that is
was seen when the last slice was cut, and is remembered; only a jump costs a search.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from protocol.records.errors import CorruptBatch
from protocol.records.layout import (
    ENTRY_OVERHEAD,
    ENTRY_PREFIX,
    INT32,
    INT64,
    LENGTH_POSITION,
    MIN_ENTRY_LENGTH,
)
from storage.scan import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.filesystem import File
    from storage.segment import Segment

PLACES_MAX = 64
"""Remembered (offset, position) pairs of a log: one for each consumer that reads in sequence."""

OPEN_SEALED_MAX = 4
"""Sealed segments of a log with their file and indexes in memory (an index is up to 5 MB)."""

WALK_WORTHWHILE = 16
"""A read that ends at an index entry is filled up batch by batch only if the entry leaves more
than a sixteenth of the wanted bytes unused."""

SMALLEST_ENTRY = MIN_ENTRY_LENGTH + ENTRY_OVERHEAD

Place = tuple["Segment", int]
"""A segment and a position in its file."""


class Segments:
    """Never empty. The last segment is the active one; of the sealed ones few are kept open."""

    __slots__ = ("_all", "_bases", "_open_sealed", "active", "places")

    def __init__(self, segments: list[Segment]) -> None:
        self._all = segments
        self._bases = [segment.base_offset for segment in segments]
        self._open_sealed: list[Segment] = []
        self.active = segments[-1]
        self.places: dict[int, Place] = {}
        """Where the first batch at or above an offset is, for offsets asked for lately."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> Segment:
        return self._all[index]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._bases)

    def loaded(self) -> Iterator[Segment]:
        """All segments, oldest first, each with its indexes while it is looked at."""
        for segment in list(self._all):
            segment.load()
            if segment is not self.active:
                self.keep_open(segment)
            yield segment

    def append(self, segment: Segment) -> None:
        """Add a new active segment; the one before it is sealed."""
        self.keep_open(self.active)
        self._all.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment
        self.places.clear()

    def pop_below(self, offset: int) -> Segment | None:
        """Take off the first segment if all its offsets lie below one; never the active one."""
        if len(self._all) < 2 or self._bases[1] > offset:
            return None
        segment = self._all.pop(0)
        del self._bases[0]
        if segment in self._open_sealed:
            self._open_sealed.remove(segment)
        self.places.clear()
        return segment

    def keep_open(self, segment: Segment) -> None:
        """Keep a sealed segment open, and let go of the one that was not used for longest."""
        opened = self._open_sealed
        if opened and opened[-1] is segment:
            return
        if segment in opened:
            opened.remove(segment)
        opened.append(segment)
        if len(opened) > OPEN_SEALED_MAX:
            opened.pop(0).unload()

    def of_file(self, file: File) -> Segment | None:
        """The segment that has this file open; None if it has been let go of."""
        for segment in (self.active, *self._open_sealed):
            if segment.holds(file):
                return segment
        return None

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """The next sequential read asks for this offset: spare it the search."""
        places = self.places
        if len(places) >= PLACES_MAX and offset not in places:
            del places[next(iter(places))]
        places[offset] = (segment, position)

    def locate(self, offset: int) -> Place | None:
        """The segment and position of the first batch whose last offset is at or above `offset`.

        After compaction a segment may end before the next one begins, so the search goes on.
        """
        first = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self._all[first:]:
            if segment is not self.active:
                self.keep_open(segment)
            if not segment.byte_size():
                continue
            if offset <= segment.base_offset:
                return segment, 0
            entry = segment.find(offset)
            if entry is not None:
                self.remember(offset, segment, entry.position)
                return segment, entry.position
        return None

    def cut(self, place: Place, stop: int, max_bytes: int, *, at_least_one: bool) -> int:
        """Where to end a slice from a place that may not go on to `stop`: after a whole batch.

        No walk over the slice: index entries are boundaries. From the last one that fits, at most
        one index interval of headers is looked at, and only if that may gain something. Only in a
        large set of messages, which has one index entry however long it is, does the walk go on.
        """
        segment, position = place
        if not segment.loaded:
            segment.load()
        limit = position + max_bytes
        cut = max(segment.offsets.boundary(limit), position)
        wanted = ENTRY_PREFIX
        if cut == position or (limit - cut) * WALK_WORTHWHILE > max_bytes:
            wanted += max(min(segment.interval_bytes, limit - cut), 0)
        window = segment.file.pread(min(wanted, stop - cut), cut)
        at, room = 0, limit - cut
        while True:
            if len(window) - at < ENTRY_PREFIX:
                if (room - at) * WALK_WORTHWHILE <= max_bytes or cut + at >= stop:
                    break
                cut, room, at = cut + at, room - at, 0
                window = segment.file.pread(min(PIECE_BYTES, stop - cut), cut)
                if len(window) < ENTRY_PREFIX:
                    break
            size = INT32.unpack_from(window, at + LENGTH_POSITION)[0] + ENTRY_OVERHEAD
            if size < SMALLEST_ENTRY:
                raise CorruptBatch(f"{segment.path()}: no batch at position {cut + at}")
            if at + size > room:
                if cut == position and at == 0 and at_least_one:
                    at = size  # a first batch that is too large goes alone
                break
            at += size
        cut += at
        if position < cut < stop:
            head = window[at : at + 8] if len(window) - at >= 8 else segment.file.pread(8, cut)
            self.remember(INT64.unpack(head)[0], segment, cut)
        return min(cut, stop)
