"""Topics as a cluster tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from client.routing import INTERNAL_TOPICS
from protocol.schema import ZERO_UUID
from storage.identity import uuid_text
from tools.cluster import TopicPartition
from tools.log_ends import log_ends
from tools.selection import require_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from protocol.messages.metadata import MetadataResponse
    from tools.cluster import Cluster
    from tools.log_ends import LogEnds


class Listed(NamedTuple):
    """A topic in a list; `replicas` is the number of its first partition's."""

    name: str
    partitions: int
    replicas: int
    is_internal: bool


class Partition(NamedTuple):
    """A partition: the ids of its leader (-1 for none) and its replicas, and where its log begins
    and ends; None for what its leader does not tell, and `note` says why."""

    partition: int
    leader: int
    replicas: list[int]
    in_sync: list[int]
    start: int | None
    end: int | None
    records: int | None
    note: str


class Described(NamedTuple):
    """A topic with its partitions; `topic_id` is empty where there are no ids (before 2.8)."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: list[Partition]

    @property
    def records(self) -> int:
        """Offsets between the start and the end of its logs, as far as they are told."""
        return sum(one.records or 0 for one in self.partitions)


def listed(cluster: Cluster) -> list[Listed]:
    """All topics, sorted by name."""
    found = [
        Listed(
            topic.name,
            len(topic.partitions),
            len(topic.partitions[0].replica_nodes) if topic.partitions else 0,
            topic.is_internal or topic.name in INTERNAL_TOPICS,
        )
        for topic in cluster.metadata(None).topics
        if topic.name
    ]
    return sorted(found)


def described(cluster: Cluster, names: Iterable[str]) -> list[Described]:
    """Topics in the order of their names on the command line, each once. Raises NoSuchTopic."""
    wanted = list(dict.fromkeys(names))
    require_topics(cluster, wanted)
    found = {topic.name: topic for topic in cluster.metadata(wanted).topics if topic.name}
    places = [
        TopicPartition(name, one.partition_index)
        for name, topic in found.items()
        for one in topic.partitions
    ]
    ends = log_ends(cluster, places)
    return [_described(found[name], ends) for name in wanted if name in found]


def _described(topic: MetadataResponse.Topic, ends: Mapping[TopicPartition, LogEnds]) -> Described:
    name = topic.name or ""
    partitions = [
        Partition(
            one.partition_index,
            one.leader_id,
            one.replica_nodes,
            one.isr_nodes,
            *ends[TopicPartition(name, one.partition_index)],
        )
        for one in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    ]
    topic_id = "" if topic.topic_id == ZERO_UUID else uuid_text(topic.topic_id)
    return Described(name, topic_id, topic.is_internal or name in INTERNAL_TOPICS, partitions)
