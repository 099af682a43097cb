"""The brokers of the cluster behind a proxy, each with a port of its own here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from broker import logs
from protocol.client import written

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Serve = Callable[["Upstream", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

BROKERS_MAX = 1_000
"""Ports that are opened; the address of another broker is not rewritten."""


class Upstream(NamedTuple):
    """The address of a broker, as the cluster names it."""

    host: str
    port: int

    def __str__(self) -> str:
        return written(self.host, self.port)


class Brokers:
    """The ports, opened as brokers become known. Belongs to the loop."""

    def __init__(self, host: str, serve: Serve) -> None:
        """All ports are of this host; `serve` is called with each connection that comes."""
        self._host = host
        self._serve = serve
        self._servers: dict[Upstream, asyncio.Server] = {}
        self._opening = asyncio.Lock()

    async def open(self, upstream: Upstream, port: int = 0) -> int | None:
        """The port here that leads to this broker, opened if it is not yet; None if there are too
        many. Raises OSError."""
        async with self._opening:
            server = self._servers.get(upstream)
            if server is None:
                if len(self._servers) >= BROKERS_MAX:
                    return None
                server = self._servers[upstream] = await self._listen(upstream, port)
        found: int = server.sockets[0].getsockname()[1]
        return found

    def close(self) -> None:
        for server in self._servers.values():
            server.close()

    async def _listen(self, upstream: Upstream, port: int) -> asyncio.Server:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(upstream, reader, writer)

        server = await asyncio.start_server(serve, self._host, port)
        logs.info(
            "a port leads to a broker",
            port=server.sockets[0].getsockname()[1],
            broker=str(upstream),
        )
        return server
