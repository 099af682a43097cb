"""Recent connections and searches for coordinators: clients that may be about to join a group."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

REMEMBERED = 1000
"""Searches, of all groups; beyond it the oldest is forgotten."""


class Search(NamedTuple):
    """A client has asked for the coordinator of a group (FindCoordinator), as all that join do
    first; at a time in ms of the groups' clock."""

    at_ms: int
    group_id: str
    client_id: str


class Arrivals:
    """`connections` says how many were opened since the start."""

    def __init__(self, connections: Callable[[], int] = int) -> None:
        self.connections = connections
        self._searches: deque[Search] = deque(maxlen=REMEMBERED)

    def note(self, search: Search) -> None:
        """The newest search."""
        self._searches.append(search)

    def searches(self, group_id: str, since_ms: int) -> list[Search]:
        """The searches for a group, the newest first."""
        found = []
        for search in reversed(self._searches):
            if search.at_ms < since_ms:
                break
            if search.group_id == group_id:
                found.append(search)
        return found


NOBODY = Arrivals()
"""Of a broker that nobody comes to."""
