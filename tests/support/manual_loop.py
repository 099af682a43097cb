"""An event loop's clock and timers, for parts that run nothing else on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class ManualTimer:
    """One call to come; `cancel` as of `asyncio.TimerHandle`."""

    def __init__(self, loop: ManualLoop, when_s: float, call: Callable[[], None]) -> None:
        self._loop = loop
        self.when_s = when_s
        self.call = call

    def cancel(self) -> None:
        if self in self._loop.timers:
            self._loop.timers.remove(self)


class ManualLoop:
    """Time passes in `pass_s` only, and is that of each timer while it is called."""

    def __init__(self) -> None:
        self.now_s = 1.0
        self.timers: list[ManualTimer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, call: Callable[..., None], *arguments: Any) -> ManualTimer:
        timer = ManualTimer(self, when_s, lambda: call(*arguments))
        self.timers.append(timer)
        return timer

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> ManualTimer:
        return self.call_at(self.now_s + delay_s, call, *arguments)

    def pass_s(self, seconds: float) -> None:
        until = self.now_s + seconds
        while due := [timer for timer in self.timers if timer.when_s <= until]:
            timer = min(due, key=lambda each: each.when_s)
            self.timers.remove(timer)
            self.now_s = max(self.now_s, timer.when_s)
            timer.call()
        self.now_s = max(self.now_s, until)
