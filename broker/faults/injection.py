"""Fault injection, switched on: its parts, made together, and what a broker gets of them.

`triglot serve --testing` makes one and hands it to the start; so does who runs a broker in the own
process, who needs no port.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, cast

from broker.faults.clock import MovableClock
from broker.faults.conversations import Conversations
from broker.faults.dispatch import faulted
from broker.faults.engine import Engine
from broker.faults.files import FaultyFilesystem
from broker.faults.interface import Interface

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.faults.events import Events
    from broker.faults.listings import Listings
    from broker.faults.port import ControlPort
    from broker.network.connections import Connections
    from broker.network.dispatch import Handler
    from storage.filesystem import Filesystem


class Address(NamedTuple):
    """Where the control port is to be; port 0 picks a free one. `anywhere` says that it need not be
    on loopback."""

    host: str
    port: int
    anywhere: bool = False


class FaultInjection:
    """The faults of one broker."""

    def __init__(self, address: Address | None = None) -> None:
        """Without an address there is no port."""
        self.engine = Engine(lambda: int.from_bytes(os.urandom(4), "big"))
        self.conversations = Conversations()
        self.clock: MovableClock
        self.interface = Interface(self.engine, self.conversations)
        """Without clock and events before the broker begins."""
        self._address = address
        self._port: ControlPort | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop of the broker that has begun, which is not moved."""

    def begin(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        now_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        elapsed_ms: Callable[[], int],
    ) -> asyncio.AbstractEventLoop:
        """Take the clocks and the loop of the broker that starts; the loop that it is to use."""
        self.loop = loop
        self.clock = MovableClock(
            loop, now_ms=now_ms, monotonic_s=monotonic_s, elapsed_ms=elapsed_ms
        )
        self.interface = Interface(self.engine, self.conversations, self.clock)
        return cast("asyncio.AbstractEventLoop", self.clock.loop)

    def faulted(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """A table of handlers with the faults before them."""
        return faulted(handlers, self.engine, self.conversations)

    def faulty(self, files: Filesystem) -> Filesystem:
        """A file system with the faults of the disk before it."""
        return cast("Filesystem", FaultyFilesystem(files, self.engine))

    async def data_is_open(self) -> None:
        """Called by a start that has opened the data directory and made nothing else: whoever
        wants it to go on later waits here."""

    async def open(self, connections: Connections, events: Events, listings: Listings) -> None:
        """The broker has these. Open the control port, if there is to be one. Raises
        NotOnLoopback, OSError."""
        self.clock.excuse = connections.excuse
        self.interface.events, self.interface.listings = events, listings
        if self._address is not None:
            from broker.faults.port import ControlPort  # most brokers of tests have none

            assert self.loop is not None
            port = ControlPort(self.loop, self.interface)
            host, number, anywhere = self._address
            await port.open(host, number, anywhere=anywhere)
            self._port = port

    @property
    def control(self) -> str | None:
        """host:port of the control port that is open."""
        return None if self._port is None else self._port.address

    def close(self) -> None:
        self.interface.tell_unfired()
        if self._port is not None:
            self._port.close()
