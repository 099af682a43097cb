"""Writing of snapshots of shards, beside the running broker and when it stops.

While it runs, a shard is due by the rules of the metadata log's snapshots (KIP-630): when so many
bytes have been appended since the last one (metadata.log.max.record.bytes.between.snapshots,
divided among the shards), when something has waited for an hour to be part of one
(metadata.log.max.snapshot.interval.ms), and when compaction has gone past it. What is in memory is
shared with a thread as it is at that moment (`ShardState.share`); the loop goes on with copies of
what it changes. The file is written when the log is on the disk up to there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker import logs
from broker.coordinator.loading.loads import AT_ONCE_BYTES
from broker.workers import Worker
from storage.metadata.snapshot_rules import SnapshotRules, snapshot_due

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.coordinator.shard import Shard
    from broker.current_settings import CurrentSettings
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition
    from broker.producing.group_commit import GroupCommit
    from storage.log import Log
    from storage.syncing import RunAll

LOOK_EVERY_S = 5.0
LEAST_BYTES = 1024 * 1024
"""A shard is not due before it has so many new bytes: a start replays them in 40 ms."""
STOP_BYTES = 64 * 1024
"""New bytes from which on a stop writes a snapshot of a shard: a start replays less in 2 ms."""
RETRY_MS = 60_000
"""A shard waits for so long after its snapshot could not be written."""


class Snapshotting:
    """Writes one snapshot at a time. Belongs to the loop.

    `shards` may be filled later. `now_ms` is monotonic, `wall_ms` since 1970.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        shards: list[Shard],
        settings: CurrentSettings,
        disk: DiskState,
        group_commit: GroupCommit,
        side_by_side: RunAll,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self._shards = shards
        self._settings = settings
        self._disk = disk
        self._group_commit = group_commit
        self._side_by_side = side_by_side
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._worker = Worker(loop, "snapshot")
        self._busy: tuple[Shard, Log, int] | None = None
        """The shard that is at work, its log, and its new bytes."""
        self._stopped = False
        self._not_before_ms: dict[Partition, int] = {}
        self.written = 0

    def look(self) -> None:
        """Write the snapshots that are due, one after the other."""
        if self._busy or self._stopped or self._disk.full:
            return
        if not all(shard.loaded or shard.partition.led_elsewhere for shard in self._shards):
            return
        for shard in self._shards:
            if shard.loaded and self._is_due(shard) and self._begin(shard):
                return

    def is_at_work_on(self, log: Log) -> bool:
        """Whether a snapshot of it is being written. May be asked on any thread."""
        busy = self._busy
        return busy is not None and busy[1] is log and not self._stopped

    def _is_due(self, shard: Shard) -> bool:
        snapshots, settings = shard.snapshots, self._settings.current
        now_ms = self._now_ms()
        if not snapshots.bytes_since or now_ms < self._not_before_ms.get(shard.partition, 0):
            return False
        share = settings.metadata_log_max_record_bytes_between_snapshots
        rules = SnapshotRules(
            max_bytes=max(share // len(self._shards), LEAST_BYTES),
            max_interval_ms=settings.metadata_log_max_snapshot_interval_ms,
        )
        due = snapshot_due(1, snapshots.bytes_since, snapshots.last_ms, now_ms, rules)
        cleaned_to, latest = shard.partition.log.cleaned_to, snapshots.latest
        is_passed = latest is not None and (cleaned_to or 0) > latest.end_offset
        return is_passed or due is not None

    def _begin(self, shard: Shard) -> bool:
        """Begin to write one; False if there is nothing to write."""
        job = self._job(shard)
        if job is None:
            return False
        size, shard.snapshots.bytes_since = shard.snapshots.bytes_since, 0
        log = shard.partition.log
        self._busy = shard, log, size

        def wrote(error: Exception | None) -> None:
            self._busy = None
            shard.state.offsets.unshare()
            if error is not None:
                shard.snapshots.bytes_since += size
                self._not_before_ms[shard.partition] = self._now_ms() + RETRY_MS
                self._failed(shard, error)
            self.look()

        def synced(failed: dict[Log, str]) -> None:
            reason = failed.get(log)
            if reason is None and shard.loaded and not self._stopped:
                self._worker.run(job, wrote)
            else:
                wrote(OSError(reason or "the broker stops, or another process leads it"))

        self._group_commit.wait([log], synced)
        return True

    def _job(self, shard: Shard) -> Callable[[], Exception | None] | None:
        """A call that writes a snapshot of the shard as it is now; None if there is nothing new."""
        snapshots, now_ms = shard.snapshots, self._wall_ms()
        snapshot_id = snapshots.next_id()
        if snapshot_id is None:
            return None
        origin = snapshots.origin(snapshot_id.end_offset)
        state = shard.state.share()
        snapshots.last_ms = self._now_ms()

        def write() -> Exception | None:
            try:
                snapshots.write(snapshot_id, origin, state, now_ms=now_ms)
            except Exception as error:  # whatever it is, the log has everything
                return error
            self.written += 1
            return None

        return write

    def _failed(self, shard: Shard, error: Exception) -> None:
        if self._stopped or not shard.loaded or self._disk.noticed(error):
            return
        log = shard.partition.log.name
        if isinstance(error, OSError):
            logs.error_once_a_minute("a snapshot of groups was not written", str(error), log)
        else:
            logs.fault_once_a_minute("a snapshot of groups was not written", error, log)

    def stop(self) -> None:
        """Finish the one that is being written, and begin no other."""
        self._stopped = True
        self._worker.stop()

    def write_all(self) -> None:
        """Write snapshots of all shards with something new, for the next start. After `stop`, when
        nothing is appended any more; does nothing if so little is new that a start is as quick."""
        if self._busy is not None:  # whether it was written is not known any more
            shard, _, size = self._busy
            shard.snapshots.bytes_since += size
        shards = [shard for shard in self._shards if shard.loaded]
        if self._disk.full or sum(map(_bytes_since, shards)) <= AT_ONCE_BYTES:
            return
        due = [shard for shard in shards if _bytes_since(shard) >= STOP_BYTES]
        jobs = [(shard, job) for shard in due if (job := self._job(shard)) is not None]
        failures: list[tuple[Shard, Exception]] = []

        def run(shard: Shard, job: Callable[[], Exception | None]) -> None:
            error = job()
            if error is not None:
                failures.append((shard, error))

        self._side_by_side([partial(run, shard, job) for shard, job in jobs])
        if failures:
            shard, error = failures[0]
            logs.warning(
                "snapshots of groups were not written",
                count=len(failures),
                log=shard.partition.log.name,
                reason=str(error),
            )


def _bytes_since(shard: Shard) -> int:
    return shard.snapshots.bytes_since
