"""The proxy: its parts, made together; opened and closed."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from broker import logs
from broker.faults.conversations import Conversations
from broker.faults.engine import Engine
from broker.faults.interface import Interface
from broker.faults.port import ControlPort
from broker.faults.proxy.answers import TopicNames
from broker.faults.proxy.brokers import Brokers, Upstream
from broker.faults.proxy.connection import ProxiedConnection
from protocol.client import reason
from protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.faults.injection import Address
    from broker.faults.proxy.brokers import Listening
    from broker.faults.proxy.observer import Observer

    Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
    Connect = Callable[[str, int], Awaitable[Connection]]

CONNECT_WITHIN_S = 10.0


class Proxy:
    """A proxy in front of the cluster that one of its brokers names. Belongs to the loop."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        now_ms: Callable[[], int],
        observer: Observer | None = None,
        connect: Connect = asyncio.open_connection,
    ) -> None:
        """`observer` is told of what passes. `connect` connects to the host and port of a broker,
        and raises OSError."""
        self.engine = Engine(lambda: int.from_bytes(os.urandom(4), "big"), has_disk=False)
        self._upstream = upstream
        self._now_ms = now_ms
        self._observer = observer
        self._connect = connect
        self._conversations = Conversations()
        self.interface = Interface(self.engine, self._conversations)
        self._names = TopicNames()
        self.brokers: Brokers
        """The ports here; there is one from `open` on."""
        self._port: ControlPort | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, listening: Listening, testing: Address | None) -> int:
        """Listen for clients, and for tests if `testing` says where; the port that leads to the
        broker named first. Raises OSError, NotOnLoopback."""
        self.brokers = Brokers(listening, self._serve)
        found = await self.brokers.open(self._upstream)
        assert found is not None
        if testing is not None:
            control = ControlPort(asyncio.get_running_loop(), self.interface)
            await control.open(testing.host, testing.port, anywhere=testing.anywhere)
            self._port = control
        return found

    @property
    def control(self) -> str | None:
        """host:port of the control port, if it is open."""
        return None if self._port is None else self._port.address

    async def close(self) -> None:
        self.brokers.close()
        if self._port is not None:
            self._port.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(
        self, upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._carry(upstream, reader, writer)
        except (OSError, Malformed) as error:
            if reader.exception() is None:  # else the client has gone, which is no news
                peer = writer.get_extra_info("peername")
                logs.warn_once_a_minute(
                    "a connection was closed", _why(error), str(peer[0]), broker=str(upstream)
                )
        except asyncio.CancelledError:
            pass  # by `close`
        except Exception as error:
            logs.fault_once_a_minute("a connection was closed by a fault of ours", error, "proxy")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _carry(
        self, upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                there = await self._connect(upstream.host, upstream.port)
        except ConnectionRefusedError:
            raise ConnectionError("nobody listens at the broker's address") from None
        except TimeoutError:
            raise ConnectionError(
                f"no connection to the broker within {CONNECT_WITHIN_S:g} s"
            ) from None
        try:
            await ProxiedConnection(
                client=(reader, writer),
                upstream=there,
                brokers=self.brokers,
                names=self._names,
                engine=self.engine,
                conversations=self._conversations,
                now_ms=self._now_ms,
                observer=self._observer,
            ).run()
        finally:
            there[1].close()


def _why(error: OSError | Malformed) -> str:
    """In the system's words, if it is an error of the system's."""
    if isinstance(error, OSError) and error.errno is not None:
        return reason(error)
    return str(error)
