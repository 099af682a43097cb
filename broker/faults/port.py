"""The control port: the interface of faults over HTTP, on loopback, for a test in any language."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

from broker import logs
from broker.http_exchange import HttpExchange, field
from broker.network.secured import is_loopback

if TYPE_CHECKING:
    import asyncio

    from broker.faults.interface import Interface
    from broker.http_exchange import HttpRequest

BODY_BYTES_MAX = 65_536
"""More than a fault's description needs."""
JSON = "application/json"


class NotOnLoopback(ValueError):
    """The address can be reached from other machines, and nobody said that it may."""


class ControlPort:
    """The open port. Belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interface: Interface) -> None:
        self._loop = loop
        self._interface = interface
        self._exchanges: set[HttpExchange] = set()
        self._server: asyncio.Server

    async def open(self, host: str, port: int, *, anywhere: bool = False) -> None:
        """Raises NotOnLoopback, unless it may be `anywhere`; OSError."""
        if not (anywhere or is_loopback(host)):
            raise NotOnLoopback(
                f"whoever reaches {host}:{port} could break this broker; --testing wants one "
                "of loopback (127.0.0.1:0), or --testing-anywhere beside it"
            )
        self._server = await self._loop.create_server(
            lambda: HttpExchange(
                self._loop, self._exchanges, self._answer, body_bytes_max=BODY_BYTES_MAX
            ),
            host,
            port,
        )
        logs.warning(
            "TESTING IS ON: whoever reaches the control port can break this broker",
            control=self.address,
        )

    @property
    def address(self) -> str:
        """host:port"""
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    def close(self) -> None:
        self._server.close()

    def _answer(self, exchange: HttpExchange, request: HttpRequest) -> None:
        if field(request.head, b"origin") is not None:
            status, answer = HTTPStatus.FORBIDDEN.value, {"error": "no page of a browser is served"}
        else:
            target = f"{request.path}?{request.query}"
            status, answer = self._interface.call(request.method, target, request.body)
        line = f"{status} {HTTPStatus(status).phrase}"
        exchange.send(line, json.dumps(answer, indent=1) + "\n", kind=JSON)
