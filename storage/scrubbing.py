"""Reading sealed segments again, to find what a disk has spoilt before a reader or a restore does.

Recovery reads what was written last, `triglot check` a broker that is stopped. In between nobody
would look at old data for years. Entries are read with their checksums, and their headers are
looked at between their neighbours, which is where the offsets show that no checksum covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.chain import Chain, Damage, Segmented

if TYPE_CHECKING:
    from storage.filesystem import File, Filesystem
    from storage.segment import Segment

STEP_BYTES = 16 * 1024 * 1024
"""Read in one step, but for an entry that is larger."""


class Scrub:
    """The reading of one sealed segment. `step` may be taken in any thread, one at a time.

    `position` is how far it has come, `damages` what it has found.
    """

    __slots__ = ("_chain", "_end", "damages", "segment")

    def __init__(self, files: Filesystem, segment: Segment) -> None:
        """Raises OSError. The file is its own: readers may let go of theirs meanwhile."""
        self.segment = segment
        self.damages: list[Damage] = []
        self._end = segment.byte_size()
        file: File = files.open_to_read(segment.path())
        verified = segment.verified
        self._chain = Chain(
            Segmented(
                file, segment.base_offset, self._end, verified.next_base, verified.epochs.copy()
            ),
            checked_from=segment.base_offset,
        )

    @property
    def position(self) -> int:
        return self._chain.position

    @property
    def done(self) -> bool:
        return self.position >= self._end

    def step(self) -> int:
        """Read on. Returns the bytes read. Raises OSError."""
        chain = self._chain
        begun_at = chain.position
        while chain.position < self._end and chain.position - begun_at < STEP_BYTES:
            found = chain.step()
            if isinstance(found, Damage):
                self.damages.append(found)
        return chain.position - begun_at
