"""Reading sealed segments again, to find what a disk has spoilt before a reader or a restore does.

Recovery reads what was written last, `triglot check` a broker that is stopped. In between nobody
would look at old data for years. Entries are read with their checksums and the order of their
offsets, which the checksums do not cover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.scan import Scan

if TYPE_CHECKING:
    from storage.filesystem import File, Filesystem
    from storage.segment import Segment

STEP_BYTES = 16 * 1024 * 1024
"""Read in one step, but for an entry that is larger."""


class Scrub:
    """The reading of one sealed segment. `step` may be taken in any thread, one at a time.

    `position` is how far it has come, `trouble` the sentence about what lies there, if it is no
    whole entry.
    """

    __slots__ = ("_end", "_file", "_last_offset", "position", "segment", "trouble")

    def __init__(self, files: Filesystem, segment: Segment) -> None:
        """Raises OSError. The file is its own: readers may let go of theirs meanwhile."""
        self.segment = segment
        self._file: File = files.open_to_read(segment.path())
        self._end = segment.byte_size()
        self._last_offset = segment.base_offset - 1
        self.position = 0
        self.trouble: str | None = None

    @property
    def done(self) -> bool:
        return self.trouble is not None or self.position >= self._end

    def step(self) -> int:
        """Read on. Returns the bytes read. Raises OSError."""
        begun_at = self.position
        scan = Scan(self._file, begun_at, self._end, last_offset=self._last_offset, checked=True)
        for entry in scan:
            self._last_offset = entry.last_offset
            if entry.end - begun_at >= STEP_BYTES:
                break
        self.position, self.trouble = scan.position, scan.trouble
        return self.position - begun_at
