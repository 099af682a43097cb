"""Retention: drops old records, by size and by age.

Every log.retention.check.interval.ms each log is looked at. A round is cut into slices of some 2
ms with a longer pause after each, so that it takes about a fifth of the loop at most; what was
found in several logs is made durable together (`broker.background.log_starts`).

Where a topic names groups to wait for (`retention.wait.groups`), what they have not committed stays
within bounds (`broker.background.retention_wait`). While it is not known what they have committed,
because their offsets are being loaded, nothing of the topic goes.

A log whose last record is too old has its active segment sealed, so that it can go: Kafka's rule,
without which an idle partition would keep its last segment for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.slicing import Slicer
from storage.errors import StorageError
from storage.retention import RetentionRules, retained_from

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator

    from broker.background.deletion_clock import DeletionClock
    from broker.background.log_starts import LogStarts
    from broker.background.retention_wait import RetentionWait
    from broker.current_settings import CurrentSettings
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition, Topic
    from broker.slicing import Wait
    from broker.workers import Worker
    from config import TopicSettings
    from storage.log import Log

SLICE_S = 0.002
PAUSE_S = 4 * SLICE_S
TOGETHER_MAX = 64
"""Log starts that are stored with one write: what follows for each costs some 50 us."""
SYNCED_MAX = 8
"""Logs among them that have to be synced before; producers with acks=all wait behind that."""


def _at_once(then: Callable[[], None]) -> None:
    """One process knows all groups."""
    then()


class Retention:
    """Belongs to the loop. One round at a time, from `start` to `stop`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: CurrentSettings,
        topics: Iterable[Topic],
        *,
        log_starts: LogStarts,
        disk: DiskState,
        syncer: Worker,
        deletion_clock: DeletionClock,
        wait: Callable[[], RetentionWait],
        now_ms: Callable[[], int],
    ) -> None:
        """`wait` gives what knows how far the groups are that topics wait for."""
        self._loop = loop
        self._settings = settings
        self._topics = topics
        self._log_starts = log_starts
        self._disk = disk
        self._syncer = syncer
        self._deletion_clock = deletion_clock
        self._wait = wait
        self._now_ms = now_ms
        self._slicer = Slicer(loop, "retention", slice_s=SLICE_S, pause_s=PAUSE_S)
        self._timer: asyncio.TimerHandle | None = None
        self._starts: dict[Partition, int] = {}
        self._relied_on: set[Log] = set()
        self._to_sync = 0
        self._waits = False
        """Whether a topic waited for groups in the last round."""
        self._storing_times = False
        self.learn: Callable[[Callable[[], None]], None] = _at_once
        """Called at the beginning of each round, with what goes on when it is known how far groups
        are that other processes coordinate."""
        self._stopped = False

    def start(self) -> None:
        self._later(self._settings.current.log_initial_task_delay_ms)

    def stop(self) -> None:
        self._stopped = True
        self._slicer.stop()
        if self._timer is not None:
            self._timer.cancel()

    def _later(self, delay_ms: int) -> None:
        self._timer = self._loop.call_later(delay_ms / 1000, self._begin)

    def _begin(self) -> None:
        self.learn(self._go_through)

    def _go_through(self) -> None:
        if not self._stopped:
            self._slicer.run(self._round(), self._end)

    def _end(self) -> None:
        self._later(self._settings.current.log_retention_check_interval_ms)

    def _round(self) -> Iterator[Wait | None]:
        """Look at all partitions, one after the other."""
        waits = False
        for partition in [one for topic in self._topics for one in topic.partitions]:
            waits = waits or bool(partition.topic.settings.retention_wait_groups)
            self._look_at(partition)
            is_full = len(self._starts) >= TOGETHER_MAX or self._to_sync >= SYNCED_MAX
            yield self._store if is_full else None
        if self._starts:
            yield self._store
        if waits or self._waits:
            self._waits = waits
            self._wait().end_round(one for topic in self._topics for one in topic.partitions)

    def _store(self, resume: Callable[[], None]) -> None:
        starts, self._starts, self._to_sync = self._starts, {}, 0
        relied_on, self._relied_on = self._relied_on, set()
        self._log_starts.raise_to(starts, lambda _: resume(), relied_on=relied_on)

    def _look_at(self, partition: Partition) -> None:
        log = partition.log
        if log.failed is not None:
            return  # closed, or damaged: then somebody should see it before anything goes
        try:
            self._store_times(log)
            start = self._retained_from(partition)
            self._warn_of_lost_times(log)
        except OSError as error:
            self._disk.read_failed(log, error)
            return
        if start > log.start_offset:
            if start == log.next_offset and start > log.active.base_offset:
                self._seal(log)
            self._starts[partition] = start
            self._to_sync += log.recovery_point <= start
        elif len(log.segments) > 1 and log.segments[1].base_offset <= log.start_offset:
            self._starts[partition] = log.start_offset  # left over from an earlier raise

    def _retained_from(self, partition: Partition) -> int:
        """As `storage.retention.retained_from`, less what groups are waited for. Raises OSError."""
        topic, now_ms = partition.topic, self._deletion_clock.now_ms()
        due = retained_from(partition.log, rules_of(topic.settings), now_ms=now_ms)
        if not topic.settings.retention_wait_groups or topic.internal:
            return due
        kept = self._wait().keep(partition, due, now_ms)
        if kept.start > partition.log.start_offset:
            self._relied_on.update(kept.relied_on)
        return kept.start

    def _seal(self, log: Log) -> None:
        try:
            log.roll(now_ms=self._now_ms())
        except StorageError as error:
            if not self._disk.noticed(error):
                logs.warn_once_a_minute("a segment could not be sealed", str(error), log.name)

    def _store_times(self, log: Log) -> None:
        """Store when a log's records were received, if it does not roll; one log at a time."""
        if self._storing_times or not log.received.is_due():
            return
        self._storing_times = True
        step = log.received.store(log)
        self._syncer.run(step.sync, self._times_stored)

    def _times_stored(self, nothing: None) -> None:
        self._storing_times = False

    def _warn_of_lost_times(self, log: Log) -> None:
        if log.received.trouble is not None:
            logs.warning("receive times lost", log=log.name, reason=log.received.trouble)
            log.received.trouble = None


def rules_of(settings: TopicSettings) -> RetentionRules:
    return RetentionRules(
        "delete" in settings.cleanup_policy,
        settings.retention_ms,
        settings.retention_bytes,
        settings.retention_min_timestamp,
    )
