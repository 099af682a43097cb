"""The segments, of all logs together, whose files are open or whose indexes are in memory.

An open file costs a descriptor, of which the process may have few, so files that were opened
longest ago are closed when there are too many; whoever needs one again opens it. A sealed segment
costs up to 5 MB of indexes besides: of these those go that were not used for longest. The indexes
of an active one are not in its files yet, and stay.

A file may be closed before what was written to it is synced: see `Segment.sync`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from storage.filesystem import SPARES
from storage.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from storage.time_index import ENTRY_SIZE as TIME_INDEX_ENTRY_SIZE

if TYPE_CHECKING:
    from collections.abc import Sized

    from storage.filesystem import File

OPEN_MAX = 1024
"""Sealed segments with an open file: enough for a search by time over a log of 1,000 segments."""

INDEX_BYTES_MAX = 32 * 1024 * 1024
"""Memory of their indexes; the last one used stays whatever it takes."""

FILES_MAX = 1_000_000
"""Open files in all, where nobody has said how many there may be."""


class Closable(Protocol):
    """A segment (`storage.segment.Segment`) as far as its files and its memory go."""

    @property
    def offsets(self) -> Sized:
        """The offset index."""

    @property
    def times(self) -> Sized:
        """The time index."""

    def holds(self, file: File) -> bool:
        """Whether this is the open log file."""

    def release_file(self) -> None:
        """Give back the file alone."""

    def unload(self) -> None:
        """Give back the file and the memory of the indexes."""


SegmentT = TypeVar("SegmentT", bound=Closable)


class OpenSegments(Generic[SegmentT]):
    """Belongs to the thread that all logs belong to.

    A busy active segment is not spared: its file is closed once while all others are opened, which
    costs less than to note each use.
    """

    __slots__ = ("_active", "_bytes", "_sealed", "files_max")

    def __init__(self) -> None:
        self._active: dict[SegmentT, None] = {}
        """Segments that were not `use`d, in the order in which they were opened."""
        self._sealed: dict[SegmentT, int] = {}
        """Memory of their indexes in bytes; the least recently used first."""
        self._bytes = 0
        self.files_max = FILES_MAX

    def __len__(self) -> int:
        return len(self._active) + len(self._sealed)

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
        size = len(segment.offsets) * INDEX_ENTRY_SIZE + len(segment.times) * TIME_INDEX_ENTRY_SIZE
        self._bytes += size - sealed.pop(segment, 0)
        sealed[segment] = size
        while len(sealed) > 1 and (len(sealed) > OPEN_MAX or self._bytes > INDEX_BYTES_MAX):
            next(iter(sealed)).unload()

    def forget(self, *gone: SegmentT) -> None:
        """Of segments that go away, or have given back their files."""
        for segment in gone:
            self._active.pop(segment, None)
            self._bytes -= self._sealed.pop(segment, 0)

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
