"""Values on their way to browsers. Each is held whole until its browser has it, so few are at a
time, and none for long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio
from starlette.responses import PlainTextResponse, Response

from tools.console.streaming import Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.types import Receive, Scope, Send

DOWNLOADS_MAX = 2
"""Values that are held at a time; others wait."""
WAITS_S = 10.0
"""For its turn; then a browser is told to come again."""
WITHIN_S = 300.0
"""For a browser to take a value; who has not is cut off."""
PIECE_BYTES = 256 << 10


class Download(Stream):
    """A value, to be kept under a name."""

    def __init__(self, name: str, content: bytes) -> None:
        fields = {
            "Content-Disposition": f"attachment; filename*=utf-8''{quote(name)}",
            "Content-Type": "application/octet-stream",
        }
        super().__init__(_pieces(content), fields, len(content))


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for position in range(0, len(content), PIECE_BYTES):
        yield content[position : position + PIECE_BYTES]


class InTurn(Response):
    """An answer that is made when its turn comes, and keeps the turn until it is sent."""

    def __init__(self, make: Callable[[], Awaitable[Response]], turns: anyio.Semaphore) -> None:
        super().__init__()
        self._make = make
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.move_on_after(WAITS_S) as patience:
            await self._turns.acquire()
        if patience.cancelled_caught:
            text = f"{DOWNLOADS_MAX} values are being downloaded at the moment: try again\n"
            await PlainTextResponse(text, 503)(scope, receive, send)
            return
        try:
            with anyio.move_on_after(WITHIN_S):
                answer = await self._make()
                await answer(scope, receive, send)
        finally:
            self._turns.release()
