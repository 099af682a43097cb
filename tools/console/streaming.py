"""Server-sent events: records as they come, to a page that stays open.

A browser that does not read is not waited for long, and nothing is queued for it: the next look
begins when what the last one found was taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio
from starlette.responses import Response

from client.errors import Failure
from tools.console.broker_port import NoAnswer
from tools.console.visit import WrongQuestion
from tools.errors import NotDone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.types import Receive, Scope, Send

STREAMS_MAX = 20
"""Pages that follow at a time; one more is told so."""
LOOK_EVERY_S = 0.5
LOOKS_MAX = 7200
"""An hour of them; then a page is told to ask again: somebody may have forgotten it."""
SEND_WITHIN_S = 30.0
"""For the browser to take an event; who has not is cut off."""
ALIVE_EVERY_LOOKS = 30
"""Looks without anything, after which a line shows that the connection lives."""


class Seen(NamedTuple):
    """What a look has found: `rows` of a table, as HTML; how many records it had to leave out; and
    why there is no further look, or nothing."""

    rows: str
    skipped: int
    over: str


class Streams:
    """The pages that follow. Belongs to the loop."""

    def __init__(self) -> None:
        self._open = 0

    async def events(
        self, look: Callable[[], Seen], threads: anyio.CapacityLimiter
    ) -> AsyncIterator[bytes]:
        """The events of one more; `look` is called on a thread. What goes wrong is an event too: a
        browser would ask again and again."""
        if self._open >= STREAMS_MAX:
            yield event("over", f"{STREAMS_MAX} pages follow topics at the moment: close one")
            return
        self._open += 1
        try:
            async for data in _looks(look, threads):
                yield data
        except (Failure, NoAnswer, NotDone, WrongQuestion) as error:
            yield event("over", str(error))
        finally:
            self._open -= 1


async def _looks(look: Callable[[], Seen], threads: anyio.CapacityLimiter) -> AsyncIterator[bytes]:
    quiet = 0
    for _ in range(LOOKS_MAX):
        seen = await anyio.to_thread.run_sync(look, limiter=threads)
        if seen.skipped:
            yield event("note", f"{seen.skipped:,} records came too fast, and were left out")
        if seen.rows:
            yield event("records", seen.rows)
        if seen.over:
            yield event("over", seen.over)
            return
        if quiet % ALIVE_EVERY_LOOKS == 0:
            yield b":\n\n"
        quiet = 0 if seen.rows else quiet + 1
        await anyio.sleep(LOOK_EVERY_S)
    yield event("over", "this was an hour: go on, if somebody still looks")


def event(name: str, text: str) -> bytes:
    """An event of this name; each line of its text has to be marked."""
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: {name}\n{lines}\n".encode()


class Stream(Response):
    """Sends what `pieces` brings, until its end or that of the connection."""

    def __init__(
        self, pieces: AsyncIterator[bytes], fields: Mapping[str, str], size: int | None = None
    ) -> None:
        """`size` is that of all of them, where that is known."""
        super().__init__(headers=fields)
        if size is None:
            del self.headers["content-length"]
        else:
            self.headers["content-length"] = str(size)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:

            async def end_with_connection() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(end_with_connection)
            await self._send_pieces(send)
            tasks.cancel_scope.cancel()

    async def _send_pieces(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for data in self._pieces:
            with anyio.move_on_after(SEND_WITHIN_S) as patience:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            if patience.cancelled_caught:
                return  # the server closes a connection whose answer has no end
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class EventStream(Stream):
    """Sends events as they come."""

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, {"Content-Type": "text/event-stream; charset=utf-8"})
