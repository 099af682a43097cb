"""Topics and partitions as they are named on a command line: `orders`, `orders:0,3`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from client.cluster import no_topic
from tools.cluster import TopicPartition
from tools.errors import NotDone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tools.cluster import Cluster


class TopicSelection(NamedTuple):
    """A topic, and which of its partitions; None is all."""

    topic: str
    partitions: tuple[int, ...] | None


def topic_selection(text: str) -> TopicSelection:
    """`TOPIC`, or `TOPIC:0,3`. Raises ValueError."""
    name, separator, partitions = text.partition(":")
    if not separator:
        return TopicSelection(name, None)
    numbers = partitions.split(",")
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise ValueError(f"wanted TOPIC or TOPIC:0,3, found '{text}'")
    return TopicSelection(name, tuple(map(int, numbers)))


def chosen(
    wanted: Sequence[TopicSelection], known: Mapping[str, Iterable[int]]
) -> list[TopicPartition]:
    """The partitions meant, each once, of topics whose partitions are `known`. Raises NotDone for a
    partition that is missing."""
    places: dict[TopicPartition, None] = {}
    for item in wanted:
        there = sorted(known[item.topic])
        for index in there if item.partitions is None else item.partitions:
            if index not in there:
                raise NotDone(
                    f"topic '{item.topic}' has no partition {index}, but {len(there)} "
                    "counted from 0"
                )
            places[TopicPartition(item.topic, index)] = None
    return list(places)


def places_of(cluster: Cluster, wanted: Sequence[TopicSelection]) -> list[TopicPartition]:
    """The partitions meant, each once. Raises NotDone for a partition that is missing, NoSuchTopic
    for a topic."""
    require_topics(cluster, [item.topic for item in wanted])
    topics = cluster.topics(item.topic for item in wanted)
    return chosen(wanted, {name: topic.leaders for name, topic in topics.items()})


def require_topics(cluster: Cluster, names: Iterable[str]) -> None:
    """Raises NoSuchTopic for the first of these topics that does not exist; it names the nearest
    that does."""
    wanted = list(names)
    topics = cluster.topics(wanted)
    for name in wanted:
        if name not in topics:
            known = {place.topic for place in cluster.all_partitions()}
            raise no_topic(name, f"on {cluster.servers}", known)
