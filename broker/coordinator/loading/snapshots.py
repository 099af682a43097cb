"""The snapshots of one shard, in the folder of its partition.

A snapshot `<end offset>-<epoch>.checkpoint` holds what the log says below its end offset; the file
is like those of the metadata log (`storage.metadata.snapshots`), the records in it are ours
(`snapshot_records`). With it a start replays the log from the end offset on. It can always be done
without: one that does not fit the log is removed, with a line in the log of the broker.

It fits if the log has the batches it was made of. They may have been compacted since: that leaves
what they say as it is. Compaction of what comes *after* them may not: a tombstone there is gone
some day, and what it removed would be back. It leaves gaps between offsets, and so it is found
(`ShardLoader.has_gaps`). Batches that another process has cut off and replaced, under the same
offsets, have another epoch, or another timestamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.coordinator.loading.restoring import Restoring, UnusableSnapshot
from broker.coordinator.loading.snapshot_records import Origin, records_of
from protocol.records.errors import CorruptBatch
from storage.errors import OffsetOutOfRange
from storage.metadata.snapshots import (
    DamagedSnapshot,
    SnapshotId,
    Snapshots,
    SnapshotWriter,
    read_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.shard_state import ShardState, SharedState
    from storage.log import Log

UNKNOWN_MS = -1


class ShardSnapshots:
    """Finds, reads and writes them. One thread at a time may use it, but for `bytes_since`.

    bytes_since  bytes of batches after the latest snapshot, or since the log began
    last_ms      when that was, monotonic; not before the start
    """

    __slots__ = ("_log", "_snapshots", "_topic_id", "bytes_since", "last_ms")

    def __init__(self, log: Log, topic_id: bytes) -> None:
        self._log = log
        self._topic_id = topic_id
        self._snapshots: Snapshots | None = None
        self.bytes_since = 0
        self.last_ms = 0

    @property
    def latest(self) -> SnapshotId | None:
        """The one that a start would use."""
        return None if self._snapshots is None else self._snapshots.latest

    def find(self) -> SnapshotId | None:
        """The newest one, if it fits the log as far as names tell. All others are removed, also
        what a stop has left unfinished. For the loop, before the shard is loaded."""
        log = self._log
        try:
            self._snapshots = snapshots = Snapshots(log.files, log.folder)
            snapshots.tidy()
            for old in snapshots.ids[:-1]:
                snapshots.remove_removed(snapshots.remove(old))
        except OSError as error:
            logs.warning("snapshots of groups can't be used", log=log.name, reason=str(error))
            return None
        latest = snapshots.latest
        if latest is None:
            return None
        reason = self._misfit(latest)
        if reason is None:
            return latest
        self.reject(latest, reason)
        return None

    def _misfit(self, found: SnapshotId) -> str | None:
        log, end_offset = self._log, found.end_offset
        if not log.start_offset <= end_offset <= log.written_offset or not end_offset:
            return f"the log has the offsets {log.start_offset} to {log.written_offset}"
        epoch = log.epochs.epoch_of(end_offset - 1)
        if epoch != found.epoch:
            return f"offset {end_offset - 1} of the log has the leader epoch {epoch}"
        return None

    def origin(self, end_offset: int) -> Origin:
        """The source of a snapshot of this log up to an offset. Belongs to the loop, as the log."""
        log = self._log
        last_ms = UNKNOWN_MS
        try:
            entries = log.read_entries(end_offset - 1, 1)
        except (CorruptBatch, OffsetOutOfRange, OSError):
            entries = None
        if entries is not None and entries.entries[0].last_offset == end_offset - 1:
            last_ms = entries.entries[0].max_timestamp
        return Origin(self._topic_id, log.name, end_offset, last_ms)

    def read(
        self,
        found: SnapshotId,
        origin: Origin,
        state: ShardState,
        *,
        now_ms: int,
        is_stopped: Callable[[], bool],
    ) -> str | None:
        """Fill an empty state; None, or why the snapshot is of no use. For any thread.

        `now_ms` is monotonic: then the sessions of members begin.
        """
        log, restoring = self._log, Restoring(state, origin, now_ms=now_ms)
        try:
            for batch in read_snapshot(log.files, f"{log.folder}/{found.file_name}"):
                if is_stopped():
                    return "the broker stops"
                restoring.take(batch.records)
            restoring.finish()
        except DamagedSnapshot as error:
            return f"position {error.position}: {error.reason}"
        except (UnusableSnapshot, OSError) as error:
            return str(error)
        return None

    def reject(self, found: SnapshotId, reason: str) -> None:
        """A snapshot is of no use: say so, and remove it, so that it is not met again."""
        log = self._log
        logs.warning(
            "a snapshot of groups is not used", log=log.name, file=found.file_name, reason=reason
        )
        if log.failed is not None or self._snapshots is None:
            return  # it may have what the log has lost
        try:
            self._snapshots.remove_removed(self._snapshots.remove(found))
        except OSError as error:
            logs.warning("a snapshot was not removed", log=log.name, reason=str(error))

    def next_id(self) -> SnapshotId | None:
        """The snapshot that could be made now; None if there is nothing new, or no epoch."""
        log, end_offset = self._log, self._log.written_offset
        latest = self.latest
        if log.failed is not None or end_offset != log.next_offset or not end_offset:
            return None
        if latest is not None and latest.end_offset == end_offset:
            return None
        epoch = log.epochs.epoch_of(end_offset - 1)
        return SnapshotId(end_offset, epoch) if epoch >= 0 else None

    def write(
        self, snapshot_id: SnapshotId, origin: Origin, state: SharedState, *, now_ms: int
    ) -> None:
        """Write a snapshot, and remove the one before it. For any thread. `now_ms` is since 1970.

        Raises OSError, ValueError; then there is no new one.
        """
        log = self._log
        snapshots = self._snapshots
        if snapshots is None:
            snapshots = self._snapshots = Snapshots(log.files, log.folder)
        with SnapshotWriter(
            log.files,
            log.folder,
            snapshot_id,
            last_contained_ms=max(origin.last_ms, 0),
            unique=str(now_ms),
            now_ms=now_ms,
        ) as writer:
            for records in records_of(state, origin):
                writer.append(records)
            writer.finish()
        snapshots.add(snapshot_id)
        for old in [known for known in snapshots.ids if known != snapshot_id]:
            snapshots.remove_removed(snapshots.remove(old))
