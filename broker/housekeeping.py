"""The periodic duties: syncing what nobody waits for, checkpoints, idle connections, and producers
that have fallen silent.

One timer, each duty with its own period. A duty's share of the loop is bounded by what it touches:
the logs written since it last ran, the connections that exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.server import Broker
    from storage.log import Log

TICK_S = 1.0
CHECKPOINT_EVERY_S = 5.0
IDLE_CHECK_EVERY_S = 10.0


class Housekeeping:
    """Runs the duties on the loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timer: asyncio.TimerHandle | None = None
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._next: list[float] = []

    def start(self) -> None:
        broker = self._broker
        flush_every_s = broker.settings.log_flush_interval_ms
        period_s = TICK_S if flush_every_s is None else max(0.01, flush_every_s / 1000)
        duties: list[tuple[float, Callable[[], None]]] = [
            (CHECKPOINT_EVERY_S, self._checkpoint),
            (IDLE_CHECK_EVERY_S, self._close_idle),
            (broker.settings.producer_id_expiration_ms / 1000, self._forget_producers),
        ]
        if broker.settings.log_flush_policy != "os":
            duties.insert(0, (period_s, self._sync))
        now_s = broker.loop.time()
        self._due = duties
        self._next = [now_s + period for period, _ in duties]
        self._timer = broker.loop.call_later(min(TICK_S, period_s), self._tick)

    def stop(self) -> None:
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
        self._timer = loop.call_later(max(0.005, min(self._next) - now_s), self._tick)

    def _sync(self) -> None:
        """Sync what acks=1 and acks=0 producers left in the page cache."""
        appends = self._broker.appends
        written, appends.unsynced = appends.unsynced, {}
        behind = [
            log for log in written if log.recovery_point < log.written_offset and log.failed is None
        ]
        if behind:
            self._broker.group_commit.wait(behind, _ignore)

    def _checkpoint(self) -> None:
        steps = self._broker.directory.checkpoint()

        def take() -> str | None:
            try:
                for step in steps:
                    step.sync()
            except OSError as error:
                return str(error)
            return None

        def taken(failure: str | None) -> None:
            if failure is not None:
                logs.error("checkpoints not written", reason=failure)

        self._broker.syncer.run(take, taken)

    def _forget_producers(self) -> None:
        for log in self._broker.directory.logs.values():
            log.producers.expire()

    def _close_idle(self) -> None:
        broker = self._broker
        limit_s = broker.settings.connections_max_idle_ms / 1000
        now_s = broker.loop.time()
        for connection in list(broker.connections):
            idle_s = now_s - connection.last_active_s
            if limit_s > 0 and idle_s > limit_s:
                connection.close()
            elif idle_s > IDLE_CHECK_EVERY_S:
                connection.shrink()


def _ignore(failed: dict[Log, str]) -> None:
    """Nobody waits for this sync; a failure has been logged and has stopped the log."""
