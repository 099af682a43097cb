"""HTTP/1.1 by uvicorn, with a time for the first request: browsers open connections that they never
use, and others may open them to keep the rest out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

REQUEST_WITHIN_S = 10.0
"""From the opening of a connection to the end of its first request's head."""


class HttpProtocol(H11Protocol):
    """A connection of a browser."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._first: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._first = self.loop.call_later(REQUEST_WITHIN_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._first is not None and self.cycle is not None:
            self._stop_waiting()

    def _give_up(self) -> None:
        self._first = None
        self.transport.close()

    def _stop_waiting(self) -> None:
        if self._first is not None:
            self._first.cancel()
            self._first = None
