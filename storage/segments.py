"""The segments of one log, in order, and how to find a place in them quickly.

A consumer that reads in sequence asks for the offset after the batch it got last. Where that is
was seen when the last slice was cut, and is remembered; only a jump costs a search.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Protocol

from protocol.records.errors import CorruptBatch
from protocol.records.layout import (
    ENTRY_OVERHEAD,
    ENTRY_PREFIX,
    INT32,
    INT64,
    LENGTH_POSITION,
    MIN_ENTRY_LENGTH,
)
from storage.errors import RecordsMissing
from storage.layout import LARGEST_OFFSET
from storage.scan import PIECE_BYTES, Entry
from storage.segment import OPEN
from storage.transaction_index import NOTHING, TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.epochs import LeaderEpochs
    from storage.filesystem import File
    from storage.segment import Segment
    from storage.slices import FileSlice
    from storage.transaction_index import AbortedTransaction

PLACES_MAX = 64
"""Remembered (offset, position) pairs of a log: one for each consumer that reads in sequence."""

WALK_WORTHWHILE = 16
"""A read that ends at an index entry is filled up batch by batch only if the entry leaves more
than a sixteenth of the wanted bytes unused."""

SMALLEST_ENTRY = MIN_ENTRY_LENGTH + ENTRY_OVERHEAD

Place = tuple["Segment", int]
"""A segment and a position in its file."""


class Segments:
    """Never empty. The last segment is the active one; of the sealed ones few are kept open."""

    __slots__ = (
        "_aborting", "_all", "_bases", "_epochs", "_latest", "active", "gaps_below", "places",
    )  # fmt: skip

    def __init__(self, segments: list[Segment], epochs: LeaderEpochs) -> None:
        self._all = segments
        self._epochs = epochs
        for segment, following in pairwise(segments):
            segment.verified.sealed_before(following.base_offset)
        for segment in segments:
            segment.verified.epochs = epochs
        self._bases = [segment.base_offset for segment in segments]
        self._latest: list[int] | None = None
        self._aborting: list[Segment] | None = None
        self.active = segments[-1]
        self.gaps_below = LARGEST_OFFSET
        """Below this offset, offsets may be missing between two segments: compaction has been
        there, or another broker. Above it, they are missing because a segment is."""
        self.places: dict[int, Place] = {}
        """Place of the first batch at or above an offset, for offsets asked for lately."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> Segment:
        return self._all[index]

    def sealed(self) -> list[Segment]:
        """All but the active one."""
        return self._all[:-1]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._bases)

    def loaded_one(self, segment: Segment) -> Segment:
        """This segment with its indexes in memory."""
        segment.load()
        if segment is not self.active:
            OPEN.use(segment)
        return segment

    def reaching(self, timestamp_ms: int) -> Iterator[Segment]:
        """The segments that hold this timestamp or a later one, oldest first, loaded.

        Which is the first is known without a look at those before it.
        """
        sealed = self._all[:-1]
        for segment in sealed[self._first_reaching(timestamp_ms) :]:
            if segment.latest_ms() >= timestamp_ms:
                yield self.loaded_one(segment)
        if self.loaded_one(self.active).max_timestamp >= timestamp_ms:
            yield self.active

    def _first_reaching(self, timestamp_ms: int) -> int:
        """The number of the first sealed segment with this timestamp or a later one.

        The end of a time index has no checksum. If it is too low, it is most likely the segment
        before that has the timestamp, so that is compared with its log, once.
        """
        sealed = self._all[:-1]
        while True:
            latest = self._latest
            if latest is None:
                # The largest up to each, which rises although the segments' own need not.
                latest = list(accumulate((segment.latest_ms() for segment in sealed), max))
                self._latest = latest
            first = bisect_left(latest, timestamp_ms)
            if not first:
                return 0
            before = sealed[first - 1]
            if not before.dated_by_log:
                self.loaded_one(before)
            if before.latest_ms() < timestamp_ms:
                return first
            self._latest = None  # it has become larger

    def append(self, segment: Segment) -> None:
        """Add a new active segment; the one before it is sealed."""
        OPEN.use(self.active)
        self.active.verified.sealed_before(segment.base_offset)
        segment.verified.epochs = self._epochs
        self._all.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment
        self._changed()

    def _changed(self) -> None:
        self.places.clear()
        self._latest = self._aborting = None

    def pop_below(self, offset: int) -> Segment | None:
        """Take off the first segment if all its offsets lie below one; never the active one."""
        if len(self._all) < 2 or self._bases[1] > offset:
            return None
        segment = self._all.pop(0)
        del self._bases[0]
        OPEN.forget(segment)
        self._changed()
        return segment

    def replace(self, bases: list[int], replacement: Segment | None) -> list[Segment]:
        """Put one segment, or none, in the place of those with these bases, which follow each other
        and are sealed. Returns those that were replaced; their files are the caller's."""
        first = self._bases.index(bases[0])
        self.gaps_below = max(self.gaps_below, self._bases[first + len(bases)])
        replaced = self._all[first : first + len(bases)]
        assert [segment.base_offset for segment in replaced] == bases
        assert self.active not in replaced
        if replacement is not None:
            replacement.verified.epochs = self._epochs
            replacement.verified.sealed_before(self._bases[first + len(bases)])
        self._all[first : first + len(bases)] = [] if replacement is None else [replacement]
        self._bases = [segment.base_offset for segment in self._all]
        for segment in replaced:
            OPEN.forget(segment)
        self._changed()
        return replaced

    def release_files(self) -> None:
        """Give back all files: the log is closed."""
        for segment in self._all:
            segment.release_file()
            OPEN.forget(segment)

    def keep_open(self, segment: Segment) -> None:
        """Keep a segment open that a reader comes back to; the active one is open anyway."""
        if segment is not self.active:
            OPEN.use(segment)

    def of_file(self, file: File) -> Segment | None:
        """The segment that has this file open; None if it has been let go of."""
        return self.active if self.active.holds(file) else OPEN.of_file(file)

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """The next sequential read asks for this offset: spare it the search."""
        places = self.places
        if len(places) >= PLACES_MAX and offset not in places:
            del places[next(iter(places))]
        places[offset] = (segment, position)

    def locate(self, offset: int) -> Place | None:
        """The segment and position of the first batch whose last offset is at or above `offset`, or
        of the damage in which it may have been.

        After compaction a segment may end before the next one begins, so the search goes on.
        Raises RecordsMissing if it ends there for another reason.
        """
        first = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self._all[first:]:
            if segment.base_offset > max(offset, self.gaps_below) and segment is not self._all[0]:
                raise RecordsMissing(
                    f"{segment.path()}: the segment before it is missing, or its end is"
                )
            self.keep_open(segment)
            if not segment.byte_size():
                continue
            if offset <= segment.base_offset:
                return segment, 0
            found = segment.find(offset)
            if isinstance(found, Entry):
                self.remember(offset, segment, found.position)
            if found is not None:
                return segment, found.position
        return None

    def with_aborted(self, offset: int) -> list[Segment]:
        """The segments in which a transaction may have been aborted by a marker at or above an
        offset, oldest first. Most logs have none, and do not pay for the question."""
        aborting = self._aborting
        if aborting is None:
            aborting = [segment for segment in self._all if segment.aborted is not NOTHING]
            self._aborting = aborting
        if not aborting:
            return aborting
        base = self._bases[max(bisect_right(self._bases, offset) - 1, 0)]
        return [segment for segment in aborting if segment.base_offset >= base]

    def add_aborted(self, entry: AbortedTransaction) -> None:
        """Enter a transaction whose marker is the last batch of the active segment."""
        segment = self.active
        if segment.aborted is NOTHING:
            segment.aborted = TransactionIndex()
            self._aborting = None
        assert segment.aborted is not None
        segment.aborted.add(entry)

    def offset_after(self, piece: FileSlice, end_offset: int) -> int:
        """An offset above all of a slice, by the index of its segment and not far above it; the
        log's `end_offset` if there is no other."""
        segment = self.of_file(piece.file)
        if segment is None:
            return end_offset
        known = segment.verified.offset_above(piece.end)
        if known is not None:
            return known
        relative = self.loaded_one(segment).offsets.offset_from(piece.end)
        if relative is not None:
            return segment.base_offset + relative
        after = bisect_right(self._bases, segment.base_offset)
        return self._bases[after] if after < len(self._bases) else end_offset

    def cut(self, place: Place, stop: int, max_bytes: int, *, at_least_one: bool) -> int:
        """End of a slice from a place: after a whole batch, and not beyond `stop`.

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


class SegmentedLog(Protocol):
    """A log (`storage.log.Log`) as far as its segments and its bounds go."""

    segments: Segments
    start_offset: int
    written_offset: int
