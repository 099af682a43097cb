"""A bad line: it breaks after a random number of bytes, so many times, and then holds."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator


class CuttingProxy:
    """Passes bytes on to `port`. `cuts` is how often it has broken. The bytes of the answers are
    counted: each connection but the last ones has up to `most` of them."""

    def __init__(self, port: int, *, cuts: int, most: int, rng: random.Random) -> None:
        self.cuts = 0
        self.port = 0
        self._to = port
        self._wanted = cuts
        self._most = most
        self._rng = rng
        self._passing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[CuttingProxy]:
        """Listen on a free port."""
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            passing = list(self._passing)
            for one in passing:
                one.cancel()
            await asyncio.gather(*passing, return_exceptions=True)
            await asyncio.sleep(0)  # in which what was aborted is closed

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        with suppress(ConnectionError, asyncio.CancelledError):
            upstream, downstream = await asyncio.open_connection("127.0.0.1", self._to)
            requests = asyncio.create_task(_copy(reader, downstream))
            try:
                await self._answer(upstream, writer)
            finally:
                requests.cancel()
                downstream.transport.abort()
                writer.transport.abort()

    async def _answer(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self._rng.randrange(1, self._most) if self.cuts < self._wanted else None
        while data := await upstream.read(65536):
            if left is not None and len(data) >= left:
                writer.write(data[:left])
                await writer.drain()
                await asyncio.sleep(0)
                self.cuts += 1
                return
            if left is not None:
                left -= len(data)
            writer.write(data)
            await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
