"""Connections of the processes of one directory to each other: over a Unix socket that has no name
in the file system, and that nobody but this user may connect to.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import TYPE_CHECKING

from broker import logs
from broker.assembly import Broker
from broker.network.connection import Connection
from broker.security.principal import PROCESS

if TYPE_CHECKING:
    from protocol.connection import Request

INTERNAL = "internal socket"
"""The listener of processes for each other; none of the settings can have such a name."""
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: process, user, group."""


class _InternalConnection(Connection):
    """Of another process; anybody else is turned away."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        one = transport.get_extra_info("socket")
        found = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(found)
        if user != os.getuid():
            logs.warning("a stranger at the internal socket", user=user)
            self.abort()
            return
        self.context.principal = PROCESS

    def _charge(self, request: Request, buffered: int, began_s: float) -> bool:
        """Quotas are those of clients: whoever waits for a process is not to wait for one."""
        return False


def internal_connection(broker: Broker) -> _InternalConnection:
    return _InternalConnection(
        broker.parts,
        INTERNAL,
        broker.listener_routes.internal,
        backlog=broker.backlog,
        turn=broker.turn,
        admit=lambda _: True,
        lost=lambda _: None,
    )
