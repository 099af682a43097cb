"""Periodic tasks on the loop: one timer, each task with a period of its own.

Retention and compaction keep their own time. A task's share of the loop is bounded by what it
touches: the logs written since it last ran, the connections that exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    Task = tuple[float, Callable[[], None]]
    """The seconds between two runs, and what is run."""

SHORTEST_S = 0.005


class Housekeeping:
    """Runs its tasks from `start` to `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: Sequence[Task]) -> None:
        self._loop = loop
        self._tasks = list(tasks)
        self._next_s: list[float] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        now_s = self._loop.time()
        self._next_s = [now_s + period_s for period_s, _ in self._tasks]
        self._schedule(now_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def set_period(self, run: Callable[[], None], period_s: float) -> None:
        """Run this task so often from now on."""
        number = next(at for at, (_, one) in enumerate(self._tasks) if one == run)
        self._tasks[number] = (period_s, run)
        if self._timer is not None:
            now_s = self._loop.time()
            self._next_s[number] = min(self._next_s[number], now_s + period_s)
            self._timer.cancel()
            self._schedule(now_s)

    def _schedule(self, now_s: float) -> None:
        wait_s = max(SHORTEST_S, min(self._next_s) - now_s)
        self._timer = self._loop.call_later(wait_s, self._run)

    def _run(self) -> None:
        now_s = self._loop.time()
        for number, (period_s, run) in enumerate(self._tasks):
            if now_s >= self._next_s[number]:
                self._next_s[number] = now_s + period_s
                try:
                    run()
                except OSError as error:
                    logs.error("a periodic task failed", task=run.__name__, reason=str(error))
                except Exception as error:  # the other tasks go on
                    logs.fault_once_a_minute("a periodic task failed", error, run.__name__)
        self._schedule(now_s)
