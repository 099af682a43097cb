"""Segments that have left their log, and the way their files go.

    1  the log start above them is in its checkpoint, on the disk
    2  the segments are taken out of the log, on its own thread (`StartOffsets.take_out`)
    3  their files are renamed to `.deleted`, oldest first, and the folder is synced
    4  the checkpoint need not tell of that log start any more (`StartOffsets.has_left`)
    5  later the files are removed; if nobody does, the next start will

So whatever a crash leaves, no deleted record comes back. The oldest go first, each with its `.log`
before the rest: what is left is a whole log from some segment on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.layout import DELETED, SEGMENT_SUFFIXES, SNAPSHOT

if TYPE_CHECKING:
    from storage.log import Log
    from storage.segment import Segment


class Removal:
    """The files of some segments of one partition. Any thread may take its steps, one at a time.

    Slices of them that are being sent keep what they need.
    """

    __slots__ = ("_files", "_folder", "_names", "_set_aside", "byte_size", "count", "partition")

    def __init__(self, partition: tuple[str, int], log: Log, segments: list[Segment]) -> None:
        self.partition = partition
        self.count = len(segments)
        self.byte_size = sum(max(segment.size, 0) for segment in segments)
        self._files = log.files
        self._folder = log.folder
        self._names = [
            segment.path(suffix) for segment in segments for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT)
        ]
        self._set_aside: list[str] = []
        for segment in segments:
            segment.unload()

    def set_aside(self) -> None:
        """Give the files names that a start clears away, durably. Raises OSError."""
        for name in self._names:
            try:
                self._files.rename(name, name + DELETED)
            except FileNotFoundError:
                continue  # not every segment has all of them
            self._set_aside.append(name + DELETED)
        self._files.sync_dir(self._folder)

    def remove(self) -> None:
        """Remove the files that were set aside. Raises OSError."""
        for name in self._set_aside:
            self._files.remove(name)
