"""The clocks and the timers of one broker, which a test moves ahead.

While time is moved, each timer that falls due runs at its own time, in order, as if nobody had to
wait; so does what it sets up. After `STEPS_MAX` of them the rest of the time passes at once, and
what repeats itself runs once more: a broker does something every second, and nobody wants to see it
done 90,000 times.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

YEAR_MS = 366 * 24 * 3_600_000
STEPS_MAX = 2_000
"""Calls in one move. What happens to groups and transactions is over after half an hour."""
AHEAD_MAX_MS = 10 * YEAR_MS
"""The furthest that all moves together may go; timestamps beyond it make no sense to clients."""


class MovableTimer:
    """A call to come, as `asyncio.TimerHandle`."""

    __slots__ = ("_call", "_cancelled", "_handle", "_when_s")

    def __init__(self, when_s: float, call: Callable[[], None]) -> None:
        self._when_s = when_s
        self._call = call
        self._cancelled = False
        self._handle: asyncio.TimerHandle | None = None

    def when(self) -> float:
        return self._when_s

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def begin(self, loop: asyncio.AbstractEventLoop, ahead_s: float) -> None:
        """Have the loop call it in its time, which is so much behind."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = loop.call_at(self._when_s - ahead_s, self._run)

    def run_now(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()
            self._call()

    @property
    def pending(self) -> bool:
        return self._handle is not None

    def _run(self) -> None:
        self._handle = None
        self._call()


class MovableLoop:
    """An event loop whose time can be moved. What it does not say itself is that loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.ahead_s = 0.0
        """By how much it is ahead of that loop."""
        self._numbers = count()
        self._timers: list[tuple[float, int, MovableTimer]] = []
        self._waste = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._loop.time() + self.ahead_s

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> MovableTimer:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> MovableTimer:
        def call() -> None:
            if context is None:
                callback(*args)
            else:
                context.run(callback, *args)

        timer = MovableTimer(when, call)
        timer.begin(self._loop, self.ahead_s)
        heappush(self._timers, (when, next(self._numbers), timer))
        self._sweep()
        return timer

    def move(self, seconds: float) -> int:
        """Move the time ahead, and run what falls due; how many calls that were."""
        target_s, ran = self.ahead_s + seconds, 0
        while ran < STEPS_MAX and (timer := self._due(target_s)) is not None:
            self.ahead_s = max(self.ahead_s, timer.when() - self._loop.time())
            self._run(timer)
            ran += 1
        self.ahead_s = target_s
        left = []
        while (timer := self._due(target_s)) is not None:
            left.append(timer)
        for timer in left:
            self._run(timer)
        for _, _, timer in self._timers:
            if timer.pending:
                timer.begin(self._loop, target_s)
        return ran + len(left)

    def _due(self, ahead_s: float) -> MovableTimer | None:
        """Take the first timer that is due by then."""
        while self._timers and self._timers[0][0] <= self._loop.time() + ahead_s:
            timer = heappop(self._timers)[2]
            if timer.pending:
                return timer
        return None

    def _run(self, timer: MovableTimer) -> None:
        try:
            timer.run_now()
        except Exception as error:  # as of a call that the loop itself makes
            self._loop.call_exception_handler({"message": "a timer failed", "exception": error})

    def _sweep(self) -> None:
        """Forget timers that have run or were cancelled, when they are most of those kept."""
        self._waste += 1
        if self._waste > 64 + len(self._timers) // 2:
            self._timers = sorted(entry for entry in self._timers if entry[2].pending)
            self._waste = 0


class MovableClock:
    """All clocks that one broker reads. The clocks that it is made with go on as they are."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        now_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        elapsed_ms: Callable[[], int],
    ) -> None:
        self.loop = MovableLoop(loop)
        self.jumped_ms = 0
        """By how much `jump` has moved the wall clock; below 0 if back."""
        self.excuse: Callable[[float], None] = lambda seconds: None
        """Called with the seconds of a move before it is made, for those who are not to follow."""
        self._now_ms = now_ms
        self._monotonic_s = monotonic_s
        self._elapsed_ms = elapsed_ms

    @property
    def ahead_ms(self) -> int:
        """By how much `advance` has moved everything."""
        return round(self.loop.ahead_s * 1000)

    def now_ms(self) -> int:
        return self._now_ms() + self.ahead_ms + self.jumped_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s() + self.loop.ahead_s

    def elapsed_ms(self) -> int:
        return self._elapsed_ms() + self.ahead_ms

    def advance(self, ms: int) -> int:
        """Let so much time have passed, on every clock and for every timer; the calls that fell
        due."""
        self.excuse(ms / 1000)
        return self.loop.move(ms / 1000)

    def jump(self, ms: int) -> None:
        """Set the wall clock, forward or back, as somebody does who sets the time of a machine. No
        time has passed, and no timer falls due."""
        self.jumped_ms += ms
