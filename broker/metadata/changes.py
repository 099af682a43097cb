"""Changes of the metadata, one after the other, without a sync on the loop.

A change is made of steps (`storage.steps`). Its first one is taken when the change before it has
ended, so that it sees all that was changed before. Jobs (a sync of the metadata log, the folders of
new partitions) are done on a thread; what is left is done on the loop in slices, between which
others are served. So a handler that changes something returns a `ChangeWait`:

    CreateTopics -> ChangeWait -> its turn: checks, records -> thread: sync -> replayed -> thread:
    folders -> opened, visible -> answered
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from broker import clock
from broker.pending import Waiting, error_answer
from protocol.errors import ErrorCode
from storage.steps import run_here

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.pending import Requester
    from broker.workers import Worker
    from protocol.connection import Request
    from storage.steps import Job, Steps

SLICE_S = 0.001
"""Time that a change may take of the loop at once."""


class _Change:
    """One change, waiting or under way. `job` is what it waits for, `outcome` what came of it: the
    result, and what was raised."""

    __slots__ = ("done", "failed", "job", "outcome", "steps")

    def __init__(
        self, steps: Steps[Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        self.steps = steps
        self.done = done
        self.failed = failed
        self.job: Job | None = None
        self.outcome: tuple[Any, Exception | None] = (None, None)


class Changes:
    """The queue of changes. Belongs to the loop; `worker` is one thread, for nothing else.

    As long as it is no longer than one change of each connection, whose next request is not started
    meanwhile.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: Worker,
        *,
        monotonic_s: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        self._loop = loop
        self._worker = worker
        self._monotonic_s = monotonic_s
        self._waiting: deque[_Change] = deque()
        self._current: _Change | None = None
        self.followed: Callable[[Callable[[], None]], None] | None = None
        """Calls what it is given when all who follow have what was changed so far; None where
        nobody is waited for."""

    def __len__(self) -> int:
        """Changes that have not ended."""
        return len(self._waiting) + (self._current is not None)

    def make(
        self,
        steps: Steps[Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Make this change when those before it have ended, then call `done` with what it returns,
        or `failed` with what it raises."""
        self._waiting.append(_Change(steps, done, failed))
        if self._current is None:
            self._begin()

    def later(self, delay_ms: int, then: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(max(delay_ms, 0) / 1000, then)

    def stop(self) -> None:
        """Finish the change that is under way, here and now, and give up those that have not begun:
        nobody is left to be answered. To be called when the thread has ended."""
        self._waiting.clear()
        change, self._current = self._current, None
        if change is not None:
            run_here(_rest(change))

    def _begin(self) -> None:
        if self._current is None and self._waiting:
            self._current = change = self._waiting.popleft()
            self._go_on(change)

    def _go_on(self, change: _Change) -> None:
        """Take steps until there is a job, the slice is over, or none is left."""
        if change is not self._current:
            return  # it was finished by the stop
        end_s = self._monotonic_s() + SLICE_S
        try:
            while True:
                job = change.job = _next(change)
                if job is not None:
                    self._do(change, job)
                    return
                if self._monotonic_s() >= end_s:
                    self._loop.call_soon(self._go_on, change)
                    return
        except StopIteration as end:
            ended = partial(change.done, end.value)
        except Exception as error:  # of any kind: whoever asked has to be answered
            ended = partial(change.failed, error)
        self._current = None
        if self._waiting:
            self._loop.call_soon(self._begin)
        ended()

    def _do(self, change: _Change, job: Job) -> None:
        def run() -> None:
            change.outcome = _outcome(job)
            change.job = None

        self._worker.run(run, lambda _: self._go_on(change))


def _outcome(job: Job) -> tuple[Any, Exception | None]:
    try:
        return job(), None
    except Exception as error:  # the steps are told
        return None, error


def _next(change: _Change) -> Job | None:
    """The next step. Raises StopIteration, and what the steps raise."""
    (result, error), change.outcome = change.outcome, (None, None)
    return change.steps.send(result) if error is None else change.steps.throw(error)


def _rest(change: _Change) -> Steps[None]:
    """The steps that are left of a change."""
    try:
        if change.job is not None:  # the thread has ended before it
            change.outcome = _outcome(change.job)
        while True:
            job = _next(change)
            if job is not None:
                change.outcome = _outcome(job)
            yield None
    except StopIteration as end:
        change.done(end.value)
    except Exception as error:
        change.failed(error)


class ChangeWait(Waiting):
    """A request that changes metadata, and waits for its turn, for the disk, and for those who
    follow: for these no longer than its timeout_ms, if it has one.

    `steps` return the answer, or another result of a handler; a KafkaError that they raise is the
    answer's code.
    """

    __slots__ = ("_address", "_changes", "_over", "_steps", "_timer")

    def __init__(self, changes: Changes, steps: Steps[Any], address: str) -> None:
        """`address` is the client's, for the log."""
        self._changes = changes
        self._steps = steps
        self._address = address
        self._over = False
        """It was answered, or the client is gone."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self, connection: Requester, request: Request) -> None:
        super().start(connection, request)
        self._changes.make(self._steps, self._done, self._failed)

    def finish(self) -> None:
        """The broker stops: the answer comes when the change has been made, and not before."""

    def cancel(self) -> None:
        """The client is gone; what it asked for is done all the same."""
        self._over = True

    def _done(self, result: Any) -> None:
        followed = self._changes.followed
        if followed is None:
            self._answer(result)
            return
        followed(partial(self._answer, result))
        timeout_ms = getattr(self.request.message, "timeout_ms", None)
        if timeout_ms is not None and not self._over:
            self._timer = self._changes.later(timeout_ms, self._time_out)

    def _time_out(self) -> None:
        """The change has been made, and somebody does not know of it yet."""
        refused = self.request.route.api.refused
        self._answer(refused(self.request.message, ErrorCode.REQUEST_TIMED_OUT))

    def _answer(self, result: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._over:
            self._over = True
            self.connection.finish_waiting(self.request, result)

    def _failed(self, error: Exception) -> None:
        self._done(error_answer(self.request, error, address=self._address))
