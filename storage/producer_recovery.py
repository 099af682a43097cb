"""The recovery of producers and aborted transactions, from snapshots, indexes and batches.

Of the producers the newest snapshot tells, and the batches after it. No snapshot means that the
whole log is read, never that there are no producers: a transaction that is still open would be
shown to readers of committed records.

Of aborted transactions the files of the segments tell, up to the recovery point; what is above may
not have reached the disk, or comes from batches that were cut. It is made anew from the markers.

Whatever may not have been synced is read from the disk: the last process may have ended because a
sync failed, and then the kernel's cache shows what no later sync will put there.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.layout import LARGEST_OFFSET, SNAPSHOT, TRANSACTION_INDEX, file_name, offset_of
from storage.producer_scan import newest_snapshot, scan_producers
from storage.rolling import store_snapshot, write_snapshot
from storage.syncing import SyncFile
from storage.transaction_index import (
    ENTRY_SIZE,
    TransactionIndex,
    decode_whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.errors import MalformedFile
    from storage.filesystem import Filesystem
    from storage.producers import ProducerStates
    from storage.segment import Segment
    from storage.transaction_index import AbortedTransaction

TEMPORARY_SNAPSHOT = f"start{SNAPSHOT}.tmp"
"""Name of a start's snapshot until it is on the disk. It is always the same, for a start that is
killed before that leaves it to the next."""
SNAPSHOTS_MADE = 2
"""Snapshots that are made up for while the log is read: at the bases of its last segments, as with
Kafka. Without them a log that crashes once more would be read as far again."""


class Remade:
    """A transaction index of which only what lies below `start` is taken from its file."""

    __slots__ = ("_data", "index", "segment", "start")

    def __init__(self, segment: Segment, data: bytes | None, point: int) -> None:
        self.segment = segment
        self._data = data
        self.start = point
        self.index = TransactionIndex(decode_whole(data or b"", segment.base_offset))
        whole = len(self.index) * ENTRY_SIZE == len(data or b"")
        if not whole or self.index.count_below(point) < len(self.index):
            # What cannot be an entry may stand in the place of one below the point, and one above
            # it may belong below: a wrong bit moves a marker.
            self.start = segment.base_offset
        self.index.cut_from(self.start)

    def store(self) -> None:
        if (self.index.encode() or None) != self._data:
            self.segment.replace_aborted(self.index)


class PutSnapshot:
    """Puts a snapshot that was written under another name in place, whole. If the disk refuses, or
    the topic was deleted, there is none: the next start reads more."""

    __slots__ = ("_files", "_path", "_temporary")

    def __init__(self, files: Filesystem, temporary: str, path: str) -> None:
        self._files = files
        self._temporary = temporary
        self._path = path

    def sync(self) -> None:
        with suppress(OSError):
            SyncFile(self._files, self._temporary).sync()
            self._files.rename(self._temporary, self._path)


class ProducerRecovery:
    """The steps by which a start learns of a log's producers and aborted transactions."""

    def __init__(
        self,
        files: Filesystem,
        folder: str,
        segments: list[Segment],
        malformed: Callable[[str, MalformedFile], None],
    ) -> None:
        self._files = files
        self._folder = folder
        self._segments = segments
        self._malformed = malformed
        self._remade: dict[int, Remade] = {}
        self._needed_from = LARGEST_OFFSET
        self.unsynced: list[str] = []
        """Paths of files that are still to be synced. If only the process died, what it wrote can
        be read, and need not be on the disk."""
        self.snapshot: PutSnapshot | None = None
        """Puts the one more in place, before the folder is synced."""

    def believe_below(self, segment: Segment, point: int, *, markers_from: int) -> None:
        """Take what a segment's transaction index says of offsets below `point`, and make the rest
        anew; the first marker at or above it is at `markers_from`."""
        data: bytes | None = None
        path = segment.path(TRANSACTION_INDEX)
        with suppress(FileNotFoundError):
            self._forget_cached(path)
            data = self._files.read_bytes(path)
        remade = self._remade[segment.base_offset] = Remade(segment, data, point)
        if remade.start < point:
            markers_from = remade.start
        self._needed_from = min(self._needed_from, markers_from)

    def make_anew(self, base_offset: int) -> None:
        """Make the whole transaction index of this segment anew: its file has gone."""
        for segment in self._segments:
            if segment.base_offset == base_offset:
                self._remade[base_offset] = Remade(segment, None, base_offset)
                self._needed_from = min(self._needed_from, base_offset)

    def run(self, names: list[str], next_offset: int, *, keep_at: int = -1) -> ProducerStates:
        """The producers as of `next_offset`; transaction indexes are stored. Raises OSError.

        Batches at or above the offset `keep_at` may be sent again, and a snapshot has the last
        batch of a producer alone: so one from below it is begun with, or, where there is none, the
        first segment. One more, of just that offset, is to be put in place, so that the next start
        need not read again what this one has.
        """
        offsets = {offset for name in names if (offset := offset_of(name, SNAPSHOT)) is not None}
        unsynced = self._unsynced_of(offsets, next_offset)
        for offset in unsynced:
            with suppress(FileNotFoundError):  # the names are of before the tail was cut
                self._forget_cached(self._snapshot_path(offset))
        # A snapshot may outlive its segment in a crash. What came after it has gone with the
        # segment: markers that ended its transactions, batches that its producers went on from.
        first, last = self._segments[0].base_offset, min(next_offset, self._needed_from)
        useful = [offset for offset in offsets if first <= offset <= last]
        if keep_at >= 0:
            useful = [offset for offset in useful if offset <= max(keep_at, first)]
        producers, offset = newest_snapshot(self._files, self._folder, useful, self._spoilt)
        self._look_through(unsynced, offset)
        used = offset
        if offset < 0:
            # Below the log's start, too: who wrote what was deleted goes on, and may send it again.
            offset = first
        if offset < next_offset:
            bases = {segment.base_offset for segment in self._segments[-SNAPSHOTS_MADE:]}
            bases -= {base for base in offsets if self._files.exists(self._snapshot_path(base))}

            def entered(segment: Segment) -> None:
                if segment.base_offset in bases and segment.base_offset > first:
                    self._store_snapshot(segment.base_offset, producers)

            if offset < keep_at <= next_offset:
                self._enter_all(producers, offset, entered, keep_at)
                self._keep(keep_at, producers, offsets - {used, keep_at})
                offset = keep_at
            self._enter_all(producers, offset, entered)
        producers.settle()
        for remade in self._remade.values():
            remade.store()
            if remade.index:
                self.unsynced.append(remade.segment.path(TRANSACTION_INDEX))
        return producers

    def _unsynced_of(self, offsets: set[int], next_offset: int) -> list[int]:
        """The offsets of the snapshots that may not be on the disk."""
        unsynced_from = min(self._remade, default=LARGEST_OFFSET)
        return sorted(offset for offset in offsets if unsynced_from <= offset <= next_offset)

    def _look_through(self, unsynced: list[int], newest: int) -> None:
        """Remove snapshots that a crash tore, for a later start would stumble over them, and have
        the others synced: the recovery point is about to pass them."""
        for offset in unsynced:
            if offset != newest:
                newest_snapshot(self._files, self._folder, [offset], self._spoilt)
            path = self._snapshot_path(offset)
            if self._files.exists(path):
                self.unsynced.append(path)

    def _snapshot_path(self, offset: int) -> str:
        return f"{self._folder}/{file_name(offset, SNAPSHOT)}"

    def _forget_cached(self, path: str) -> None:
        """Have a file read from the disk. Raises OSError."""
        file = self._files.open_to_read(path)
        try:
            file.reread(0)
        finally:
            file.close()

    def _enter_all(
        self,
        producers: ProducerStates,
        offset: int,
        entered: Callable[[Segment], None],
        end_offset: int = LARGEST_OFFSET,
    ) -> None:
        segments = self._segments
        for aborted in scan_producers(producers, segments, offset, entered, end_offset=end_offset):
            self._enter(aborted)

    def _enter(self, aborted: AbortedTransaction) -> None:
        bases = [segment.base_offset for segment in self._segments]
        number = bisect_right(bases, aborted.last_offset) - 1
        remade = self._remade.get(bases[number])
        if remade is not None and aborted.last_offset >= remade.start:
            remade.index.add(aborted)

    def _spoilt(self, name: str, error: MalformedFile) -> None:
        self._malformed(name, error)
        self._files.remove(f"{self._folder}/{name}")

    def _keep(self, offset: int, producers: ProducerStates, superseded: set[int]) -> None:
        bases = {segment.base_offset for segment in self._segments}
        temporary = f"{self._folder}/{TEMPORARY_SNAPSHOT}"
        with suppress(OSError):  # a full disk: the next start will read as much as this one
            for other in superseded - bases:
                self._files.remove(self._snapshot_path(other))
            write_snapshot(self._files, temporary, producers)
            self.snapshot = PutSnapshot(self._files, temporary, self._snapshot_path(offset))

    def _store_snapshot(self, offset: int, producers: ProducerStates) -> None:
        with suppress(OSError):  # a full disk: the next start will read as much as this one
            store_snapshot(self._files, self._folder, offset, producers)
            self.unsynced.append(self._snapshot_path(offset))
