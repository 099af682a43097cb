"""The brokers of the cluster behind a proxy, each with a port of its own here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from broker import logs
from protocol.client import written

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from ssl import SSLContext

    Serve = Callable[["Upstream", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

BROKERS_MAX = 1_000
"""Ports that are opened; the address of another broker is not rewritten."""


class Upstream(NamedTuple):
    """The address of a broker, as the cluster names it."""

    host: str
    port: int

    def __str__(self) -> str:
        return written(self.host, self.port)


class Listening(NamedTuple):
    """Where the proxy listens, and by which address clients reach it.

    The broker that is named first gets `first_port`, 0 for a free one; the others the next ones up
    to `last_port`, or free ones if that is 0. Answers name `advertised_host`, or the host by which
    a client has come if that is empty. `advertised_port` stands for `first_port`, the next number
    for the next port, as a container publishes them; 0 leaves the numbers as they are. With `tls`
    clients speak TLS, else plaintext.
    """

    host: str
    first_port: int = 0
    last_port: int = 0
    advertised_host: str = ""
    advertised_port: int = 0
    tls: SSLContext | None = None

    def port(self, number: int) -> int | None:
        """The port for the broker of this number, 0 for a free one; None if there is none left."""
        if not self.last_port:
            return 0 if number else self.first_port
        port = self.first_port + number
        return port if port <= self.last_port else None

    def advertised(self, port: int, host_here: str) -> tuple[str, int]:
        """Host and port that lead clients to a port here; `host_here` is how one has come."""
        host = self.advertised_host or host_here
        if not self.advertised_port:
            return host, port
        return host, self.advertised_port + port - self.first_port


class Brokers:
    """The ports, opened as brokers become known. Belongs to the loop."""

    def __init__(self, listening: Listening, serve: Serve) -> None:
        """`serve` is called with each connection that comes."""
        self.listening = listening
        self._serve = serve
        self._servers: dict[Upstream, asyncio.Server] = {}
        self._opening = asyncio.Lock()

    async def open(self, upstream: Upstream) -> int | None:
        """The port here that leads to this broker, opened if it is not yet; None if there are too
        many. Raises OSError."""
        async with self._opening:
            server = self._servers.get(upstream)
            if server is None:
                port = self.listening.port(len(self._servers))
                if port is None or len(self._servers) >= BROKERS_MAX:
                    logs.warn_once_a_minute(
                        "clients go past the proxy", "no port is left for a broker", str(upstream)
                    )
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

        server = await asyncio.start_server(
            serve, self.listening.host, port, ssl=self.listening.tls
        )
        logs.info(
            "a port leads to a broker",
            port=server.sockets[0].getsockname()[1],
            broker=str(upstream),
        )
        return server
