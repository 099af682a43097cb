"""Which sealed segments have file and indexes at hand: few, counted over all logs together.

A log's active segment is always open once it was needed. A sealed one costs a descriptor and up to
5 MB of indexes, so those that were not used for longest are let go of when there are too many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from storage.time_index import ENTRY_SIZE as TIME_INDEX_ENTRY_SIZE

if TYPE_CHECKING:
    from storage.filesystem import File
    from storage.segment import Segment

OPEN_MAX = 1024
"""Sealed segments with an open file: enough for a search by time over a log of 1,000 segments."""

INDEX_BYTES_MAX = 32 * 1024 * 1024
"""Memory of their indexes; the last one used stays whatever it takes."""


class OpenSegments:
    """The least recently used go first. Belongs to the thread that all logs belong to."""

    __slots__ = ("_bytes", "_segments", "_sizes")

    def __init__(self) -> None:
        self._segments: dict[File, Segment] = {}
        self._sizes: dict[File, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def index_bytes(self) -> int:
        """Memory that the indexes take."""
        return self._bytes

    def use(self, segment: Segment) -> None:
        """Keep a sealed segment open, as the one used last."""
        file = segment.file
        segments, sizes = self._segments, self._sizes
        segments.pop(file, None)
        segments[file] = segment
        size = len(segment.offsets) * INDEX_ENTRY_SIZE + len(segment.times) * TIME_INDEX_ENTRY_SIZE
        self._bytes += size - sizes.get(file, 0)
        sizes[file] = size
        while len(segments) > 1 and (len(segments) > OPEN_MAX or self._bytes > INDEX_BYTES_MAX):
            oldest = next(iter(segments))
            segments.pop(oldest).unload()
            self._bytes -= sizes.pop(oldest)

    def forget(self, *gone: Segment) -> None:
        """Of segments that go away: their files would stay open, and keep their room."""
        serials = {segment.serial for segment in gone}
        for file in [file for file, known in self._segments.items() if known.serial in serials]:
            del self._segments[file]
            self._bytes -= self._sizes.pop(file)

    def of_file(self, file: File) -> Segment | None:
        """The segment that has this file open."""
        segment = self._segments.get(file)
        return segment if segment is not None and segment.holds(file) else None


OPEN = OpenSegments()
"""Those of this process."""
