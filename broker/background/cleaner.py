"""Compaction: the choice of the next log, and its cleaning from the plan to the checkpoint.

Every `log.cleaner.backoff.ms` all logs of compacted topics are looked at, some at a time, and the
dirtiest that is eligible is cleaned (`storage.cleaning`) by a process beside the broker
(`broker.background.cleaner_process`); then they are looked at again, until none is eligible. One
log at a time is cleaned. Whatever loops over records is done over there; here segments are swapped,
and the syncs and removals are left to threads.

    look -> cover: the sources are on the disk, and a checkpoint says so -> plan sent
         -> each finished group: commit (thread), swap (loop), finish (thread)
         -> the log is clean up to an offset, a checkpoint says so -> look

An active segment cannot be cleaned. It is rolled when it is due by our clock, also where nothing is
appended any more, or when it alone is most of the log (`broker.background.cleanable`).
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from broker import clock, logs
from broker.background.uncleanable import FIRST_S, LAST_S, UncleanableLogs
from broker.slicing import Slicer
from storage.errors import StorageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator
    from subprocess import Popen

    from broker.background.child_process import ChildProcess
    from broker.current_settings import CurrentSettings
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition, Topic
    from broker.producing.group_commit import GroupCommit
    from broker.workers import Worker
    from config import BrokerSettings
    from storage.cleaning.plan import CleaningPlan
    from storage.data_dir import DataDirectory
    from storage.log import Log
    from storage.syncing import SyncStep

    Message = dict[str, Any]

MODULE = f"{__package__}.cleaner_process"
SLICE_S = 0.001
"""Logs are looked at for so long at once; then the loop does something else for `PAUSE_S`."""
PAUSE_S = 0.01
IDLE_S = 30.0
"""The process is ended when there was no work for it for so long."""
LOOK_AT_MOST_EVERY_S = 0.01
STOP_WITHIN_S = 0.5
"""Time that a stop waits for the killed process, so that what it began can be removed."""
POLL_S = 0.01


class Counts:
    """Counters of compaction since the start, for the metrics.

    `dirtiest_ratio` is that of the log cleaned last, or 0 when none was eligible at the last look;
    `last_map_bytes` what the map of keys took at its largest, `last_duration_s` the time from the
    decision to the checkpoint.
    """

    def __init__(self) -> None:
        self.cleanings = 0
        self.failures = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_read = 0
        self.records_kept = 0
        self.dirtiest_ratio = 0.0
        self.last_duration_s = 0.0
        self.last_map_bytes = 0

    def add(self, stats: dict[str, int]) -> None:
        self.cleanings += 1
        self.last_map_bytes = stats["map_bytes"]
        for name in ("bytes_read", "bytes_written", "records_read", "records_kept"):
            setattr(self, name, getattr(self, name) + stats[name])


class _Cleaning:
    """One log under way."""

    __slots__ = (
        "bytes_before", "is_busy", "is_replacing", "log", "messages", "partition", "plan",
        "started_s",
    )  # fmt: skip

    def __init__(self, partition: Partition, plan: CleaningPlan) -> None:
        self.partition = partition
        self.log = partition.log
        self.plan = plan
        self.started_s = clock.monotonic_s()
        self.bytes_before = sum(source.size for source in plan.sources)
        # What the process said and has not been dealt with, one after the other.
        self.messages: deque[Message] = deque()
        self.is_busy = False
        self.is_replacing = False  # a group's replacement may be decided, and is not finished


def _dirtier(one: _Cleaning | None, other: _Cleaning | None) -> _Cleaning | None:
    if one is None or other is None:
        return one or other
    return one if one.plan.dirty_ratio > other.plan.dirty_ratio else other


class Cleaner:
    """Works on the loop, from `start` to `stop`. One log at a time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: CurrentSettings,
        topics: Iterable[Topic],
        directory: DataDirectory,
        *,
        disk: DiskState,
        group_commit: GroupCommit,
        readers: Worker,
        wall_ms: Callable[[], int],
        deletion_ms: Callable[[], int],
    ) -> None:
        """`wall_ms` is the time by which segments are rolled, `deletion_ms` that by which
        tombstones go; both in ms since 1970."""
        self._loop = loop
        self._settings = settings
        self._topics = topics
        self._directory = directory
        self._disk = disk
        self._group_commit = group_commit
        self._readers = readers
        self._wall_ms = wall_ms
        self._deletion_ms = deletion_ms
        self._slicer = Slicer(loop, "compaction", slice_s=SLICE_S, pause_s=PAUSE_S)
        self._best: _Cleaning | None = None
        """The dirtiest log of the search under way."""
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._child: ChildProcess | None = None
        self._current: _Cleaning | None = None
        self._stopped = False
        self._is_backing_off = False
        self._uncleanable = UncleanableLogs()
        self._crash_wait_s = 0.0
        self._imported = False
        self.counts = Counts()
        settings.subscribe(self._configure)

    def start(self) -> None:
        if self._settings.current.log_cleaner_enable:
            self._back_off()

    def _configure(self, before: BrokerSettings, settings: BrokerSettings) -> None:
        if (
            before.log_cleaner_backoff_ms != settings.log_cleaner_backoff_ms
            and self._is_backing_off
            and self._timer is not None
        ):
            self._timer.cancel()
            self._back_off()

    async def stop(self) -> None:
        """End what is under way; the old segments of an unfinished group stay."""
        from asyncio import sleep

        self._stopped = True
        self._slicer.stop()
        for timer in (self._timer, self._idle):
            if timer is not None:
                timer.cancel()
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        deadline_s = clock.monotonic_s() + STOP_WITHIN_S
        while not child.gone() and clock.monotonic_s() < deadline_s:  # noqa: ASYNC110
            await sleep(POLL_S)

    def discard_unfinished(self) -> None:
        """Remove what a stop has broken off, when no thread is at work for it any more: a group
        whose replacement was decided in the meantime is not swapped in, so its sources stay."""
        from storage.replacing import discard_all

        current, self._current = self._current, None
        if current is not None and current.log.failed is None:
            with suppress(OSError):  # the next start removes it
                discard_all(current.log.files, current.log.folder)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        if not self._stopped:
            self._timer = self._loop.call_later(delay_s, action)

    # Looking

    def _look(self) -> None:
        """Look at all logs; before the first time, import on a thread what that needs."""
        self._is_backing_off = False
        if self._imported:
            self._best = None
            self._slicer.run(self._search(), self._clean_best)
        elif any("compact" in topic.settings.cleanup_policy for topic in self._topics):
            self._readers.run(_import, lambda _: self._later(0, self._look))
            self._imported = True
        else:
            self._back_off()

    def _search(self) -> Iterator[None]:
        for found in self._eligible():
            self._best = _dirtier(found, self._best)
            yield None

    def _clean_best(self) -> None:
        best, self._best = self._best, None
        self.counts.dirtiest_ratio = 0.0 if best is None else best.plan.dirty_ratio
        if best is None:
            self._back_off()
        else:
            self._cover(best)

    def _eligible(self) -> Iterator[_Cleaning | None]:
        """Each log of a compacted topic, or None for one that needs no cleaning now."""
        for topic in list(self._topics):
            if "compact" not in topic.settings.cleanup_policy:
                continue
            for partition in list(topic.partitions):
                try:
                    yield self._plan(partition)
                except (OSError, StorageError) as error:
                    self._uncleanable.add(partition.log)
                    logs.warning("not compacted", log=partition.log.name, reason=str(error))
                except Exception as error:  # a fault of ours is one log's alone
                    self._uncleanable.add(partition.log)
                    logs.error("not compacted", log=partition.log.name, exc_info=error)

    def _plan(self, partition: Partition) -> _Cleaning | None:
        from broker.background.cleanable import bytes_wanted, plan_of, roll_is_due

        log, settings = partition.log, partition.topic.settings
        now_ms = self._deletion_ms()
        if log.failed is not None or not self._uncleanable.is_due(log):
            return None
        if roll_is_due(log, settings, now_ms=now_ms):
            log.roll(now_ms=self._wall_ms())
        plan = plan_of(log, settings, self._settings.current, now_ms=now_ms)
        if plan is None:
            return None
        wanted, free = bytes_wanted(plan), log.files.free_bytes(log.folder)
        if free < wanted:
            self._uncleanable.add(log)
            text = "not compacted: the disk is too full"
            logs.warning(text, log=log.name, free=free, wanted=wanted)
            return None
        return _Cleaning(partition, plan)

    def _back_off(self) -> None:
        """Wait for log.cleaner.backoff.ms: nothing is to be cleaned."""
        self._is_backing_off = True
        backoff_s = self._settings.current.log_cleaner_backoff_ms / 1000
        self._later(max(backoff_s, LOOK_AT_MOST_EVERY_S), self._look)
        self._uncleanable.forget_closed()
        if self._child is not None and self._idle is None:
            self._idle = self._loop.call_later(IDLE_S, self._end_idle)

    def _end_idle(self) -> None:
        self._idle = None
        if self._child is not None and self._current is None:
            self._child.finish()
            self._child = None

    # One cleaning

    def _cover(self, cleaning: _Cleaning) -> None:
        """Have the sources, and a checkpoint that says so, on the disk before they are replaced."""
        from broker.background.child_process import spawn
        from broker.background.cleanable import to_sync_first
        from storage.replacing import cover_sealed, discard_all

        self._current = cleaning
        log = cleaning.log
        cover_sealed(log)

        def prepare() -> None:
            discard_all(log.files, log.folder)
            for step in steps:
                step.sync()
            if self._child is None:
                try:
                    spawned.append(spawn(MODULE))
                except OSError as error:
                    spawned.append(error)

        def synced(failed: dict[Log, str]) -> None:
            if not self._is_current(cleaning):
                return
            if failed:
                self._give_up(cleaning, "; ".join(failed.values()))
                return
            steps.extend(self._directory.checkpoints.gaps(log, cleaning.plan.end))
            self._on_thread(cleaning, prepare, lambda: self._send(cleaning, spawned))

        steps: list[SyncStep] = []
        spawned: list[Popen[bytes] | OSError] = []
        first = to_sync_first(cleaning.partition, self._directory.logs.values())
        self._group_commit.wait(first, synced)

    def _on_thread(
        self, cleaning: _Cleaning, job: Callable[[], None], done: Callable[[], None]
    ) -> None:
        """Have a thread do what waits for the disk, then go on; or give up."""

        def succeeded(_: None) -> None:
            if self._is_current(cleaning):
                done()

        def failed(error: Exception) -> None:
            if self._is_current(cleaning):
                self._disk.noticed(error)
                self._interrupt(cleaning, str(error))

        if not self._stopped:
            self._readers.run(job, succeeded, failed)

    def is_replacing(self, log: Log) -> bool:
        """Whether no segment may leave this log at the moment: after a crash a replacement that was
        decided would bring it back."""
        return self._current is not None and self._current.log is log and self._current.is_replacing

    def is_at_work_on(self, log: Log) -> bool:
        """Whether this log is being compacted."""
        return self._current is not None and self._current.log is log

    def _is_current(self, cleaning: _Cleaning) -> bool:
        return not self._stopped and self._current is cleaning

    def _send(self, cleaning: _Cleaning, spawned: list[Popen[bytes] | OSError]) -> None:
        import json

        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        limit = self._settings.current.log_cleaner_io_max_bytes_per_second
        work = {
            "plan": cleaning.plan.as_json(),
            "bytes_per_second": limit if limit < NO_LIMIT else None,
        }
        for process in spawned:
            if isinstance(process, OSError):
                self._give_up(cleaning, f"its process did not start: {process}", crashed=True)
                return
            self._child = self._adopt(process)
        if self._child is not None:  # or it has died, which is among the messages by now
            self._child.send(json.dumps(work).encode() + b"\n")

    def _adopt(self, process: Popen[bytes]) -> ChildProcess:
        from broker.background.child_process import ChildProcess

        def ended(status: int) -> None:
            if self._child is child:  # or it was idle
                self._child = None
                reason = f"its process ended with {status}"
                self._enter({"error": reason, "crashed": True})

        child = ChildProcess(self._loop, process, on_line=self._heard, on_end=ended)
        return child

    def _heard(self, line: bytes) -> None:
        """A message of the process; broker/background/cleaner_process.py says which there are."""
        import json

        self._enter(json.loads(line))

    def _enter(self, message: Message) -> None:
        cleaning = self._current
        if cleaning is not None and not self._stopped:
            cleaning.messages.append(message)
            if not cleaning.is_busy:
                self._next(cleaning)

    def _next(self, cleaning: _Cleaning) -> None:
        """Deal with the next message. Groups that are finished are good, whatever comes later."""
        cleaning.is_busy = bool(cleaning.messages)
        if not cleaning.is_busy:
            return
        message = cleaning.messages.popleft()
        if "group" in message:
            self._replace(cleaning, message["group"])
        elif "error" in message:
            self._refused(cleaning, message)
        else:
            self._cleaned(cleaning, message["cleaned_to"], message["stats"])

    def _replace(self, cleaning: _Cleaning, fields: dict[str, Any]) -> None:
        from storage.cleaning.cleaning import CleanedGroup
        from storage.replacing import Replacing

        replacing = Replacing(cleaning.log, CleanedGroup(**fields))

        def committed() -> None:
            if not replacing.is_possible():  # the topic was deleted
                self._on_thread(
                    cleaning, replacing.retract, lambda: self._interrupt(cleaning, None)
                )
                return
            try:
                replacing.swap()
            except StorageError as error:
                self._interrupt(cleaning, str(error))
                return
            self._on_thread(cleaning, replacing.finish, finished)

        def finished() -> None:
            cleaning.is_replacing = False
            self._next(cleaning)

        if replacing.is_possible():
            cleaning.is_replacing = True
            self._on_thread(cleaning, replacing.commit, committed)
        else:
            self._interrupt(cleaning, None)

    def _cleaned(self, cleaning: _Cleaning, cleaned_to: int, stats: dict[str, int]) -> None:
        """All groups are swapped in, durably: note it, and tell of it."""
        cleaning.log.cleaned_to = cleaned_to
        steps = self._directory.checkpoints.cleaned()

        def note() -> None:
            for step in steps:
                step.sync()

        self._on_thread(cleaning, note, lambda: self._report(cleaning, stats))

    def _report(self, cleaning: _Cleaning, stats: dict[str, int]) -> None:
        self._current = None
        self._crash_wait_s = 0.0
        if cleaning.log.cleaned_to == cleaning.plan.first_dirty:
            self._uncleanable.add(cleaning.log)  # nothing came of it, nor will at once
        else:
            self._uncleanable.succeeded(cleaning.log)
        self.counts.add(stats)
        seconds = self.counts.last_duration_s = clock.monotonic_s() - cleaning.started_s
        logs.info(
            "compacted",
            log=cleaning.log.name,
            mb_before=round(cleaning.bytes_before / 1e6, 3),
            mb_after=round(stats["bytes_written"] / 1e6, 3),
            records_before=stats["records_read"],
            records_after=stats["records_kept"],
            seconds=round(seconds, 2),
        )
        self._later(0, self._look)

    # What goes wrong

    def _refused(self, cleaning: _Cleaning, message: Message) -> None:
        """The process could not do it. It has removed what it began, unless it has ended."""
        self._interrupt(cleaning, message["error"], crashed="crashed" in message)

    def _is_overtaken(self, cleaning: _Cleaning) -> bool:
        """Whether retention, DeleteRecords or the end of the topic took a source away. There may
        even be another topic in its folder."""
        log = cleaning.log
        bases = set(log.segments.base_offsets)
        return log.failed is not None or any(
            source.base_offset not in bases for source in cleaning.plan.sources
        )

    def _interrupt(self, cleaning: _Cleaning, reason: str | None, *, crashed: bool = False) -> None:
        """End this cleaning, for a reason or because it was overtaken. The process goes as well: it
        may still be at work on it. What is left behind is removed when it is gone."""
        from storage.replacing import discard_all

        cleaning.messages.clear()
        cleaning.is_busy = True
        child, self._child = self._child, None
        if child is not None:
            child.kill()
        log = cleaning.log

        def clear() -> None:
            # A log that failed amid its renames is finished by the next start. Of a topic that is
            # deleted there may be another one by now, in the same folder.
            if log.failed is None:
                with suppress(OSError):  # the next cleaning of this log begins with it
                    discard_all(log.files, log.folder)

        def cleared() -> None:
            if reason is not None:
                self._give_up(cleaning, reason, crashed=crashed)
            else:
                self._current = None
                self._later(0, self._look)

        self._when_gone(child, lambda: self._on_thread(cleaning, clear, cleared))

    def _when_gone(self, child: ChildProcess | None, action: Callable[[], None]) -> None:
        if child is None or child.gone():
            action()
        else:
            self._later(POLL_S, lambda: self._when_gone(child, action))

    def _give_up(self, cleaning: _Cleaning, reason: str, *, crashed: bool = False) -> None:
        """Say once why this log was not cleaned, and go on with others, or rest after a crash."""
        self._current = None
        if not crashed and self._is_overtaken(cleaning):
            self._later(0, self._look)
            return
        self.counts.failures += 1
        is_news, wait_s = cleaning.log not in self._uncleanable, 0.0
        self._uncleanable.add(cleaning.log)
        if crashed:
            is_news = not self._crash_wait_s
            wait_s = min(2 * self._crash_wait_s or FIRST_S, LAST_S)
            self._crash_wait_s = wait_s
        (logs.error if is_news else logs.debug)(
            "compaction failed", log=cleaning.log.name, reason=reason
        )
        self._later(wait_s, self._look)


def _import() -> None:
    """Everything that is imported where it is needed, for milliseconds on the loop are felt.

    Without a descriptor for it, it has to be done there.
    """
    with suppress(OSError, ImportError):
        import json  # noqa: F401

        from broker.background import child_process, cleanable  # noqa: F401
        from storage import replacing  # noqa: F401
        from storage.cleaning import cleaning  # noqa: F401

        logs.warm_up()


NO_LIMIT = 1e300
"""log.cleaner.io.max.bytes.per.second is the largest double unless it is set."""
