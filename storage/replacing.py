"""Putting what compaction wrote in the place of a living log's segments.

    commit   any thread     the `.cleaned` names are on the disk, then the file that says what
                            they replace: from then on a start finds all new segments
    swap     the log's own  .cleaned -> .swap      the .log last
                            sources  -> .deleted   oldest first
                            .swap    -> final      the .log first
    finish   any thread     the folder is synced, the file removed, then the `.deleted` ones

Whatever of the renames a crash keeps, `storage.swaps` finishes them at the start. Their order is
the one that Apache Kafka finishes too, as far as the disk keeps to it. No sync is waited for while
the log has its old segments in memory and new ones on the disk.

Offsets that are missing between two segments are believed only below the recovery point of the
checkpoint (`storage.recovery.LastKnown`). So that has to be past the sources, on the disk, before
they are replaced: `cover_sealed`, a sync of the log, and `DataDirectory.checkpoint_gaps`, which
also notes up to where a gap is compaction's doing and not a segment that somebody removed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage.closing import Cover
from storage.errors import LogFailed
from storage.layout import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    REPLACEMENT,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    file_name,
)
from storage.segment import Segment
from storage.swaps import Replacement, forget_replacement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.cleaning.cleaning import CleanedGroup
    from storage.filesystem import Filesystem
    from storage.log import Log


def cover_sealed(log: Log) -> None:
    """Have the log's next sync bring the point that a checkpoint may note past all sealed segments.

    Their files, indexes and names come before in that sync, if they are not on the disk already.
    """
    if log.covered_point < log.active.base_offset:
        log.sync_next(Cover(log, log.active.base_offset, []))


class Replacing:
    """One group on its way into a log: `commit`, `swap`, `finish`, or `retract` before `swap`."""

    __slots__ = (
        "_deleted", "_files", "_folder", "_group", "_is_head", "_is_stuck", "_log", "_suffixes",
    )  # fmt: skip

    def __init__(self, log: Log, group: CleanedGroup) -> None:
        self._log = log
        self._files = log.files
        self._folder = log.folder
        self._group = group
        # An emptied head leaves a segment without records, which keeps the log's first offset.
        self._is_head = log.segments[0].base_offset == group.sources[0]
        self._is_stuck = False
        self._suffixes: list[str] = []
        self._deleted: list[str] = []

    def is_possible(self) -> bool:
        """Whether all sources are still there, one after the other and all of them sealed, and the
        log keeps its first offset."""
        bases, sources = self._log.segments.base_offsets, self._group.sources
        if self._log.failed is not None or sources[0] not in bases:
            return False
        first = bases.index(sources[0])
        end = first + len(sources)
        if self._group.empty and first == 0 and not self._is_head:
            return False  # what was before it has gone meanwhile: it has to leave a segment now
        return end < len(bases) and bases[first:end] == sources

    def _path(self, suffix: str) -> str:
        return f"{self._folder}/{file_name(self._group.base_offset, suffix)}"

    def commit(self) -> None:
        """Decide for the new segment, durably. Any thread. Raises OSError."""
        group, files = self._group, self._files
        if group.empty:
            discard(files, self._folder, [group.base_offset])
            if self._is_head:
                for suffix in (INDEX, TIME_INDEX, LOG):
                    files.open_file(self._path(suffix) + CLEANED, create=True).close()
        self._suffixes = [
            one for one in SEGMENT_SUFFIXES if files.exists(self._path(one) + CLEANED)
        ]
        if self._suffixes:
            files.set_modified_ms(self._path(LOG) + CLEANED, group.modified_ms)
        files.sync_dir(self._folder)
        decided = Replacement(
            group.sources,
            {one: files.size_of(self._path(one) + CLEANED) for one in self._suffixes},
        )
        files.write_atomic(f"{self._folder}/{REPLACEMENT}", decided.encode())

    def swap(self) -> None:
        """Rename the files and put the new segment into the log, on the log's own thread.

        Raises StorageError with everything as it was, unless that could not be undone and the log
        has failed; then the next start finishes it.
        """
        log, group = self._log, self._group
        renames = _Renames(self._files, self._folder)
        try:
            renames.rename(group.base_offset, reversed(self._suffixes), CLEANED, SWAP)
            for base in group.sources:
                stays = self._suffixes and base == group.base_offset
                suffixes = SEGMENT_SUFFIXES if stays else (*SEGMENT_SUFFIXES, SNAPSHOT)
                renames.rename(base, suffixes, "", DELETED)
            renames.rename(group.base_offset, self._suffixes, SWAP, "")
        except OSError as error:
            where = f"{log.name}: replacing segments {group.sources[0]}..{group.sources[-1]}"
            try:
                renames.undo()
            except OSError as second:
                reason = f"{where} failed ({error}) and could not be undone ({second})"
                log.fail(reason)
                self._is_stuck = True
                raise LogFailed(reason) from error
            raise log.refuse(where, error) from error
        replacement = None
        if self._suffixes:
            replacement = Segment(
                log.files, log.folder, group.base_offset, interval_bytes=log.index_interval_bytes
            )
        for segment in log.segments.replace(group.sources, replacement):
            segment.unload()
        log.clean_state = None
        self._deleted = renames.deleted

    def finish(self) -> None:
        """Make the swap last and remove the sources' files. Any thread. Raises OSError.

        Readers that hold slices of them are not disturbed by that.
        """
        forget_replacement(self._files, self._folder)
        for path in self._deleted:
            with suppress(OSError):  # the next start removes it
                self._files.remove(path)

    def retract(self) -> None:
        """Decide against it, and remove the `.cleaned` files. Any thread.

        If the disk does not let us, it stays decided, and the next start replaces the segments. So
        it does after a swap that could not be undone.
        """
        if self._is_stuck:
            return
        with suppress(OSError):
            forget_replacement(self._files, self._folder)
            discard(self._files, self._folder, [self._group.base_offset])


def discard(files: Filesystem, folder: str, bases: Iterable[int]) -> None:
    """Remove the `.cleaned` files of these bases, as far as the disk lets us."""
    for base in bases:
        for suffix in SEGMENT_SUFFIXES:
            with suppress(OSError):
                files.remove(f"{folder}/{file_name(base, suffix)}{CLEANED}")


def discard_all(files: Filesystem, folder: str) -> None:
    """Remove all that a cleaning, which is no longer under way, left behind in a log's folder.

    Raises OSError if there is a decision left that could be taken for one on the next output.
    """
    forget_replacement(files, folder)
    for name in files.list_dir(folder):
        if name.endswith(CLEANED):
            with suppress(OSError):
                files.remove(f"{folder}/{name}")


class _Renames:
    """Renames that can be taken back in the order of their coming."""

    __slots__ = ("_done", "_files", "_folder", "deleted")

    def __init__(self, files: Filesystem, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._done: list[tuple[str, str]] = []
        self.deleted: list[str] = []
        """Paths that now end in `.deleted`."""

    def rename(self, base: int, suffixes: Iterable[str], before: str, after: str) -> None:
        """Rename those files of one segment that there are."""
        for suffix in suffixes:
            path = f"{self._folder}/{file_name(base, suffix)}"
            old, new = path + before, path + after
            if not self._files.exists(old):
                continue
            self._files.rename(old, new)
            self._done.append((old, new))
            if after == DELETED:
                self.deleted.append(new)

    def undo(self) -> None:
        """Raises OSError, and the rest is as it was renamed."""
        while self._done:
            old, new = self._done[-1]
            self._files.rename(new, old)
            del self._done[-1]
