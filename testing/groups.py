"""How far a consumer group is, for a test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from client.fetching import EARLIEST, LATEST
from testing.topics import LOOK_EVERY_S, TIMEOUT_S, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.cluster import Cluster

NONE = "no group"
"""The state of a group that does not exist."""


class Group:
    """A consumer group of a broker. What is asked of it is asked of the broker each time."""

    def __init__(self, cluster: Callable[[], Cluster], group_id: str) -> None:
        self._client = cluster
        self.group_id = group_id

    @property
    def _cluster(self) -> Cluster:
        return self._client()

    def state(self) -> str:
        """As Kafka names it ("Stable", "Empty", ...), or "no group"."""
        return self._cluster.groups().get(self.group_id, NONE)

    def offsets(self) -> dict[TopicPartition, int]:
        """What it has committed: the next offset to read of each partition."""
        committed = self._cluster.committed(self.group_id)
        return {place: one.offset for place, one in sorted(committed.items())}

    def lag(self, topic: str | None = None) -> dict[TopicPartition, int]:
        """For each partition with a committed offset, how many offsets are left to its end.

        With `topic` for each partition of that topic; where nothing is committed, all of it is
        left. Raises `client.errors.NoSuchTopic`.
        """
        committed = self.offsets()
        if topic is None:
            there = self._cluster.topics()
            places = [place for place in committed if place.topic in there]
        else:
            places = self._cluster.partitions([topic])
        starts = self._cluster.offsets(places, EARLIEST)
        ends = self._cluster.offsets(places, LATEST)
        return {
            place: ends[place] - max(committed.get(place, 0), starts[place]) for place in places
        }

    def wait_for(self, topic: str, *, lag: int = 0, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until at most `lag` offsets of the topic are left. AssertionError says how far the
        group was when the time was over."""
        deadline = time.monotonic() + timeout_s
        while sum((left := self.lag(topic)).values()) > lag:
            if time.monotonic() > deadline:
                raise AssertionError(self._too_far(topic, left, lag, timeout_s))
            time.sleep(LOOK_EVERY_S)

    def _too_far(
        self, topic: str, left: dict[TopicPartition, int], lag: int, timeout_s: float
    ) -> str:
        committed = self.offsets()
        lines = [
            f"group '{self.group_id}' ({self.state()}) has {sum(left.values())} offsets of topic "
            f"'{topic}' left, wanted at most {lag} within {timeout_s:g} s"
        ]
        lines += [
            f"  {place}: committed {committed.get(place, 'nothing')}, {count} left"
            for place, count in left.items()
        ]
        return "\n".join(lines)
