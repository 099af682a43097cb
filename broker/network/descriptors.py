"""Shares of the file descriptors that the process may have, and the state of having none left.

Connections get most, log files that are open a quarter; what is left is for the duplicates of
sockets and the closed segments that answers hold, for files that are opened for a moment, and for
the spares. So it takes something else to use them all (a limit of the whole system, for one). Then
spares are given up, and until they can be held again the listeners rest.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from broker import logs

if TYPE_CHECKING:
    from broker.network.listening import Listening
    from storage.filesystem import SpareDescriptors
    from storage.open_segments import OpenSegments
    from storage.segment import Segment

LOOK_EVERY_S = 1.0

SPARE = 12
"""As many as threads may want at the same time: those that sync, read, and write checkpoints."""

OTHERS = 48
"""The spares; streams, listeners, the loop, the metadata log, the pipes of the cleaner."""

UNLIMITED = 1 << 20

if sys.platform == "win32":
    WINDOWS_LIMIT = 800
    """So that the share of connections is less than the 512 sockets that select takes there."""

    def raise_limit() -> None:
        """There is nothing to be raised."""

    def limit() -> int:
        """The number of descriptors that the process may have."""
        return WINDOWS_LIMIT

else:
    import resource

    MACOS_LIMIT = 10_240

    def raise_limit() -> None:
        """Take all descriptors that the process may have without being asked."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == hard:
            return
        for wanted in (hard, MACOS_LIMIT):  # macOS says that it gives more than it does
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return

    def limit() -> int:
        """The number of descriptors that the process may have."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return UNLIMITED if soft == resource.RLIM_INFINITY else soft


class Descriptors:
    """The shares, and whether there is one left. Belongs to the loop."""

    __slots__ = ("_limit", "_listening", "_open", "_spares", "connections_max", "short")

    def __init__(
        self,
        limit: int,
        files: OpenSegments[Segment],
        spares: SpareDescriptors,
        listening: Listening,
    ) -> None:
        """`listening` rests while there is no descriptor left."""
        self._limit = limit
        self._open = files
        self._spares = spares
        shared = max(limit - OTHERS, 16)
        self.connections_max = shared * 5 // 8
        files.files_max = shared // 4
        self._listening = listening
        self.short = False
        spares.hold(SPARE)

    def refusal(self, connection_count: int) -> str | None:
        """Why a connection can't be taken that makes it so many; None if it can."""
        if connection_count <= self.connections_max:
            return None
        return (
            f"more than {self.connections_max}, which is what the limit on file descriptors "
            f"({self._limit}) leaves for connections"
        )

    def _is_one_left(self) -> bool:
        return self._spares.refill() and self._spares.is_another_left()

    def release(self) -> None:
        """Give up the spares: a stop may need them."""
        self._spares.hold(0)

    def look(self) -> None:
        """See whether there is a descriptor left besides the spares. A periodic task."""
        short = not self._is_one_left()
        if short:
            self._open.close_half()
            short = not self._is_one_left()
        if short == self.short:
            return
        self.short = short
        if short:
            self._listening.pause()
            logs.error("no file descriptors are left: new connections wait", limit=self._limit)
        else:
            logs.info("there are file descriptors again")
            self._listening.resume()
