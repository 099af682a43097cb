"""Checkpoints: recovery points and log starts are written, so that a start after a crash has little
to read again.

Before a recovery point is written, the log up to it is covered: what a recovery would need to know
of producers and times is on the disk. Logs are covered one after the other, some at a time.

What a start after a crash has looked through is covered when it has been synced, for the start has
written the rest. So that is noted first of all: a broker that dies again and again looks through
what is new each time, and no more.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker import logs
from broker.slicing import Slicer
from storage.closing import Cover, store_for_recovery
from storage.syncing import take_all

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from broker.partitions.disk_state import DiskState
    from broker.producing.appends import Appends
    from broker.producing.group_commit import GroupCommit
    from broker.slicing import Wait
    from broker.workers import Worker
    from storage.data_dir import DataDirectory
    from storage.log import Log
    from storage.syncing import SyncStep

AT_MOST_EVERY_S = 1.0
"""A checkpoint looks at every log, and a slow disk must not have them queue up."""
WRITTEN_BYTES = 128 * 1024 * 1024
"""Bytes written after which a checkpoint does not wait for its time: what is not covered by one is
read again after a crash, and the start waits for it."""
SYNCED_EVERY_S = 1.0
"""Time by which the notes on syncs may lag behind them."""
SYNCED_LOGS_PER_S = 1000
"""With more logs than this it is noted less often: it is one file with a line for each."""
RECOVERED_AT_ONCE = 8
"""Logs that are synced together after a start: whoever waits for a sync then waits for these, too.
"""
COVER_S = 0.002
COVER_PAUSE_S = 0.01
"""Time of the loop that a checkpoint takes at a time, and how long it then lets others work."""


class Checkpoints:
    """Belongs to the loop; `write`, `write_if_due`, `write_starts` and `note_synced` are periodic
    tasks, `write_recovered` is for the start. Files are written on the thread `worker`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        directory: DataDirectory,
        appends: Appends,
        group_commit: GroupCommit,
        *,
        disk: DiskState,
        worker: Worker,
    ) -> None:
        self._loop = loop
        self._directory = directory
        self._appends = appends
        self._group_commit = group_commit
        self._disk = disk
        self._worker = worker
        self._slicer = Slicer(loop, "checkpoints", slice_s=COVER_S, pause_s=COVER_PAUSE_S)
        self._steps: list[SyncStep] = []
        self._synced_next_s = 0.0
        self._noting_synced = False

    def stop(self) -> None:
        self._slicer.stop()

    def write_recovered(self) -> None:
        """Sync the logs that the start has looked through, some at a time, and write their recovery
        points."""
        recovered = [
            log for log in self._directory.logs.values() if log.covered_point < log.opened_at
        ]
        if recovered:
            self._steps = []
            self._slicer.run(self._sync(recovered), self._write_offsets, self._not_covered)

    def write_if_due(self) -> None:
        """Write a checkpoint if much was written since the last."""
        if self._appends.bytes_written >= WRITTEN_BYTES:
            self.write()

    def write(self) -> None:
        """Cover the logs and write their recovery points, unless that is under way."""
        if not self._slicer.is_running:
            self._appends.bytes_written = 0
            self._steps = []
            self._slicer.run(self._cover(), self._write_offsets, self._not_covered)

    def write_starts(self) -> None:
        """Write the log starts."""
        self._take([self._directory.starts.checkpoint()])

    def note_synced(self) -> None:
        """Note how far logs are synced: the next start does not cut off what was acknowledged,
        whatever it finds there."""
        now_s = self._loop.time()
        if now_s >= self._synced_next_s and not self._noting_synced:
            steps = self._directory.checkpoints.synced()
            if steps:
                self._noting_synced = True
                self._synced_next_s = now_s + len(self._directory.logs) / SYNCED_LOGS_PER_S
                self._take(steps, then=self._noted_synced)

    def _noted_synced(self) -> None:
        self._noting_synced = False

    def _sync(self, logs: list[Log]) -> Iterator[Wait | None]:
        for first in range(0, len(logs), RECOVERED_AT_ONCE):
            yield partial(self._take_synced, logs[first : first + RECOVERED_AT_ONCE])
        self._steps = yield from self._directory.checkpoints.gather_offsets()

    def _take_synced(self, logs: list[Log], resume: Callable[[], None]) -> None:
        # One that can't be synced is not covered, and what it was asked for fails in its own time.
        self._group_commit.wait(logs, lambda _: resume())

    def _cover(self) -> Iterator[Wait | None]:
        """Cover the logs: each may cost a millisecond here and several syncs on the thread."""
        for log in list(self._directory.logs.values()):
            self._steps += store_for_recovery(log)
            yield self._take_covered if self._slicer.is_slice_over else None
        yield self._take_covered
        self._steps = yield from self._directory.checkpoints.gather_offsets()

    def _take_covered(self, resume: Callable[[], None]) -> None:
        steps, self._steps = self._steps, []
        self._take(steps, then=resume)

    def _not_covered(self, error: Exception) -> None:
        logs.fault_once_a_minute("checkpoints not written", error, "checkpoints")

    def _write_offsets(self) -> None:
        steps, self._steps = self._steps, []
        self._take(steps)

    def _take(self, steps: list[SyncStep], then: Callable[[], object] = lambda: None) -> None:
        """Take these steps on the thread for them; one that fails is tried again next time."""

        def taken(failures: list[tuple[SyncStep, OSError]]) -> None:
            for step, error in failures:
                reason: Exception = error
                if isinstance(step, Cover):
                    if step.log.failed is not None:
                        continue  # it was said, or the topic was deleted meanwhile
                    reason = step.failed(error)
                if not self._disk.noticed(error):
                    logs.error("checkpoints not written", reason=str(reason))
            then()

        # A fault of ours is logged by the worker, and the next checkpoint is written all the same.
        self._worker.run(lambda: take_all(steps), taken, lambda _: taken([]))
