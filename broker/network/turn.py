"""The produce requests of all connections that one turn of the loop has read.

A thousand producers that send a small batch each are read one after the other in one turn of the
loop. Written for each connection, their batches would take a system call each, which costs as much
as all the rest of such a request. So connections put off their answers to the end of the turn: then
every log gets one write, and every connection its answers.

Only small requests wait for each other, and none for another turn: there is nothing to wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker import logs

if TYPE_CHECKING:
    import asyncio

    from broker.producing.appends import Appends

WAITING_BYTES_MAX = 65_536
"""Bytes of batches that wait for the end of a turn. They are to be written while they are in the
cache of the processor, where the checksum has brought them."""


class Answering(Protocol):
    """A connection with requests that are handled and not answered."""

    def end_turn(self) -> None:
        """Answer them: their batches are written, or refused."""

    def abort(self) -> None:
        """Close it at once."""


class Turn:
    """Belongs to the loop; one serves all connections."""

    __slots__ = ("_appends", "_connections", "_loop", "_scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop, appends: Appends) -> None:
        self._loop = loop
        self._appends = appends
        self._connections: list[Answering] = []
        self._scheduled = False

    def join(self, connection: Answering) -> None:
        """Have this connection, which has not joined yet, answer at the end of the turn, or now if
        enough is waiting."""
        self._connections.append(connection)
        if self._appends.pending_bytes > WAITING_BYTES_MAX:
            self.end()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end_scheduled)

    def end(self) -> None:
        """Write what is queued, and have all that have joined answer."""
        connections, self._connections = self._connections, []
        self._appends.write()
        for connection in connections:
            try:
                connection.end_turn()
            except Exception as error:
                logs.fault_once_a_minute("a connection could not answer", error, "turn")
                connection.abort()

    def _end_scheduled(self) -> None:
        self._scheduled = False
        self.end()
