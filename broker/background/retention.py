"""The duty that drops old records, by size and by age.

Every log.retention.check.interval.ms each log is looked at. A round is cut into slices of some 2
ms with a longer pause after each, so that it takes about a fifth of the loop at most; what was
found in several logs is made durable together (`broker.background.log_starts`).

A log whose last record is too old has its active segment sealed, so that it can go: Kafka's rule,
without which an idle partition would keep its last segment for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import clock, logs
from storage.errors import StorageError
from storage.retention import RetentionRules, retained_from

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from broker.partitions.topic import Partition
    from broker.server import Broker
    from config import TopicSettings
    from storage.log import Log

SLICE_S = 0.002
PAUSE_S = 4 * SLICE_S
TOGETHER_MAX = 64
"""Log starts that are stored with one write: what follows for each costs some 50 us."""
SYNCED_MAX = 8
"""Logs among them that have to be synced before; producers with acks=all wait behind that."""


class Retention:
    """Belongs to the loop. One round at a time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timer: asyncio.TimerHandle | None = None
        self._left: Iterator[Partition] = iter(())
        self._starts: dict[Partition, int] = {}
        self._to_sync = 0
        self._storing = self._stopped = False

    def start(self) -> None:
        self._after(self._broker.settings.log_initial_task_delay_ms / 1000, self._begin)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _after(self, delay_s: float, step: Callable[[], None]) -> None:
        if not self._stopped:
            self._timer = self._broker.loop.call_later(delay_s, step)

    def _begin(self) -> None:
        self._left = iter([one for topic in self._broker.topics for one in topic.partitions])
        self._go_on()

    def _go_on(self) -> None:
        """One slice of the round."""
        until_s = clock.monotonic_s() + SLICE_S
        for partition in self._left:
            self._look_at(partition)
            if len(self._starts) >= TOGETHER_MAX or self._to_sync >= SYNCED_MAX:
                self._store()
                return
            if clock.monotonic_s() >= until_s:
                self._after(PAUSE_S, self._go_on)
                return
        if self._starts:
            self._store()
        else:
            self._after(self._broker.settings.log_retention_check_interval_ms / 1000, self._begin)

    def _store(self) -> None:
        starts, self._starts, self._to_sync = self._starts, {}, 0
        self._broker.log_starts.raise_to(starts, lambda _: self._after(PAUSE_S, self._go_on))

    def _look_at(self, partition: Partition) -> None:
        log = partition.log
        if log.failed is not None:
            return  # closed, or damaged: then somebody should see it before anything goes
        try:
            self._keep_times(log)
            start = retained_from(
                log,
                rules_of(partition.topic.settings),
                now_ms=self._broker.deletion_clock.now_ms(),
            )
            self._tell_trouble(log)
        except OSError as error:
            self._broker.disk.read_failed(log, error)
            return
        if start > log.start_offset:
            if start == log.next_offset and start > log.active.base_offset:
                self._seal(log)
            self._starts[partition] = start
            self._to_sync += log.recovery_point <= start
        elif len(log.segments) > 1 and log.segments[1].base_offset <= log.start_offset:
            self._starts[partition] = log.start_offset  # left over from an earlier raise

    def _seal(self, log: Log) -> None:
        try:
            log.roll(now_ms=self._broker.now_ms())
        except StorageError as error:
            if not self._broker.disk.noticed(error):
                logs.warn_once_a_minute("a segment could not be sealed", str(error), log.name)

    def _keep_times(self, log: Log) -> None:
        """Store when a log's records were received, if it does not roll; one log at a time."""
        if self._storing or not log.received.is_due():
            return
        self._storing = True
        step = log.received.store(log)
        self._broker.syncer.run(step.sync, self._stored)

    def _stored(self, nothing: None) -> None:
        self._storing = False

    def _tell_trouble(self, log: Log) -> None:
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
