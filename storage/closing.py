"""Bringing a log's files into the state in which a start finds them most useful."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from storage.clean_state import CleanState
from storage.errors import StorageError
from storage.rolling import store_snapshot, thin_snapshots
from storage.syncing import SyncFolder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.log import Log
    from storage.syncing import RunAll, SyncStep

INDEX_LAG_ENTRIES = 64
"""Index entries that the active segment's files may lack at a checkpoint. The recovery point that
is noted stays behind with them: about 256 KiB of a log may be read again after a crash."""

TOGETHER_MAX = 256
"""Logs that a stop shuts down together; each holds some files open meanwhile."""


class Cover:
    """Syncs what `store_for_recovery` stored; then the log is covered up to that point.

    Whoever runs it on a thread hands an error to `failed` afterwards, on the log's own.
    """

    __slots__ = ("_files", "_point", "log")

    def __init__(self, log: Log, point: int, files: list[SyncStep]) -> None:
        self.log = log
        self._point = point
        self._files = files

    def sync(self) -> None:
        for file in self._files:
            file.sync()
        self.log.covered_point = max(self.log.covered_point, self._point)

    def failed(self, error: OSError) -> StorageError:
        """Hand the error to the log: unsynced bytes may be lost though the next sync succeeds."""
        return self.log.sync_failed(error)


class NotStored(Cover):
    """Stands for a Cover whose files could not even be written; that can be tried again."""

    __slots__ = ("_error",)

    def __init__(self, log: Log, error: OSError) -> None:
        super().__init__(log, -1, [])
        self._error = error

    def sync(self) -> None:
        raise self._error

    def failed(self, error: OSError) -> StorageError:
        return self.log.refuse(f"{self.log.name}: storing indexes", error)


def store_for_recovery(log: Log) -> list[Cover]:
    """Store a running log's index entries and a producer snapshot, if its files lag behind.

    With them a start after a crash need not read what lies below the recovery point. But it
    believes every index entry below that point, so the point that a checkpoint notes may only move
    when these files are on the disk: that is what the returned step sees to.
    """
    segment = log.active
    if log.failed or not segment.loaded or log.next_offset != log.written_offset:
        return []
    # Not what the files lack: recovery completes them, and the point still has to move.
    covered = segment.offsets.count_below(log.covered_point - segment.base_offset, segment.size)
    if len(segment.offsets) - covered < INDEX_LAG_ENTRIES:
        return []
    if log.recovery_point <= segment.base_offset:
        return []  # the indexes of the segment before may still wait for their sync
    try:
        # This snapshot is of use once the recovery point has passed it. Until then the one before
        # it is, so that one stays.
        thin_snapshots(log.files, log.folder, log.segments.base_offsets, keep=1)
        snapshot = store_snapshot(log.files, log.folder, log.next_offset, log.producers)
        files: list[SyncStep] = [*segment.store_indexes(), snapshot]
    except OSError as error:
        return [NotStored(log, error)]  # a start after a crash will read more, and find the same
    files.append(SyncFolder(log.files, log.folder))
    return [Cover(log, log.recovery_point, files)]


class CleanShutdown:
    """The clean shutdown of one log.

    Making it, and `state`, belong to the log's thread; `sync` may run in any, beside those of
    other logs. A log that was not touched since it was opened after a clean stop has nothing to do.
    """

    __slots__ = ("_error", "_log", "_refused", "_state", "_steps", "_up_to")

    def __init__(self, log: Log) -> None:
        """Write everything: see `Log.store_all`."""
        self._log = log
        self._state = log.clean_state
        self._steps: list[SyncStep] = []
        self._error: OSError | None = None
        self._refused = False
        self._up_to = log.written_offset
        if self._state is not None:
            return
        try:
            self._state = log.store_all()
            self._steps, self._up_to = log.unsynced()
        except (OSError, StorageError):
            self._refused = True

    def sync(self) -> None:
        """Return when it is all on the disk, or was refused."""
        try:
            for step in self._steps:
                step.sync()
        except OSError as error:
            self._error = error

    def state(self) -> CleanState | None:
        """The state of the last files; None if the disk refused."""
        log = self._log
        if self._refused:
            return None
        if self._error is not None:
            log.sync_failed(self._error)
            return None
        if self._steps:
            log.synced(self._up_to)
            log.covered_point = log.recovery_point
        return self._state


def close_all(logs: Iterable[Log], run_all: RunAll) -> dict[str, CleanState | None]:
    """Shut logs down cleanly and let go of their files. By name, what `Log.close` returns.

    Each needs half a dozen syncs, which cost least when those of many logs are under way at once.
    """
    states: dict[str, CleanState | None] = {}
    left = iter(logs)
    while some := list(islice(left, TOGETHER_MAX)):
        shutdowns = {log: CleanShutdown(log) for log in some if log.failed is None}
        run_all([shutdown.sync for shutdown in shutdowns.values()])
        for log in some:
            shutdown = shutdowns.get(log)
            states[log.name] = None if shutdown is None else shutdown.state()
            log.close(clean=False)
    return states
