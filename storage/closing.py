"""Bringing a log's files into the state in which a start finds them most useful."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.clean_state import CleanState
from storage.errors import StorageError
from storage.layout import SNAPSHOT, file_name
from storage.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from storage.rolling import store_snapshot, thin_snapshots
from storage.syncing import SyncFolder
from storage.time_index import ENTRY_SIZE as TIME_INDEX_ENTRY_SIZE

if TYPE_CHECKING:
    from storage.log import Log
    from storage.syncing import SyncStep

INDEX_LAG_ENTRIES = 64
"""Index entries that the active segment's files may lack at a checkpoint. The recovery point that
is noted stays behind with them: about 256 KiB of a log may be read again after a crash."""


class Cover:
    """Syncs what `store_for_recovery` stored; then the log is covered up to that point."""

    __slots__ = ("_files", "_log", "_point")

    def __init__(self, log: Log, point: int, files: list[SyncStep]) -> None:
        self._log = log
        self._point = point
        self._files = files

    def sync(self) -> None:
        for file in self._files:
            file.sync()
        self._log.covered_point = max(self._log.covered_point, self._point)


def store_for_recovery(log: Log) -> list[SyncStep]:
    """Store a running log's index entries and a producer snapshot, if its files lag behind.

    With them a start after a crash need not read what lies below the recovery point. But it
    believes every index entry below that point, so the point that a checkpoint notes may only move
    when these files are on the disk: that is what the returned step sees to.
    """
    segment = log.active
    if log.failed or not segment.loaded or log.next_offset != log.written_offset:
        return []
    if len(segment.offsets) - segment.offsets.stored < INDEX_LAG_ENTRIES:
        return []
    if log.recovery_point <= segment.base_offset:
        return []  # the indexes of the segment before may still wait for the sync they are owed
    try:
        # This snapshot is of use once the recovery point has passed it. Until then the one before
        # it is, so that one stays.
        thin_snapshots(log.files, log.folder, log.segments.base_offsets, keep=1)
        snapshot = store_snapshot(log.files, log.folder, log.next_offset, log.producers)
        files: list[SyncStep] = [*segment.store_indexes(), snapshot]
    except OSError:
        return []  # a full disk: a start after a crash will read more, and find the same
    return [Cover(log, log.recovery_point, files), SyncFolder(log.files, log.folder)]


def bring_to_rest(log: Log) -> CleanState | None:
    """Write everything, complete the indexes, store producers and epochs, and sync it all.

    Returns what the last files look like then; None if the disk refused. A log that was not
    touched since it was opened after a clean stop is at rest already.
    """
    if log.clean_state is not None:
        return log.clean_state
    segment = log.active
    try:
        log.write()
        segment.load()
        segment.finish_times()
        log.owe(*segment.store_indexes())
        thin_snapshots(log.files, log.folder, log.segments.base_offsets, keep=0)
        snapshot = ""
        if log.next_offset:  # an empty log has none, as with Kafka
            snapshot = file_name(log.next_offset, SNAPSHOT)
            log.owe(store_snapshot(log.files, log.folder, log.next_offset, log.producers))
        if not log.epochs_stored:
            log.epochs.assign(log.leader_epoch, log.next_offset)
            log.store_epochs()
        log.owe(SyncFolder(log.files, log.folder))
        log.sync()
    except (OSError, StorageError):
        return None
    log.covered_point = log.recovery_point
    return CleanState(
        log.next_offset,
        segment.size,
        len(segment.offsets) * INDEX_ENTRY_SIZE,
        len(segment.times) * TIME_INDEX_ENTRY_SIZE,
        snapshot,
    )
