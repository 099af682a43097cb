"""The segments, of all logs together, whose files are open or whose indexes are in memory.

An open file costs a descriptor, of which the process may have few, so files that were opened
longest ago are closed when there are too many; whoever needs one again opens it.

A full segment has up to 5 MB of indexes. The memory of all of them has one bound, and what was not
used for longest goes first: of a sealed segment all of it, of an active one what is not its end
(`storage.index_columns`), after it was appended to its files. An active segment is used when its
index grows, a sealed one when it is read. What cannot be written stays: where a disk refuses
index entries and takes appends, memory grows by 20 bytes per index interval.

A file may be closed before what was written to it is synced: see `Segment.sync`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from storage.filesystem import SPARES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.filesystem import File

OPEN_MAX = 1024
"""Sealed segments with an open file: enough for a search by time over a log of 1,000 segments."""

INDEX_BYTES_MAX = 29 * 1024 * 1024
"""Memory of indexes, with the pages of `storage.index_columns` 32 MiB; the last one used stays
whatever it takes, and less than 64 entries of an active segment are not counted."""

REFUSED_MAX = 16
"""Segments that are tried in vain for their memory before that is left for another time."""

FILES_MAX = 1_000_000
"""Open files in all, where nobody has said how many there may be."""


class Closable(Protocol):
    """A segment (`storage.segment.Segment`) as far as its files and its memory go."""

    def index_bytes(self) -> int:
        """Memory of the entries of its indexes."""

    def holds(self, file: File) -> bool:
        """Whether this is the open log file."""

    def release_file(self) -> None:
        """Give back the file alone."""

    def unload(self) -> None:
        """Give back the file and the memory of the indexes."""

    def give_back(self) -> bool:
        """Give back memory of the indexes; whether that was possible."""


SegmentT = TypeVar("SegmentT", bound=Closable)


class OpenSegments(Generic[SegmentT]):
    """Belongs to the thread that all logs belong to.

    A busy active segment is not spared: its file is closed once while all others are opened, which
    costs less than to note each use.
    """

    __slots__ = ("_active", "_bytes", "_indexes", "_sealed", "files_max")

    def __init__(self) -> None:
        self._active: dict[SegmentT, None] = {}
        """Segments that were not `use`d, in the order in which they were opened."""
        self._sealed: dict[SegmentT, None] = {}
        """Those that were; the least recently used first."""
        self._indexes: dict[SegmentT, int] = {}
        """Memory of their indexes in bytes; the least recently used first."""
        self._bytes = 0
        self.files_max = FILES_MAX

    def __len__(self) -> int:
        """Number of open files."""
        return len(self._active) + len(self._sealed)

    def __iter__(self) -> Iterator[SegmentT]:
        """The segments of which something is counted."""
        return iter({**self._active, **self._sealed, **self._indexes})

    @property
    def index_bytes(self) -> int:
        """Memory that the indexes take."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Whether opening another file closes one."""
        return len(self) >= self.files_max

    def opened(self, segment: SegmentT) -> None:
        """A segment has opened its file."""
        if segment not in self._sealed:
            self._active[segment] = None
        # A spare descriptor that was given up for it is taken back in the place of another file.
        while len(self) > 1 and (len(self) > self.files_max or not SPARES.refill()):
            self._close_one()

    def use(self, segment: SegmentT) -> None:
        """Keep what is open of a sealed segment, as the one used last."""
        sealed = self._sealed
        self._active.pop(segment, None)
        sealed.pop(segment, None)
        sealed[segment] = None
        while len(sealed) > 1 and len(sealed) > OPEN_MAX:
            next(iter(sealed)).unload()
        self.count(segment)

    def count(self, segment: SegmentT) -> None:
        """Count the memory of a segment's indexes, which have just been used."""
        size = segment.index_bytes()
        self._bytes += size - self._indexes.pop(segment, 0)
        self._indexes[segment] = size
        if self._bytes > INDEX_BYTES_MAX:
            self._make_room()

    def _make_room(self) -> None:
        indexes, refused = self._indexes, 0
        for _ in range(len(indexes) - 1):
            if self._bytes <= INDEX_BYTES_MAX or refused == REFUSED_MAX:
                break
            segment = next(iter(indexes))
            if segment.give_back():
                self._bytes -= indexes.pop(segment, 0)
            else:
                refused += 1
                indexes[segment] = indexes.pop(segment)

    def closed(self, segment: SegmentT) -> None:
        """A segment has given back its file."""
        self._active.pop(segment, None)
        self._sealed.pop(segment, None)

    def forget(self, *gone: SegmentT) -> None:
        """Of segments that go away, or have given back everything."""
        for segment in gone:
            self.closed(segment)
            self._bytes -= self._indexes.pop(segment, 0)

    def close_half(self) -> None:
        """Give back half of the descriptors."""
        for _ in range(len(self) // 2):
            self._close_one()

    def _close_one(self) -> None:
        sealed = self._sealed
        if len(sealed) > len(self._active):
            next(iter(sealed)).unload()
        else:
            next(iter(self._active)).release_file()

    def of_file(self, file: File) -> SegmentT | None:
        """The sealed segment that has this file open."""
        lately = reversed(self._sealed)
        return next((segment for segment in lately if segment.holds(file)), None)
