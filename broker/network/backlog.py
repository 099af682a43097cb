"""A bound on the memory of unsent answers and unread requests of all connections together.

One connection is bounded by `read.ahead.max.bytes` and what it can have unsent: a burst of answers.
A thousand of them would be a thousand times that, so there is a bound for the process
(`connections.backlog.max.bytes`). From half of it on nobody is read ahead. Beyond it those that
hold most are closed: their answers would have to stay in memory for as long as they like.

File slices count nothing, they are not in memory: a slow consumer of records is no burden.
"""

from __future__ import annotations

from typing import Protocol


class BackloggedConnection(Protocol):
    """A connection that is held back."""

    @property
    def held_bytes(self) -> int:
        """Memory of unsent answers, and of requests that wait behind them."""

    def cut_off(self, cause: str) -> None:
        """Close it without sending its answers, and say why."""


class Backlog:
    """Belongs to the loop. Connections that are held back are in it, and nobody else."""

    __slots__ = ("_held", "_max_bytes", "_total")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[BackloggedConnection, int] = {}
        self._total = 0

    @property
    def bytes(self) -> int:
        """Memory of all that are held back, as of when each was noted last."""
        return self._total

    @property
    def is_half_full(self) -> bool:
        """Whether no connection should be read ahead."""
        return self._total * 2 > self._max_bytes

    def note(self, connection: BackloggedConnection) -> None:
        """This connection is held back, and holds what it holds now."""
        held = connection.held_bytes
        self._total += held - self._held.get(connection, 0)
        self._held[connection] = held
        if self._total > self._max_bytes:
            self._shed()

    def forget(self, connection: BackloggedConnection) -> None:
        """It goes on, or is closed."""
        self._total -= self._held.pop(connection, 0)

    def _shed(self) -> None:
        """Close those that hold most, by what they hold by now, until the bound is kept."""
        held = {connection: connection.held_bytes for connection in self._held}
        self._held, self._total = held, sum(held.values())
        limit = self._max_bytes
        for connection in sorted(held, key=held.__getitem__, reverse=True):
            if self._total <= limit:
                return
            self.forget(connection)
            connection.cut_off(
                f"it does not read its answers, and holds most of the {limit} bytes that all "
                "such connections may (connections.backlog.max.bytes)"
            )
