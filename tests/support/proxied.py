"""A proxy with faults in the loop of the test, between a client and a broker that are scripts.

    async with Proxied() as proxied:
        client = await proxied.connect()
        client.write(request_frame)

The broker answers what `answers` says of a frame, without its length; None is no answer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any, Self

from broker.faults.proxy.brokers import Brokers, Listening, Upstream
from broker.faults.proxy.server import Proxy
from protocol.header import API_VERSIONS_KEY
from protocol.registry import APIS

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.schema import Message

LOOPBACK = "127.0.0.1"
NOW_MS = 1_700_000_000_000


def request_frame(key: int, version: int, body: bytes, *, correlation_id: int = 1) -> bytes:
    """A request of the client `c`, without its length."""
    head = key.to_bytes(2) + version.to_bytes(2) + correlation_id.to_bytes(4) + b"\x00\x01c"
    return head + bytes(version >= APIS[key].first_flexible) + body


def answer_frame(key: int, version: int, body: bytes, *, correlation_id: int = 1) -> bytes:
    """The answer to one, without its length."""
    has_tags = version >= APIS[key].first_flexible and key != API_VERSIONS_KEY
    return correlation_id.to_bytes(4) + bytes(has_tags) + body


class ScriptedUpstream:
    """A broker of this loop. `asked` has the frames that came."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.answers: Callable[[bytes], bytes | None] = lambda frame: frame[4:8]
        self.connections: list[asyncio.StreamWriter] = []
        self.lost = 0
        """Connections that the other side has ended."""
        self.port: int
        self._server: asyncio.Server
        self._news = asyncio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until this is so, which is looked at with each frame and each end."""
        while not condition():
            await self._news.wait()
            self._news.clear()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()
        for connection in self.connections:
            connection.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        while (frame := await read_frame(reader)) is not None:
            self.asked.append(frame)
            self._news.set()
            answer = self.answers(frame)
            if answer is not None:
                writer.write(len(answer).to_bytes(4) + answer)
        self.lost += 1
        self._news.set()


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame, without its length; None at the end."""
    try:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class ScriptedClient:
    """A client of this loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def write(self, frame: bytes) -> None:
        self._writer.write(len(frame).to_bytes(4) + frame)

    def write_raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def read(self) -> bytes | None:
        """The next frame; None when the connection has ended."""
        return await read_frame(self._reader)

    async def ask(self, frame: bytes) -> bytes | None:
        self.write(frame)
        return await self.read()

    async def call(self, request: Message, version: int) -> Any:
        """The answer to a request of one of our declarations."""
        key = type(request).key
        answer = await self.ask(request_frame(key, version, request.encode(version)))
        assert answer is not None, "the connection has ended"
        start = len(answer_frame(key, version, b""))
        return APIS[key].response.decode(version, answer[start:])

    def reset(self) -> None:
        """End the connection as a client that crashes with bytes unread."""
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


class Proxied:
    """The proxy, its broker and its clients."""

    def __init__(self) -> None:
        self.upstream = ScriptedUpstream()
        self.proxy: Proxy
        self.port: int
        self.brokers: Brokers
        self._clients: list[ScriptedClient] = []

    async def connect(self, port: int | None = None) -> ScriptedClient:
        """A new client of the proxy, at its first port unless another is named."""
        client = ScriptedClient(*await asyncio.open_connection(LOOPBACK, port or self.port))
        self._clients.append(client)
        return client

    async def __aenter__(self) -> Self:
        await self.upstream.open()
        self.proxy = Proxy(Upstream(LOOPBACK, self.upstream.port), now_ms=lambda: NOW_MS)
        self.port = await self.proxy.open(Listening(LOOPBACK), None)
        self.brokers = self.proxy.brokers
        return self

    async def __aexit__(self, *error: object) -> None:
        for client in self._clients:
            client.close()
        await self.proxy.close()
        self.upstream.close()
