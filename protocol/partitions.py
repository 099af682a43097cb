"""Partitions, and requests about several of them, as clients make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_commit import OffsetCommitRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by both."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions under their topics, as most requests have them."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return topics


def list_offsets(
    wanted: Mapping[TopicPartition, int], *, replica_id: int = -1, committed_only: bool = False
) -> ListOffsetsRequest:
    """Asks each partition for the offset at a time: ms, or a negative number with a meaning."""
    kind = ListOffsetsRequest.Topic
    topics = [
        kind(
            name=topic,
            partitions=[
                kind.Partition(
                    partition_index=index, timestamp=wanted[TopicPartition(topic, index)]
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(wanted).items()
    ]
    return ListOffsetsRequest(
        replica_id=replica_id, isolation_level=int(committed_only), topics=topics
    )


def offset_commit(group_id: str, offsets: Mapping[TopicPartition, int]) -> OffsetCommitRequest:
    """Sets the offsets of a group, as somebody who is no member of it."""
    kind = OffsetCommitRequest.Topic
    topics = [
        kind(
            name=topic,
            partitions=[
                kind.Partition(
                    partition_index=index,
                    committed_offset=offsets[TopicPartition(topic, index)],
                    committed_metadata="",
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(offsets).items()
    ]
    return OffsetCommitRequest(group_id=group_id, topics=topics)
