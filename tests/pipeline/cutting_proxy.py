"""A way to a broker that breaks every now and then, in the middle of whatever is being said."""

from __future__ import annotations

import contextlib
import socket
import threading
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class CuttingProxy:
    """Listens on loopback; the broker behind it has to advertise `port`.

    A connection is cut after between `least` and `most` bytes, in both directions together, as long
    as `cuts` of them are left.
    """

    def __init__(self, random: Random, *, least: int, most: int, cuts: int) -> None:
        self._random = random
        self._least, self._most = least, most
        self.cuts_left = cuts
        self.target_port = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._run(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            _close(one)
        for thread in self._threads:
            thread.join(5)

    def _run(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                return
            self._sockets += [client, server]
            budget = [self._random.randint(self._least, self._most)]
            self._run(self._forward, client, server, budget)
            self._run(self._forward, server, client, budget)

    def _forward(self, source: socket.socket, target: socket.socket, budget: list[int]) -> None:
        try:
            while data := source.recv(65_536):
                with self._lock:
                    budget[0] -= len(data)
                    cut = budget[0] < 0 < self.cuts_left
                    self.cuts_left -= cut
                if cut:
                    target.sendall(data[: self._random.randrange(len(data) + 1)])
                    break
                target.sendall(data)
        except OSError:
            pass
        _close(source)
        _close(target)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
