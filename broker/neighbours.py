"""The processes that serve one data directory, as clients reach them: each a broker of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Neighbours(NamedTuple):
    """All of them, this one too. They have the ids from `first_id` on, the controller the first;
    `ports` are those on which each has opened a listener, by the listener's name."""

    first_id: int
    ports: Mapping[str, Sequence[int]]

    @property
    def ids(self) -> range:
        count = len(next(iter(self.ports.values())))
        return range(self.first_id, self.first_id + count)
