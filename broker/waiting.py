"""Fetches that wait for bytes or for time.

A waiting fetch costs nothing: it is entered with each partition that it watches, an append there
tells it how many bytes came, and one timer bounds the wait. Data is read only when the fetch is to
be answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker import logs
from broker.pending import Waiting
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.connection import Connection
    from broker.partition import Partition
    from protocol.connection import Request


class FetchWait(Waiting):
    """A fetch that found too little. `read` makes its answer when the wait is over."""

    __slots__ = ("_loop", "_max_wait_s", "_missing_bytes", "_partitions", "_read", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        partitions: list[Partition],
        missing_bytes: int,
        max_wait_ms: int,
        read: Callable[[], Any],
    ) -> None:
        self._loop = loop
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._max_wait_s = max_wait_ms / 1000
        self._read = read
        self._timer: asyncio.TimerHandle | None = None

    def start(self, connection: Connection, request: Request) -> None:
        super().start(connection, request)
        for partition in self._partitions:
            partition.waits[self] = None
        self._timer = self._loop.call_later(self._max_wait_s, self.finish)

    def grown(self, size: int) -> None:
        """A watched partition holds `size` bytes more."""
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self.finish()

    def finish(self) -> None:
        """Answer with what there is now.

        Called from within the burst of whoever appended, so a fault in reading ends here.
        """
        self.cancel()
        try:
            response = self._read()
        except Exception as error:
            api = self.request.route.api
            logs.fault_once_a_minute("a handler failed", error, f"{api.name}, after waiting")
            response = api.refused(self.request.message, ErrorCode.UNKNOWN_SERVER_ERROR)
        self.connection.finish_waiting(self.request, response)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._partitions:
            partition.waits.pop(self, None)
