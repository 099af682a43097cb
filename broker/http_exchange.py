"""One request of HTTP/1.0 and its answer, for ports that machines ask for pages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_WITHIN_S = 10.0
"""For the request and its answer."""
HEAD_BYTES_MAX = 8_192
"""More than any client sends; a longer head is cut off."""
CONNECTIONS_MAX = 100
"""Connections of a port at a time; more are closed at once."""
HEAD_END = b"\r\n\r\n"
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class HttpRequest(NamedTuple):
    """A whole request. `head` is all before the body, `query` what follows the path behind '?'."""

    method: str
    path: str
    query: str
    head: bytes
    body: bytes


class HttpExchange(asyncio.Protocol):
    """A connection with one request; it is closed behind the answer."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exchanges: set[HttpExchange],
        answer: Callable[[HttpExchange, HttpRequest], None],
        *,
        body_bytes_max: int = 0,
    ) -> None:
        """`exchanges` are those of the port that are open. `answer` is to call `send`."""
        self._loop = loop
        self._exchanges = exchanges
        self._answer = answer
        self._body_bytes_max = body_bytes_max
        self._received = bytearray()
        self._method = b""
        self._is_asked = False
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport, not its class.
        self._transport = cast("asyncio.Transport", transport)
        self._exchanges.add(self)
        self._timer = self._loop.call_later(REQUEST_WITHIN_S, self._transport.abort)
        if len(self._exchanges) > CONNECTIONS_MAX:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._exchanges.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing() or self._is_asked:
            return
        self._received += data
        head, end, body = self._received.partition(HEAD_END)
        if not end:
            if len(self._received) > HEAD_BYTES_MAX:
                self._transport.abort()
            return
        first = bytes(head.partition(b"\r\n")[0])
        self._method, _, rest = first.partition(b" ")
        size = _body_size(bytes(head))
        if size is None or size > self._body_bytes_max:
            reason = f"the body's length is missing, or above {self._body_bytes_max} bytes\n"
            self.send("413 Content Too Large", reason)
        elif len(body) >= size:
            self._is_asked = True
            target = rest.partition(b" ")[0].decode("latin-1")
            path, _, query = target.partition("?")
            method = self._method.decode("latin-1")
            self._answer(self, HttpRequest(method, path, query, bytes(head), bytes(body[:size])))

    def send(self, status: str, text: str, *, kind: str = TEXT, fields: str = "") -> None:
        """Answer, unless the client is gone. `fields` are more lines of the head."""
        if self._transport.is_closing():
            return
        body = text.encode()
        head = (
            f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\n"
            f"{fields}Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        self._transport.write(head if self._method == b"HEAD" else head + body)
        self._transport.close()


def field(head: bytes, name: bytes) -> bytes | None:
    """The value of a field of this name in lower case; None if the head has none."""
    for line in head.split(b"\r\n")[1:]:
        found, _, value = line.partition(b":")
        if found.strip().lower() == name:
            return value.strip()
    return None


def _body_size(head: bytes) -> int | None:
    """Bytes of the body that follows; None if the head does not say how many."""
    if field(head, b"transfer-encoding") is not None:
        return None
    size = field(head, b"content-length") or b"0"
    return int(size) if size.isdigit() else None
