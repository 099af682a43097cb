"""Raising log starts, for retention and for DeleteRecords.

First all that lies below a new start has to be on the disk, then the new starts themselves, in one
write for all of them; only then the logs start there, fetches below are told so, and segments
below leave their logs and their files go. Where the disk refuses, nothing has changed. None of it
happens on the loop but the bookkeeping: syncs and the checkpoint on the thread that syncs, renames
and removals on those that read.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from broker import logs
from storage.syncing import take_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition
    from broker.producing.group_commit import GroupCommit
    from broker.workers import Worker
    from storage.data_dir import DataDirectory
    from storage.log import Log
    from storage.removal import Removal
    from storage.syncing import SyncStep

    Failures = dict[Partition, str]
    Done = Callable[[Failures], None]


class LogStarts:
    """Belongs to the loop. One round at a time; what is asked for meanwhile makes up the next."""

    __slots__ = (
        "_directory", "_disk", "_group_commit", "_is_replacing", "_next", "_readers", "_relied_on",
        "_running", "_syncer", "deleted_bytes", "deleted_segments",
    )  # fmt: skip

    def __init__(
        self,
        directory: DataDirectory,
        disk: DiskState,
        group_commit: GroupCommit,
        *,
        syncer: Worker,
        readers: Worker,
        is_replacing: Callable[[Log], bool],
    ) -> None:
        """`is_replacing` tells whether compaction is replacing segments of a log, so that none may
        leave it."""
        self._directory = directory
        self._disk = disk
        self._group_commit = group_commit
        self._syncer = syncer
        self._readers = readers
        self._is_replacing = is_replacing
        self._running = False
        self._next: list[tuple[dict[Partition, int], Done]] = []
        self._relied_on: set[Log] = set()
        self.deleted_segments = self.deleted_bytes = 0
        """What has left the logs since the start, by retention and by requests, for the metrics."""

    def raise_to(
        self, starts: Mapping[Partition, int], done: Done, *, relied_on: Iterable[Log] = ()
    ) -> None:
        """Have logs start at these offsets (`Log.start_after_deletion`), durably; call `done` with
        those for which it failed, and why; then have the segments below go.

        The logs `relied_on` are synced before: of what they say now nothing may be lost later. If
        one of them fails, so does all of it.
        """
        self._next.append((dict(starts), done))
        self._relied_on.update(relied_on)
        if not self._running:
            self._begin()

    def _begin(self) -> None:
        asked, self._next = self._next, []
        relied_on, self._relied_on = self._relied_on, set()
        self._running = True
        starts: dict[Partition, int] = {}
        for wanted, _ in asked:
            for partition, start in wanted.items():
                starts[partition] = max(start, starts.get(partition, 0))

        def ended(failures: Failures) -> None:
            for wanted, done in asked:
                done({one: failures[one] for one in wanted if one in failures})
            self._running = False
            if self._next:
                self._begin()

        self._sync(starts, relied_on, ended)

    def _sync(self, starts: dict[Partition, int], relied_on: set[Log], ended: Done) -> None:
        def synced(failed: dict[Log, str]) -> None:
            failures = {one: failed[one.log] for one in starts if one.log in failed}
            for log in relied_on:
                if log in failed:
                    failures.update(dict.fromkeys(starts, failed[log]))
            for one, start in starts.items():
                # The sync was good, but the log failed meanwhile: not noted.
                if one.log.recovery_point < start and one.log.failed is not None:
                    failures.setdefault(one, one.log.failed)
            stored = {one: start for one, start in starts.items() if one not in failures}
            self._store(stored, failures, ended)

        # A start above what survives a crash would be ignored then, and a segment may only go when
        # the name of the next one is on the disk.
        behind = [one.log for one, start in starts.items() if one.log.recovery_point <= start]
        behind += [log for log in relied_on if log.recovery_point < log.written_offset]
        if behind:
            self._group_commit.wait(behind, synced)
        else:
            synced({})

    def _store(self, starts: dict[Partition, int], failures: Failures, ended: Done) -> None:
        if not starts:
            ended(failures)
            return
        known = self._directory.starts
        by_log = {one.log: start for one, start in starts.items()}
        step = known.announce(by_log)

        def taken(failed: list[tuple[SyncStep, OSError]]) -> None:
            known.settle(by_log, stored=not failed)
            for _, error in failed:
                if not self._disk.noticed(error):
                    logs.error("log starts not written", reason=str(error))
                failures.update(dict.fromkeys(starts, f"the log start was not stored: {error}"))
            if not failed:
                for one in starts:
                    one.wake_all()  # what a fetch waits for may lie below the log start
                self._take_out(starts)
            ended(failures)

        self._syncer.run(lambda: take_all([step]), taken)

    def _take_out(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            key = partition.topic.name, partition.index
            if self._directory.logs.get(key) is not partition.log:
                continue  # the topic was deleted meanwhile
            if self._is_replacing(partition.log):
                continue  # the next round of retention finds them
            removal = self._directory.starts.take_out(key)
            if removal is not None:
                self._remove(removal, partition)

    def _remove(self, removal: Removal, partition: Partition) -> None:
        delay_ms = partition.topic.settings.file_delete_delay_ms
        log = partition.log

        def set_aside() -> None:
            with suppress(FileNotFoundError):  # the topic was deleted, and all of its files go
                removal.set_aside()

        def removed_from_log(_: None) -> None:
            self._directory.starts.has_left(removal)
            self.deleted_segments += removal.count
            self.deleted_bytes += removal.byte_size
            logs.info(
                "segments deleted",
                log=log.name,
                count=removal.count,
                bytes=removal.byte_size,
                log_start=log.start_offset,
            )
            self._disk.remove_later(remove_files, delay_ms)

        def remove_files() -> None:
            self._readers.run(removal.remove, lambda _: None, not_removed)

        def not_removed(error: Exception) -> None:
            if not isinstance(error, FileNotFoundError):
                logs.warning("deleted segments left on disk", log=log.name, reason=str(error))

        self._readers.run(set_aside, removed_from_log, not_removed)
