"""Fetches that wait: for bytes, for time, or for records to be converted.

A waiting fetch costs nothing: it is entered with each partition that it watches, an append there
tells it how many bytes came, and one timer bounds the wait. Data is read only when the fetch is
likely to be answered.

Conversion has no time limit: the records are there, and a fetch that gave up on them would come
back for the same ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from broker import clock, logs
from broker.pending import Waiting
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.fetching.conversion import ConversionUnit, Key, Outcome, Ticket
    from broker.partitions.topic import Partition
    from broker.pending import Requester
    from protocol.connection import Request

    Missing = list[tuple[list[ConversionUnit], int]]
    """By partition: what must be converted, and how many bytes of it are wanted."""
    Convert = Callable[[Missing, Callable[[dict[Key, Outcome]], None]], Ticket]
    """`Conversions.begin`."""


class FetchProgress:
    """The state of a fetch between two passes over the logs.

    converted  results that it waited for; they are its own until it is answered
    passed     by partition of the request, the offset below which there is nothing for its reader
    """

    __slots__ = ("converted", "passed")

    def __init__(self) -> None:
        self.converted: dict[Key, Outcome] = {}
        self.passed: dict[int, int] = {}


class ReadPass(Protocol):
    """One pass over all partitions of a fetch."""

    watched: list[Partition]
    found_bytes: int
    missing: Missing
    unfinished: bool
    """Nothing was found so far, and the pass goes on in another turn of the loop."""

    def is_enough(self) -> bool:
        """Whether the fetch may be answered with what was found."""

    @property
    def missing_bytes(self) -> int:
        """Bytes that must be appended before another pass is worth while."""

    def response(self) -> Any: ...

    def forget(self) -> None:
        """Give back what an answer would have held."""


class FetchWait(Waiting):
    """A fetch that can't be answered after its first pass, `first`; `read` makes others."""

    __slots__ = (
        "_convert",
        "_deadline_s",
        "_first",
        "_handle",
        "_loop",
        "_max_wait_s",
        "_missing_bytes",
        "_progress",
        "_read",
        "_ticket",
        "_watched",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        convert: Convert,
        progress: FetchProgress,
        read: Callable[[], ReadPass],
        first: ReadPass,
        *,
        max_wait_ms: int,
    ) -> None:
        self._loop = loop
        self._convert = convert
        self._progress = progress
        self._read = read
        self._first: ReadPass | None = first
        self._max_wait_s = max(max_wait_ms, 0) / 1000
        self._watched: list[Partition] = []
        self._missing_bytes = 0
        self._handle: asyncio.Handle | None = None
        self._ticket: Ticket | None = None

    def start(self, connection: Requester, request: Request) -> None:
        super().start(connection, request)
        self._deadline_s = self._loop.time() + self._max_wait_s
        self._step()

    def grown(self, size: int) -> None:
        """A watched partition holds `size` bytes more."""
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self._step()

    def finish(self) -> None:
        """Answer with what there is now, without waiting for anything."""
        self._step(at_once=True)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._ticket is not None:
            self._ticket.drop()
            self._ticket = None
        for partition in self._watched:
            partition.waits.pop(self, None)
        self._watched = []

    def _step(self, *, at_once: bool = False, converted: bool = False) -> None:
        """ReadPass, then answer or wait for whatever comes next.

        Called from within the burst of whoever appended, so a fault in reading ends here.
        `converted`: this pass follows a conversion; it need not be followed by another one if it
        found anything.
        """
        self.cancel()
        try:
            began_s = clock.thread_s()
            reading = self._first or self._read()
            if self._first is None:
                self.worked(clock.thread_s() - began_s)
            self._first = None
            if not at_once and not (converted and reading.found_bytes) and self._must_wait(reading):
                return
            response = reading.response()
        except Exception as error:
            api = self.request.route.api
            logs.fault_once_a_minute("a handler failed", error, f"{api.name}, after waiting")
            response = api.refused(self.request.message, ErrorCode.UNKNOWN_SERVER_ERROR)
        self._progress.converted.clear()
        self.connection.finish_waiting(self.request, response)

    def _must_wait(self, reading: ReadPass) -> bool:
        """Whether there is something to wait for; if so, that has begun."""
        if reading.missing:
            reading.forget()
            self._ticket = self._convert(reading.missing, self._converted)
            return True
        if reading.unfinished:
            self._handle = self._loop.call_soon(self._step)
            return True
        if reading.is_enough() or self._loop.time() >= self._deadline_s:
            return False
        reading.forget()
        self._progress.converted.clear()
        self._missing_bytes = reading.missing_bytes
        self._watched = reading.watched
        for partition in self._watched:
            partition.waits[self] = None
        self._handle = self._loop.call_at(self._deadline_s, self._time_is_up)
        return True

    def _time_is_up(self) -> None:
        self._deadline_s = 0.0  # a timer may fire a fraction of a millisecond early
        self._step()

    def _converted(self, made: dict[Key, Outcome]) -> None:
        if self._ticket is not None:
            self.worked(self._ticket.worked_s)
        self._ticket = None
        self._progress.converted |= made
        self._step(converted=True)
