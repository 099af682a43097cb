"""How far the other processes have followed the metadata log, and who waits for that.

A change is answered when all that live serve by it: so that whoever is told of a new topic finds it
wherever it asks next. A process asks for the log from where it has followed it on, so its fetches
say how far it is (`broker.metadata.follower`). Which live is what the supervisor says, and not a
connection: one that hangs is waited for until it has been ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Then = Callable[[], None]


class Followers:
    """Belongs to the loop."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        """`node_ids` are those of the other processes."""
        self._offsets = dict.fromkeys(node_ids, -1)
        self._live: set[int] = set()
        self._waiting: list[tuple[int, Then]] = []
        """As long as there are changes that were made and not answered: one of each connection."""

    def came(self, node_id: int) -> None:
        """A process serves."""
        self._live.add(node_id)

    def all_come(self) -> None:
        """All of them have begun, and are waited for before they serve."""
        self._live.update(self._offsets)

    def gone(self, node_id: int) -> None:
        """A process has ended; nobody waits for it."""
        self._live.discard(node_id)
        self._offsets[node_id] = -1
        self._look()

    def lives(self, node_id: int) -> bool:
        """Whether a process serves."""
        return node_id in self._live

    def followed(self, node_id: int, offset: int) -> None:
        """A replica has followed all below this offset; it may be nobody's process."""
        if node_id in self._offsets:
            self._offsets[node_id] = offset
            if self._waiting:
                self._look()

    def wait(self, offset: int, then: Then) -> None:
        """Call `then`, at once or later, when all have followed up to there."""
        self._waiting.append((offset, then))
        self._look()

    def _look(self) -> None:
        least = min((self._offsets[node_id] for node_id in self._live), default=None)
        due = [one for one in self._waiting if least is None or one[0] <= least]
        if due:
            self._waiting = [one for one in self._waiting if one not in due]
            for _, then in due:
                then()
