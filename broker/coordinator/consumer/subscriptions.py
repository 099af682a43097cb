"""The topics that a consumer group reads: by name, by expression, and as far as they exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator.consumer.state import ConsumerGroupState, SubscribedTopic
from broker.coordinator.consumer.topic_patterns import matching
from protocol.errors import KafkaError
from protocol.logdata.offsets import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from broker.coordinator.consumer.members import MemberFacts
    from broker.coordinator.effects import TopicsView
    from protocol.logdata.offsets import Record


class Subscriptions(NamedTuple):
    """The subscriptions of all members together; `records` are those that are not written yet."""

    metadata: Mapping[str, SubscribedTopic]
    resolved: Mapping[str, frozenset[str]]
    records: list[Record]

    def topic_ids(self, facts: MemberFacts) -> tuple[bytes, ...]:
        """Of the topics that a member subscribes to and that exist."""
        names = {*facts.topic_names, *self.resolved.get(facts.regex, ())}
        return tuple(self.metadata[name].topic_id for name in names if name in self.metadata)


def subscriptions_after(
    state: ConsumerGroupState,
    topics: TopicsView,
    *,
    gone: Iterable[MemberFacts] = (),
    come: MemberFacts | None = None,
) -> Subscriptions:
    """The subscriptions of the group's members without `gone`, and with `come`, for whom
    expressions match the topics that are there for it. Without it they stand for what they matched.

    Raises INVALID_REGULAR_EXPRESSION if that of `come` is new and bad.
    """
    names, regexes = state.topic_names.copy(), state.regexes.copy()
    for facts in gone:
        names.subtract(facts.topic_names)
        regexes[facts.regex] -= 1
    if come is not None:
        names.update(come.topic_names)
        regexes[come.regex] += 1
    used = sorted(regex for regex, count in regexes.items() if regex and count > 0)
    if come is None:
        resolved = {regex: state.resolved[regex] for regex in used if regex in state.resolved}
    else:
        resolved = _resolved(state, topics, used, come.regex)
    subscribed = {name for name, count in names.items() if count > 0}.union(*resolved.values())
    metadata = {}
    for name in sorted(subscribed):
        facts_now = topics.get(name)
        if facts_now is not None:
            metadata[name] = SubscribedTopic(facts_now.topic_id, facts_now.partition_count)
    records = _regex_records(state, resolved)
    if metadata != state.metadata:
        records.append(_metadata_record(state.group_id, metadata))
    return Subscriptions(metadata, resolved, records)


def _resolved(
    state: ConsumerGroupState, topics: TopicsView, regexes: list[str], new: str
) -> dict[str, frozenset[str]]:
    """An expression that was good once stands for what it matched, should the engine be missing."""
    if not regexes:
        return {}
    names = list(topics.names())
    resolved = {}
    for regex in regexes:
        try:
            resolved[regex] = matching(regex, names)
        except KafkaError:
            if regex not in state.resolved:
                if regex == new:
                    raise
                continue
            resolved[regex] = state.resolved[regex]
    return resolved


def _regex_records(
    state: ConsumerGroupState, resolved: Mapping[str, frozenset[str]]
) -> list[Record]:
    """Version and timestamp are those of metadata that is out of date, so that a Kafka which loads
    this looks for itself."""
    records: list[Record] = []
    for regex in [*resolved, *(old for old in state.resolved if old not in resolved)]:
        key = ConsumerGroupRegularExpressionKey(group_id=state.group_id, regular_expression=regex)
        matched = resolved.get(regex)
        if matched is None:
            records.append((key, None))
        elif matched != state.resolved.get(regex):
            records.append(
                (
                    key,
                    ConsumerGroupRegularExpressionValue(
                        topics=sorted(matched), version=0, timestamp=0
                    ),
                )
            )
    return records


def _metadata_record(group_id: str, metadata: Mapping[str, SubscribedTopic]) -> Record:
    """Without racks: there is one broker. Kafka 3.9 reads this, 4.1 and later do without."""
    return (
        ConsumerGroupPartitionMetadataKey(group_id=group_id),
        ConsumerGroupPartitionMetadataValue(
            topics=[
                ConsumerGroupPartitionMetadataValue.TopicMetadata(
                    topic_id=topic.topic_id,
                    topic_name=name,
                    num_partitions=topic.partition_count,
                    partition_metadata=[],
                )
                for name, topic in metadata.items()
            ]
        ),
    )
