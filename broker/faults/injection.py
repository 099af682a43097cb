"""Fault injection, switched on: its parts, made together, and what a broker gets of them.

`triglot serve --testing` makes one and hands it to the start; so does who runs a broker in the own
process, who needs no port.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from broker.faults.conversations import Conversations
from broker.faults.dispatch import faulted
from broker.faults.engine import Engine
from broker.faults.interface import Interface
from broker.faults.port import ControlPort

if TYPE_CHECKING:
    import asyncio

    from broker.network.dispatch import Handler


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
        self.interface = Interface(self.engine, self.conversations)
        self._address = address
        self._port: ControlPort | None = None

    def faulted(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """A table of handlers with the faults before them."""
        return faulted(handlers, self.engine, self.conversations)

    async def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the control port, if there is to be one. Raises NotOnLoopback, OSError."""
        if self._address is not None:
            port = ControlPort(loop, self.interface)
            host, number, anywhere = self._address
            await port.open(host, number, anywhere=anywhere)
            self._port = port

    @property
    def control(self) -> str | None:
        """host:port of the control port that is open."""
        return None if self._port is None else self._port.address

    def close(self) -> None:
        if self._port is not None:
            self._port.close()
