"""The processes that serve one data directory, as clients reach them: each a broker of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from protocol.schema import Message

    LedHere = Callable[[bytes, int], str | None]
    """The name of a topic, by its id, if this partition of it is led here."""


class Committed(NamedTuple):
    """How far a group has committed in one partition."""

    group: str
    topic: str
    partition: int
    offset: int


class GroupsElsewhere(Protocol):
    """The groups that other processes coordinate, in the partitions that are led here."""

    @property
    def committed(self) -> Sequence[Committed]:
        """As it was at the last look."""

    async def look(self, led_here: LedHere) -> None:
        """Ask for it anew."""


class Peers(Protocol):
    """The connections to all of them."""

    async def ask(self, process: int, request: Message, kind: type[Any]) -> Any:
        """The answer of a process. Raises ConnectionError: it has gone, and comes back."""


class Neighbours(NamedTuple):
    """All of them, this one too, which has the number `process`. They have the ids from `first_id`
    on, the controller the first; `ports` are those on which each has opened a listener, by the
    listener's name."""

    first_id: int
    ports: Mapping[str, Sequence[int]]
    process: int
    groups: GroupsElsewhere
    peers: Peers

    @property
    def ids(self) -> range:
        count = len(next(iter(self.ports.values())))
        return range(self.first_id, self.first_id + count)

    def process_of(self, node_id: int) -> int:
        """The number of the process that has this id."""
        return node_id - self.first_id
