"""Group commit: one thread syncs files, one sync releases everybody who waited for it.

`acks=all` is answered when the bytes are on disk. Those who begin to wait in one turn of the loop
share a sync; those who come while it runs share the next. One sync is in flight at a time: 64
waiting producers then get more than 10 times the acknowledgements of a sync for each. Where it
covers several logs, their files are synced side by side.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from broker import logs
from broker.histograms import Histogram

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from broker.partitions.disk_state import DiskState
    from broker.workers import Worker
    from storage.log import Log
    from storage.syncing import RunAll, SyncStep


class GroupCommit:
    """Syncs logs on a worker thread and calls back on the loop.

    The number of waiters is bounded by the requests that connections may have in flight.
    """

    __slots__ = (
        "_again", "_disk", "_loop", "_run_all", "_running", "_scheduled", "_time_s", "_wanted",
        "_worker", "_write_queued", "covers_acks", "failures", "sync_times",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: Worker,
        run_all: RunAll,
        disk: DiskState,
        *,
        write_queued: Callable[[], None],
        time_s: Callable[[], float],
        covers_acks: bool = True,
    ) -> None:
        """`run_all` is called on the worker's thread. `write_queued` is called before a sync: it is
        to cover what waits for the end of the turn. `time_s` measures syncs."""
        self.covers_acks = covers_acks
        """Whether produce answers to acks=all wait for it (log.flush.policy=ack)."""
        self._loop = loop
        self._run_all = run_all
        self._write_queued = write_queued
        self._disk = disk
        self._worker = worker
        self._wanted: dict[Log, None] = {}
        self._again: list[Callable[[dict[Log, str]], None]] = []
        self._running = False
        self._scheduled = False
        self._time_s = time_s
        self.sync_times = Histogram()
        self.failures = 0
        """Logs whose sync failed, so far."""

    def wait(self, wanted: Iterable[Log], done: Callable[[dict[Log, str]], None]) -> None:
        """Call `done` when everything now written to these logs is on disk.

        Its argument names the logs whose sync failed, with the reason; usually it is empty.
        """
        for log in wanted:
            self._wanted[log] = None
        self._again.append(done)
        if not self._running and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        self._write_queued()
        waiting, self._again = self._again, []
        wanted, self._wanted = self._wanted, {}
        failed: dict[Log, str] = {}
        errors: dict[Log, OSError] = {}
        jobs = []
        for log in wanted:
            # A log that failed, or whose topic was deleted meanwhile, will never be synced.
            if log.failed is not None:
                failed[log] = log.failed
                continue
            try:
                jobs.append((log, *log.unsynced()))
            except OSError as error:
                failed[log] = str(log.refuse(log.name, error))
        self._running = True

        def sync_one(log: Log, steps: list[SyncStep]) -> None:
            try:
                for step in steps:
                    step.sync()
            except OSError as error:
                errors[log] = error

        def sync() -> float:
            began_s = self._time_s()
            self._run_all([partial(sync_one, log, steps) for log, steps, _ in jobs])
            return self._time_s() - began_s

        def synced(took_s: float) -> None:
            self._running = False
            self.sync_times.add(took_s)
            self.failures += len(errors)
            for log, _, up_to in jobs:
                error = errors.get(log)
                if error is None:
                    log.synced(up_to)
                else:
                    is_news = log.failed is None  # not so if its topic was deleted meanwhile
                    failed[log] = str(log.sync_failed(error))
                    if self._disk.noticed(error) or not is_news:
                        continue
                    if log.failed is None:  # the next sync does it
                        reason = os.strerror(error.errno or 0)
                        logs.error_once_a_minute("syncs put off", reason, "all that wait")
                    else:
                        logs.error("sync failed", log=log.name, reason=failed[log])
            if self._again and not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._start)
            for done in waiting:
                done(failed)

        self._worker.run(sync, synced)
