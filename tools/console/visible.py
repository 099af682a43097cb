"""The topics that a user may know of: asked of the broker as this user, in pieces, and kept a
while.

An answer about thousands of topics at once would hold up the broker, and with it everybody's
records, for tens of milliseconds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from client.routing import INTERNAL_TOPICS
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from client.security import ClientSecurity
    from tools.cluster import Cluster

PIECE_PARTITIONS = 250
KEPT_S = 15.0
"""Rights that were given or taken are seen after that."""
USERS_MAX = 4
"""Users whose topics are kept."""


class VisibleTopic(NamedTuple):
    """A topic, as far as a list tells of it."""

    partitions: int
    is_internal: bool


class Kept(NamedTuple):
    """What was found for a user at a time; `told` are all names that there were, visible or not."""

    security: ClientSecurity | None
    at_s: float
    told: frozenset[str]
    topics: Mapping[str, VisibleTopic]


class VisibleTopics:
    """Those of the last few users. For any thread."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def of(
        self, security: ClientSecurity | None, cluster: Cluster, told: Collection[str]
    ) -> Mapping[str, VisibleTopic]:
        """Those of the user with this security, whose connection `cluster` is. `told` are the names
        of all topics there are now: one that is new makes us ask again."""
        now_s, names = self._clock_s(), frozenset(told)
        with self._lock:
            kept = self._kept.get(id(security))
            if kept is not None and now_s - kept.at_s <= KEPT_S and names <= kept.told:
                self._kept.move_to_end(id(security))
                return {name: one for name, one in kept.topics.items() if name in names}
        topics = dict(_listed(cluster))
        with self._lock:
            self._kept[id(security)] = Kept(security, now_s, names | topics.keys(), topics)
            self._kept.move_to_end(id(security))
            if len(self._kept) > USERS_MAX:
                self._kept.popitem(last=False)
        return topics


def _listed(cluster: Cluster) -> Iterator[tuple[str, VisibleTopic]]:
    if not cluster.offers(DescribeTopicPartitionsRequest):
        for topic in cluster.metadata(None).topics:
            if topic.name:
                internal = topic.is_internal or topic.name in INTERNAL_TOPICS
                yield topic.name, VisibleTopic(len(topic.partitions), internal)
        return
    cursor = None
    last = ("", VisibleTopic(0, False))
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[], response_partition_limit=PIECE_PARTITIONS, cursor=cursor
        )
        answer = cluster.ask(request, DescribeTopicPartitionsResponse)
        for one in answer.topics:
            name, count = one.name or "", len(one.partitions)
            if name == last[0]:
                count += last[1].partitions  # a topic that the piece before has begun
            elif last[0]:
                yield last
            last = (name, VisibleTopic(count, one.is_internal or name in INTERNAL_TOPICS))
        if answer.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )
    if last[0]:
        yield last
