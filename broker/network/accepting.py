"""Accepting connections where a server of the event loop takes too many at once.

asyncio's own loop accepts all who wait, as many as the kernel's queue holds, before one of them can
be refused: a crowd leaves no descriptor for anything else. And when it stops to listen, it drops
those that it has accepted and not begun with. uvloop hands over each as it accepts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable

BEGINNING_MAX = 8
"""Connections that are accepted and not handed over yet."""
RETRY_S = 1.0
"""After the system had no descriptor for one more."""


class Acceptor:
    """Accepts on a socket that listens, a few at a time, until it is closed. The socket stays open.
    Belongs to the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        new_connection: Callable[[], asyncio.BaseProtocol],
        listens: socket.socket,
    ) -> None:
        self._loop = loop
        self._new_connection = new_connection
        self._socket = listens
        self._beginning: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        loop.add_reader(listens, self._accept)

    def close(self) -> None:
        """Accept nobody any more. Who has been accepted is served."""
        self._loop.remove_reader(self._socket)
        if self._retry is not None:
            self._retry.cancel()

    def _accept(self) -> None:
        while len(self._beginning) < BEGINNING_MAX:
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # the periodic look at descriptors says so
                self._loop.remove_reader(self._socket)
                self._retry = self._loop.call_later(RETRY_S, self._go_on)
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._begin(accepted))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._new_connection, accepted)
        except OSError:  # it has gone already
            accepted.close()

    def _go_on(self) -> None:
        self._retry = None
        self._loop.add_reader(self._socket, self._accept)
