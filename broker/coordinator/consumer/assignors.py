"""The assignors on the server's side (KIP-848).

An assignor is a pure function of the members, with the topics that they subscribe to and the
partitions that they are meant to have so far, and of the partition counts. It gives every partition
of every subscribed topic to exactly one of the topic's subscribers.

uniform   counts are as even as the subscriptions allow, and as few partitions move as that takes
range     a topic is cut into runs of neighbours, one for each subscriber in the same order for
          every topic: with the same subscribers, partition n of topics of the same size is read by
          the same member, so that they can be joined

Kafka's own differ in which of many equally good assignments they choose. Its `range` of 3.9 keeps
more partitions in their place and loses the neighbourhood for it; ours keeps the order of members.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    Assignor = Callable[[Mapping[str, "Subscriber"], Mapping[bytes, int]], dict[str, "Partitions"]]

Partitions = dict[bytes, frozenset[int]]
"""Partitions by the id of their topic. A topic without partitions is not in it."""


class Subscriber(NamedTuple):
    """A member as an assignor sees it. `topic_ids` are topics that exist."""

    topic_ids: Collection[bytes]
    target: Mapping[bytes, Collection[int]]
    instance_id: str | None = None


def uniform(
    members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """A partition moves only from a member that has at least two more, until there is none such
    whose partitions another could have."""
    balance = _Balance(members, partition_counts)
    balance.keep()
    balance.place()
    while balance.level():
        pass
    return balance.result()


def range_(
    members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """Runs of neighbours. Members keep their order, and new ones come last."""
    result: dict[str, Partitions] = {member: {} for member in members}
    for topic, subscribers in _subscribers_by_topic(
        members, sorted(members, key=lambda member: _place_in_order(member, members[member]))
    ).items():
        size, longer = divmod(partition_counts[topic], len(subscribers))
        start = 0
        for position, member in enumerate(subscribers):
            end = start + size + (position < longer)
            if end > start:
                result[member][topic] = frozenset(range(start, end))
            start = end
    return result


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}
"""By the names that clients ask for them."""


def _place_in_order(member: str, subscriber: Subscriber) -> tuple[bool, int, str]:
    """Sort key: members with a run, in the order of the runs, then the others by their names."""
    first = min((min(run) for run in subscriber.target.values() if run), default=None)
    return (first is None, first or 0, subscriber.instance_id or member)


def _subscribers_by_topic(
    members: Mapping[str, Subscriber], order: Collection[str]
) -> dict[bytes, list[str]]:
    subscribers: dict[bytes, list[str]] = {}
    for member in order:
        for topic in members[member].topic_ids:
            subscribers.setdefault(topic, []).append(member)
    return dict(sorted(subscribers.items()))


class _Pool:
    """The topics that have the same subscribers, and a heap of these by their load.

    Entries of the heap may be out of date: a member's true load stands elsewhere. One whose load
    became less has an entry more, to be found by.
    """

    __slots__ = ("heap", "subscribers")

    def __init__(self, subscribers: list[str]) -> None:
        self.subscribers = subscribers
        self.heap: list[tuple[int, int, str]] = []


class _Balance:
    """An assignment on its way to be even."""

    def __init__(
        self, members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]
    ) -> None:
        self.members = members
        self.counts = partition_counts
        self.held: dict[str, dict[bytes, list[int]]] = {member: {} for member in members}
        self.load = dict.fromkeys(members, 0)
        self.rank = {member: rank for rank, member in enumerate(sorted(members))}
        self.pools: dict[bytes, _Pool] = {}
        self.free: dict[bytes, list[int]] = {}
        self.pools_of: dict[str, list[_Pool]] = {member: [] for member in members}
        by_subscribers: dict[tuple[str, ...], _Pool] = {}
        for topic, subscribers in _subscribers_by_topic(members, list(self.rank)).items():
            pool = by_subscribers.get(tuple(subscribers))
            if pool is None:
                pool = by_subscribers[tuple(subscribers)] = _Pool(subscribers)
                for member in subscribers:
                    self.pools_of[member].append(pool)
            self.pools[topic] = pool

    def keep(self) -> None:
        """Leave everything where it is, if it may be there."""
        free = {topic: set(range(self.counts[topic])) for topic in self.pools}
        for member, subscriber in self.members.items():
            subscribed = set(subscriber.topic_ids)
            for topic, partitions in subscriber.target.items():
                if topic not in subscribed:
                    continue
                kept = free[topic].intersection(partitions)
                if kept:
                    free[topic] -= kept
                    self.held[member][topic] = sorted(kept)
                    self.load[member] += len(kept)
        self.free = {topic: sorted(partitions) for topic, partitions in free.items()}

    def place(self) -> None:
        """Give what nobody has to those who have least; topics that few may read come first."""
        for pool in set(self.pools.values()):
            pool.heap = [(self.load[name], self.rank[name], name) for name in pool.subscribers]
            heapq.heapify(pool.heap)
        for topic in sorted(self.free, key=lambda topic: len(self.pools[topic].subscribers)):
            pool = self.pools[topic]
            for partition in self.free[topic]:
                self._give(topic, partition, self._least_loaded(pool))

    def level(self) -> bool:
        """Move partitions, one at a time, from who has most; True if anything moved.

        Once is enough where all subscribe to the same. Otherwise a member that got rid of
        something may become one to take from another.
        """
        moved = False
        givers = [(-load, self.rank[name], name) for name, load in self.load.items() if load > 1]
        heapq.heapify(givers)
        turns: dict[str, deque[bytes]] = {}
        while givers:
            _, rank, giver = givers[0]
            if giver not in turns:
                turns[giver] = deque(sorted(self.held[giver]))
            if self._unload_one(giver, turns[giver]):
                moved = True
                heapq.heapreplace(givers, (-self.load[giver], rank, giver))
            else:
                # Only now can it be one to take: until here it had as much as anybody.
                heapq.heappop(givers)
                for pool in self.pools_of[giver]:
                    heapq.heappush(pool.heap, (self.load[giver], rank, giver))
        return moved

    def _unload_one(self, giver: str, turns: deque[bytes]) -> bool:
        """Move a partition of a member to somebody with two less; False if there is nobody.

        Its topics take turns, so that it keeps some of each.
        """
        while turns:
            topic = turns.popleft()
            taker = self._least_loaded(self.pools[topic])
            if self.load[giver] - self.load[taker] < 2:
                continue
            numbers = self.held[giver][topic]
            self._give(topic, numbers.pop(), taker)
            self.load[giver] -= 1
            if numbers:
                turns.append(topic)
            else:
                del self.held[giver][topic]
            return True
        return False

    def _least_loaded(self, pool: _Pool) -> str:
        heap = pool.heap
        while True:
            load, rank, member = heap[0]
            true_load = self.load[member]
            if load == true_load:
                return member
            heapq.heapreplace(heap, (true_load, rank, member))

    def _give(self, topic: bytes, partition: int, member: str) -> None:
        self.held[member].setdefault(topic, []).append(partition)
        self.load[member] += 1

    def result(self) -> dict[str, Partitions]:
        return {
            member: {topic: frozenset(partitions) for topic, partitions in held.items()}
            for member, held in self.held.items()
        }
