"""Background work on the loop in slices, so that requests are served between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import clock, logs

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    Wait = Callable[[Callable[[], None]], None]
    """Begins something that takes place elsewhere; it is given what is to be called at its end."""


class Slicer:
    """Goes through one iterator at a time: for `slice_s`, then not for `pause_s`, and so on.

    Each step yields None, or a `Wait`: then the next slice begins `pause_s` after its end. Belongs
    to the loop.
    """

    __slots__ = (
        "_done", "_end_s", "_failed", "_loop", "_monotonic_s", "_name", "_pause_s", "_slice_s",
        "_timer", "_work",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        *,
        slice_s: float,
        pause_s: float,
        monotonic_s: Callable[[], float] | None = None,
    ) -> None:
        self._loop = loop
        self._name = name
        self._slice_s = slice_s
        self._pause_s = pause_s
        self._monotonic_s = monotonic_s or clock.monotonic_s
        self._end_s = 0.0
        self._work: Iterator[Wait | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._done: Callable[[], None]
        self._failed: Callable[[Exception], None] | None

    @property
    def is_running(self) -> bool:
        return self._work is not None

    @property
    def is_slice_over(self) -> bool:
        """Whether the slice that runs has had its time: work that ends a slice itself asks this."""
        return self._monotonic_s() >= self._end_s

    def run(
        self,
        work: Iterator[Wait | None],
        done: Callable[[], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Begin with this work, now; at its end call `done`, or `failed` with what it raised.

        Without `failed` what it raises is logged, and it is done. What was under way is given up.
        """
        self.stop()
        self._work = work
        self._done = done
        self._failed = failed
        self._slice(work)

    def stop(self) -> None:
        """Give up the work that is under way."""
        self._work = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _slice(self, work: Iterator[Wait | None]) -> None:
        self._end_s = self._monotonic_s() + self._slice_s
        try:
            for wait in work:
                if wait is not None:
                    wait(lambda: self._pause(work))
                    return
                if self.is_slice_over:
                    self._pause(work)
                    return
        except Exception as error:
            self._work = None
            if self._failed is not None:
                self._failed(error)
                return
            logs.fault_once_a_minute("background work failed", error, self._name)
        else:
            if self._work is not work:
                return  # stopped by one of its own steps
            self._work = None
        self._done()

    def _pause(self, work: Iterator[Wait | None]) -> None:
        if self._work is work:
            self._timer = self._loop.call_later(self._pause_s, self._slice, work)
