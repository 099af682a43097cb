"""The periodic duties: syncing what nobody waits for, room on the disk, checkpoints, idle
connections, producers that have fallen silent, and old segments. Retention and compaction keep
their own time.

One timer, each duty with its own period. A duty's share of the loop is bounded by what it touches:
the logs written since it last ran, the connections that exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import clock, logs
from broker.background import deletion_clock, scrubber
from broker.background.retention import Retention
from broker.coordinator.loading import snapshotting
from broker.metadata import controller
from broker.network import descriptors
from broker.partitions import disk_state
from storage.closing import Cover, store_for_recovery
from storage.syncing import take_all

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from broker.server import Broker
    from storage.log import Log
    from storage.syncing import SyncStep

CHECKPOINTS_AT_MOST_EVERY_S = 1.0
"""They look at every log, and a slow disk must not have them queue up."""
CHECKPOINT_BYTES = 128 * 1024 * 1024
"""Bytes written after which a checkpoint does not wait for its time: what is not covered by one is
read again after a crash, and the start waits for it."""
SYNCED_EVERY_S = 1.0
"""How far what is noted of syncs may be behind them."""
SYNCED_LOGS_PER_S = 1000
"""With more logs than this it is noted less often: it is one file with a line for each."""
COVER_S = 0.002
COVER_PAUSE_S = 0.01
"""Time of the loop that a checkpoint takes at a time, and how long it then lets others work."""
IDLE_CHECK_EVERY_S = 10.0


class Housekeeping:
    """Runs the duties on the loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._retention = Retention(broker)
        self._timer: asyncio.TimerHandle | None = None
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._next: list[float] = []
        self._idle_looked_s = broker.loop.time()
        self._uncovered: Iterator[Log] | None = None
        """What is still to be covered before the checkpoint under way is written."""
        self._synced_next_s = 0.0
        self._noting_synced = False

    def start(self) -> None:
        broker = self._broker
        settings, flushing = broker.settings, broker.flushing
        duties: list[tuple[float, Callable[[], None]]] = [
            (flushing.period_s, flushing.look),
            (disk_state.LOOK_EVERY_S, broker.disk.look),
            (descriptors.LOOK_EVERY_S, broker.descriptors.look),
            (_checkpoint_s(settings.log_flush_offset_checkpoint_interval_ms), self._checkpoint),
            (_checkpoint_s(settings.log_flush_start_offset_checkpoint_interval_ms), self._starts),
            (CHECKPOINTS_AT_MOST_EVERY_S, self._checkpoint_if_much_was_written),
            (SYNCED_EVERY_S, self._note_synced),
            (IDLE_CHECK_EVERY_S, self._close_idle),
            (deletion_clock.LOOK_EVERY_S, broker.deletion_clock.look),
            (scrubber.LOOK_EVERY_S, broker.scrubber.look),
            (controller.LOOK_EVERY_S, broker.controller.look),
            (settings.offsets_retention_check_interval_ms / 1000, broker.offsets.look_for_expired),
            (settings.producer_id_expiration_check_interval_ms / 1000, self._forget_producers),
            (snapshotting.LOOK_EVERY_S, broker.groups.snapshotting.look),
        ]
        flushing.start()
        flushing.period_changed = self._take_period
        now_s = broker.loop.time()
        self._due = duties
        self._next = [now_s + period for period, _ in duties]
        self._timer = broker.loop.call_later(min(self._next) - now_s, self._tick)
        self._retention.start()
        broker.loop.call_soon(broker.disk.look)  # when the broker is ready
        broker.loop.call_soon(broker.deletion_clock.look)
        broker.loop.call_soon(self._forget_producers)

    def stop(self) -> None:
        self._retention.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        loop = self._broker.loop
        now_s = loop.time()
        for number, (period, duty) in enumerate(self._due):
            if now_s >= self._next[number]:
                self._next[number] = now_s + period
                try:
                    duty()
                except OSError as error:
                    logs.error("periodic duty failed", duty=duty.__name__, reason=str(error))
                except Exception as error:  # the other duties go on
                    logs.fault_once_a_minute("periodic duty failed", error, duty.__name__)
        self._timer = loop.call_later(max(0.005, min(self._next) - now_s), self._tick)

    def _take_period(self) -> None:
        """The time between two looks for what is to be flushed, the first duty, has changed."""
        if self._timer is not None:
            loop, flushing = self._broker.loop, self._broker.flushing
            self._due[0] = (flushing.period_s, flushing.look)
            self._next[0] = min(self._next[0], loop.time() + flushing.period_s)
            self._timer.cancel()
            self._timer = loop.call_later(max(0.005, min(self._next) - loop.time()), self._tick)

    def _checkpoint_if_much_was_written(self) -> None:
        if self._broker.appends.bytes_written >= CHECKPOINT_BYTES:
            self._checkpoint()

    def _checkpoint(self) -> None:
        if self._uncovered is None:
            self._broker.appends.bytes_written = 0
            self._uncovered = iter(list(self._broker.directory.logs.values()))
            self._cover()

    def _cover(self) -> None:
        """Cover the logs one after the other, some at a time: each may cost a millisecond here and
        several syncs on the thread that those who wait for an ack need, too."""
        if self._timer is None or self._uncovered is None:
            return  # stopped meanwhile
        loop, end_s = self._broker.loop, clock.monotonic_s() + COVER_S
        steps: list[SyncStep] = []
        for log in self._uncovered:
            steps += store_for_recovery(log)
            if clock.monotonic_s() > end_s:
                self._take(steps, then=lambda: loop.call_later(COVER_PAUSE_S, self._cover))
                return
        self._take(steps, then=self._note)

    def _note(self) -> None:
        self._uncovered = None
        if self._timer is not None:
            self._take(self._broker.directory.checkpoint_offsets())

    def _note_synced(self) -> None:
        """What has been acknowledged after a sync is not cut off by the next start, whatever it
        finds there."""
        directory, now_s = self._broker.directory, self._broker.loop.time()
        if now_s >= self._synced_next_s and not self._noting_synced:
            steps = directory.checkpoint_synced()
            if steps:
                self._noting_synced = True
                self._synced_next_s = now_s + len(directory.logs) / SYNCED_LOGS_PER_S
                self._take(steps, then=self._noted_synced)

    def _noted_synced(self) -> None:
        self._noting_synced = False

    def _starts(self) -> None:
        self._take([self._broker.directory.starts.checkpoint()])

    def _take(self, steps: list[SyncStep], then: Callable[[], object] = lambda: None) -> None:
        """Take these steps on the thread for them; one that fails is tried again next time."""

        def taken(failures: list[tuple[SyncStep, OSError]]) -> None:
            for step, error in failures:
                reason: Exception = error
                if isinstance(step, Cover):
                    if step.log.failed is not None:
                        continue  # it was said, or the topic was deleted meanwhile
                    reason = step.failed(error)
                if not self._broker.disk.noticed(error):
                    logs.error("checkpoints not written", reason=str(reason))
            then()

        self._broker.checkpointer.run(lambda: take_all(steps), taken)

    def _forget_producers(self) -> None:
        broker = self._broker
        now_ms = broker.deletion_clock.now_ms()
        after_ms = broker.settings.producer_id_expiration_ms
        for log in broker.directory.logs.values():
            log.producers.expire(now_ms=now_ms, after_ms=after_ms)

    def _close_idle(self) -> None:
        broker = self._broker
        limit_s = broker.settings.connections_max_idle_ms / 1000
        now_s = broker.loop.time()
        since_s, self._idle_looked_s = now_s - self._idle_looked_s, now_s
        if since_s > 2 * IDLE_CHECK_EVERY_S:
            return  # the process was stopped: what came in meanwhile has not been read yet
        for connection in list(broker.connections):
            connection.look(now_s, limit_s)
            if now_s - connection.last_active_s > IDLE_CHECK_EVERY_S:
                connection.shrink()


def _checkpoint_s(interval_ms: int) -> float:
    return max(CHECKPOINTS_AT_MOST_EVERY_S, interval_ms / 1000)
