"""Offsets that a group has committed, written and read by somebody who is no member of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.coordinators import GROUP, failed, key_name
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.partitions import TopicPartition, by_topic, offset_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from client.connection import Connection

# Version 0 of both keeps offsets in ZooKeeper; in 10 topics go by id.
IN_KAFKA, BY_NAME = 1, 9


def commit(connection: Connection, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Raises Refused while the group has members, Again, ConnectionLost."""
    request = offset_commit(group, offsets)
    answer = connection.call(request, OffsetCommitResponse, oldest=IN_KAFKA, newest=BY_NAME)
    for topic in answer.topics:
        for entry in topic.partitions:
            if entry.error_code:
                raise failed(key_name(group, GROUP), entry.error_code)


def committed(
    connection: Connection, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offsets committed for these partitions, if any. Raises Refused, Again, ConnectionLost."""
    wanted = by_topic(partitions)
    kind = OffsetFetchRequest.Group
    named = [kind.Topic(name=name, partition_indexes=found) for name, found in wanted.items()]
    request = OffsetFetchRequest(
        group_id=group,
        topics=[
            OffsetFetchRequest.Topic(name=name, partition_indexes=found)
            for name, found in wanted.items()
        ],
        groups=[kind(group_id=group, topics=named)],
    )
    answer = connection.call(request, OffsetFetchResponse, oldest=IN_KAFKA, newest=BY_NAME)
    of_group = answer.groups[0] if answer.groups else answer
    if of_group.error_code:
        raise failed(key_name(group, GROUP), of_group.error_code)
    found = {}
    for topic in of_group.topics:
        for entry in topic.partitions:
            if entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if entry.error_code:
                raise failed(key_name(group, GROUP), entry.error_code)
            if entry.committed_offset >= 0:
                found[TopicPartition(topic.name, entry.partition_index)] = entry.committed_offset
    return found
