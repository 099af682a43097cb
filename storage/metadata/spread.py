"""Which of the processes that serve one data directory leads which partition: by count.

One after the other each new partition goes to the process that leads the fewest, of several to the
one with the lowest number. So no process leads more than one more than another, and the partitions
of a topic go round.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.metadata.image import TopicState


class Spread:
    """The processes from 0 on, `count` of them. `topics` have partitions that are led already."""

    def __init__(self, count: int, topics: Iterable[TopicState] = ()) -> None:
        led = [0] * count
        for topic in topics:
            for state in topic.partitions.values():
                if state.process < count:
                    led[state.process] += 1
        self._led = [(many, process) for process, many in enumerate(led)]
        heapify(self._led)

    def next(self) -> int:
        """The process that leads the next partition."""
        many, process = self._led[0]
        heapreplace(self._led, (many + 1, process))
        return process
