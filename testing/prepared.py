"""A broker's process that has begun before it is asked for: it has copied a snapshot and opened the
copy, and waits for the start that it was made for.

Topics, groups and transactions are loaded after that, so no time passes for them while it waits.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from testing.requests import Start

assert sys.platform != "win32"


class Prepared:
    """The process, as the one that has forked it sees it."""

    def __init__(self, start: Start, fork: Callable[[Start, Callable[[], int]], int]) -> None:
        """`fork` starts it and has its pid; what it is given there waits in the new process for the
        descriptor that `take` sends."""
        self.start = start
        self._socket, theirs = socket.socketpair()

        def handed_over() -> int:
            self._socket.close()
            _, descriptors, _, _ = socket.recv_fds(theirs, 1, 1)
            if not descriptors:
                os._exit(0)  # nobody is there any more who could ask for it
            theirs.close()
            return descriptors[0]

        self.pid = fork(start, handed_over)
        theirs.close()

    def take(self, start: Start, told: int) -> bool:
        """Have it go on with the descriptor `told`, if this is its start and it is there."""
        if start != self.start:
            return False
        try:
            socket.send_fds(self._socket, [b"\n"], [told])
        except OSError:
            return False
        self._socket.close()
        return True
