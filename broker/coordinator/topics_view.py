"""The topics that exist, as far as groups have to know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.effects import TopicFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.coordinator.effects import Caller, TopicRights, TopicsView
    from broker.partitions.topic import Topic
    from broker.partitions.topics import Topics


class LiveTopics:
    """A `TopicsView` of the broker's topics. Internal ones can be named, but are not listed: a
    regular expression does not match them."""

    __slots__ = ("_topics",)

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    @property
    def version(self) -> int:
        return self._topics.version

    def get(self, name: str) -> TopicFacts | None:
        return _facts(self._topics.by_name.get(name))

    def by_id(self, topic_id: bytes) -> TopicFacts | None:
        return _facts(self._topics.by_id.get(topic_id))

    def names(self) -> Iterator[str]:
        return (topic.name for topic in self._topics if not topic.internal)

    def for_caller(self, caller: Caller) -> TopicsView:
        """Those that are there for this client."""
        return self if caller.rights is None else DescribableTopics(self, caller.rights)


class DescribableTopics:
    """A `TopicsView` that lists only what a client may describe, as Kafka has it since 4.0 where
    an expression is resolved. What a client names was looked at before."""

    __slots__ = ("_rights", "_topics")

    def __init__(self, topics: LiveTopics, rights: TopicRights) -> None:
        self._topics = topics
        self._rights = rights

    @property
    def version(self) -> int:
        """Both numbers only grow, and so does their sum with either."""
        return self._topics.version + self._rights.generation

    def get(self, name: str) -> TopicFacts | None:
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> TopicFacts | None:
        return self._topics.by_id(topic_id)

    def names(self) -> Iterator[str]:
        return filter(self._rights.may_describe, self._topics.names())


def _facts(topic: Topic | None) -> TopicFacts | None:
    if topic is None:
        return None
    return TopicFacts(topic.name, topic.topic_id, len(topic.partitions))
