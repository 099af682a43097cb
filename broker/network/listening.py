"""The sockets on which clients connect: opened at the start, and changed while the broker runs.

A change is made in two steps, so that one that cannot be leaves everything as it was: `bind` takes
the new addresses, and `take` serves them and gives up those that are wanted no more.

All of them can rest (`pause`), or one (`rest`): clients then wait in the kernel's queue until they
go on. uvloop can only close what listens, which would turn away those who wait. So it is given a
duplicate of each socket; that costs a descriptor, and keeps the queue when it has closed its own.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from broker import logs
from broker.event_loop import takes_many_at_once

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from broker.network.accepting import Acceptor
    from config import Listener

ACCEPT_BACKLOG = 1024
"""Connections that may wait to be accepted."""

Bound = dict["Listener", list[socket.socket]]
"""Sockets that listen and are not served yet, by the listener they are for with its real port."""


class CannotListen(OSError):
    """An address cannot be taken; the text says which and why."""

    def __init__(self, listener: Listener, error: OSError) -> None:
        super().__init__(f"can't listen on {listener}: {error.strerror or error}")
        self.listener = listener


class Listening:
    """Belongs to the loop. Listeners are told apart by name, host and the port they are open on."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        new_connection: Callable[[str], asyncio.BaseProtocol],
    ) -> None:
        """`new_connection` makes the protocol of a connection to the listener of this name."""
        self._loop = loop
        self._new_connection = new_connection
        self._sockets: Bound = {}
        self._servers: dict[Listener, list[asyncio.AbstractServer | Acceptor]] = {}
        self._paused = False
        self._resting: set[str] = set()
        self._changes: Counter[Listener] = Counter()
        """How often each had to stop: what began to serve before that is given up."""
        self._beginning: set[asyncio.Task[None]] = set()
        self.ports: dict[str, int] = {}
        """On which port each listener was opened, by its name."""
        self.address = ("", 0)
        """Host and port of the first that was opened."""

    def bind(self, wanted: Iterable[Listener]) -> Bound:
        """Listen on those of these that are not open yet. Raises CannotListen, and then nothing
        has changed."""
        bound: Bound = {}
        try:
            for listener in wanted:
                if self._as_opened(listener) not in self._servers:
                    sockets = listening_sockets(listener)
                    bound[listener._replace(port=sockets[0].getsockname()[1])] = sockets
        except CannotListen:
            self.release(bound)
            raise
        return bound

    def release(self, bound: Bound) -> None:
        """Give up what was bound and is not served after all."""
        for sockets in bound.values():
            for one in sockets:
                one.close()

    def take(self, wanted: Sequence[Listener], bound: Bound) -> None:
        """Serve these and no others. `bound` are the new ones; connections stay as they are.

        A client that connects before the loop has turned waits in the backlog.
        """
        for listener in self._servers.keys() - {self._as_opened(one) for one in wanted}:
            self._stop_serving(listener)
            del self._servers[listener], self._changes[listener]
            for one in self._sockets.pop(listener):
                one.close()
        names = {listener.name for listener in wanted}
        self.ports = {name: port for name, port in self.ports.items() if name in names}
        for listener, sockets in bound.items():
            self._sockets[listener] = sockets
            self._servers[listener] = []
            self.ports[listener.name] = listener.port
            if not self.address[0]:
                self.address = sockets[0].getsockname()[:2]
            self._begin(listener)

    def pause(self) -> None:
        """Accept nobody for now."""
        self._paused = True
        for listener in self._servers:
            self._stop_serving(listener)

    def resume(self) -> None:
        """Accept those who wait, and go on."""
        self._paused = False
        for listener in self._sockets:
            self._begin(listener)

    def rest(self, name: str) -> None:
        """Accept nobody on the listener of this name for now."""
        self._resting.add(name)
        for listener in self._servers:
            if listener.name == name:
                self._stop_serving(listener)

    def go_on(self, name: str) -> None:
        """Accept those who wait for it, and go on."""
        if name not in self._resting:
            return
        self._resting.remove(name)
        for listener in self._sockets:
            if listener.name == name:
                self._begin(listener)

    def _may_serve(self, listener: Listener) -> bool:
        return not self._paused and listener.name not in self._resting

    def _stop_serving(self, listener: Listener) -> None:
        self._changes[listener] += 1
        for server in self._servers[listener]:
            server.close()
        self._servers[listener].clear()

    def _begin(self, listener: Listener) -> None:
        if not self._may_serve(listener):
            return
        task = self._loop.create_task(self._serve(listener, self._changes[listener]))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def begun(self) -> None:
        """Wait until all that was taken is served."""
        for task in list(self._beginning):
            await task

    def close(self) -> None:
        """Take no more connections."""
        self.take((), {})

    def _as_opened(self, listener: Listener) -> Listener:
        """With the port that it was opened on, if any port will do for it and it is open."""
        if listener.port == 0:
            for one in self._servers:
                if one[:2] == listener[:2]:
                    return one
        return listener

    async def _serve(self, listener: Listener, change: int) -> None:
        new_connection = partial(self._new_connection, listener.name)
        for one in self._sockets.get(listener, ()):
            server: asyncio.AbstractServer | Acceptor
            try:
                if takes_many_at_once(self._loop):
                    from broker.network.accepting import Acceptor  # uvloop needs none

                    server = Acceptor(self._loop, new_connection, one)
                else:
                    server = await self._loop.create_server(
                        new_connection, sock=one.dup(), backlog=ACCEPT_BACKLOG
                    )
            except OSError as error:
                logs.error("a listener could not go on", listener=str(listener), reason=str(error))
                return
            if listener in self._servers and change == self._changes[listener]:
                self._servers[listener].append(server)
            else:  # given up again meanwhile
                server.close()


def _ascii(host: str) -> bytes | str:
    """A host as bytes if it can be: for a `str` the socket module loads its encoding of names that
    are not ASCII, and 0.4 MiB of tables with it."""
    return host.encode() if host.isascii() else host


def listening_sockets(listener: Listener) -> list[socket.socket]:
    """A socket for each address of the host, all on one port. Raises CannotListen."""
    sockets: list[socket.socket] = []
    port = listener.port
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            _ascii(listener.host) or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            one = socket.socket(family, kind, protocol)
            try:
                _listen(one, (address[0], port, *address[2:]))
            except OSError as error:
                one.close()
                # A host may have an address of a family that this machine does not use.
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                missing = error
                continue
            sockets.append(one)
            port = one.getsockname()[1]
        if not sockets:
            raise missing or OSError(errno.EADDRNOTAVAIL, "the host has no address")
    except OSError as error:
        for one in sockets:
            one.close()
        raise CannotListen(listener, error) from error
    return sockets


def _listen(one: socket.socket, address: tuple[object, ...]) -> None:
    one.setblocking(False)
    if sys.platform != "win32":  # there it would share a port that somebody listens on
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if one.family == socket.AF_INET6:
        # 0.0.0.0 has a socket of its own.
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind(address)
    one.listen(ACCEPT_BACKLOG)
