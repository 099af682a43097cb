"""The offsets of a group: read, set, removed; each in one request, whatever their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.partitions import TopicPartition, by_topic, offset_commit
from tools.errors import NotDone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from client.connection import Connection
    from tools.cluster import Cluster

# Null topics are all; after 9 topics go by id only, and an answer for all has none to name.
FETCH_ALL, FETCH_BY_NAME = 2, 9
# Version 0 is ZooKeeper's.
COMMIT_TO_GROUP, COMMIT_BY_NAME = 1, 9

HAS_MEMBERS = frozenset({
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
})  # fmt: skip
"""Errors of a commit from outside while the group has members."""


class Committed(NamedTuple):
    """An offset that a group committed; leader epoch -1 for none."""

    offset: int
    leader_epoch: int
    metadata: str


def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, Committed]:
    """All that the group has, by partition; empty for a group that does not exist."""
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=None,
        groups=[OffsetFetchRequest.Group(group_id=group_id, topics=None)],
    )

    def ask(
        connection: Connection,
    ) -> OffsetFetchResponse | OffsetFetchResponse.Group:
        answer = connection.call(
            request, OffsetFetchResponse, oldest=FETCH_ALL, newest=FETCH_BY_NAME
        )
        return answer.groups[0] if answer.groups else answer

    answer = cluster.coordinated(group_id, ask, lambda answer: answer.error_code)
    if answer.error_code:
        raise NotDone(f"group '{group_id}': {said(answer.error_code)}")
    found = {
        TopicPartition(topic.name, entry.partition_index): Committed(
            entry.committed_offset, entry.committed_leader_epoch, entry.metadata or ""
        )
        for topic in answer.topics
        for entry in topic.partitions
        if entry.error_code == 0 and entry.committed_offset >= 0
    }
    return dict(sorted(found.items()))


def commit(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set them all in one OffsetCommit, as nobody's member. Raises NotDone naming what was not."""
    request = offset_commit(group_id, offsets)
    answer = cluster.coordinated(
        group_id,
        lambda connection: connection.call(
            request, OffsetCommitResponse, oldest=COMMIT_TO_GROUP, newest=COMMIT_BY_NAME
        ),
        lambda answer: next((p.error_code for t in answer.topics for p in t.partitions), 0),
    )
    failed = {
        TopicPartition(topic.name, entry.partition_index): entry.error_code
        for topic in answer.topics
        for entry in topic.partitions
        if entry.error_code
    }
    if HAS_MEMBERS & set(failed.values()):
        raise NotDone(f"group '{group_id}' got members meanwhile; no offset was changed")
    if failed:
        place, code = min(failed.items())
        raise NotDone(
            f"group '{group_id}': {len(failed)} of {len(offsets)} offsets were not set; "
            f"{place}: {said(code)}"
        )


def delete_group(cluster: Cluster, group_id: str) -> None:
    """The group with all its offsets. Raises NotDone if it has members, or does not exist."""
    request = DeleteGroupsRequest(groups_names=[group_id])
    answer = cluster.coordinated(
        group_id,
        lambda connection: connection.call(request, DeleteGroupsResponse).results[0],
        lambda answer: answer.error_code,
    )
    if answer.error_code:
        raise NotDone(f"group '{group_id}': {said(answer.error_code)}")


def delete_offsets(cluster: Cluster, group_id: str, places: Iterable[TopicPartition]) -> None:
    """The offsets of these partitions. Raises NotDone naming the first that stays."""
    topics = [
        OffsetDeleteRequest.Topic(
            name=topic,
            partitions=[
                OffsetDeleteRequest.Topic.Partition(partition_index=index) for index in partitions
            ],
        )
        for topic, partitions in by_topic(places).items()
    ]
    request = OffsetDeleteRequest(group_id=group_id, topics=topics)
    answer = cluster.coordinated(
        group_id,
        lambda connection: connection.call(request, OffsetDeleteResponse),
        lambda answer: answer.error_code,
    )
    if answer.error_code:
        raise NotDone(f"group '{group_id}': {said(answer.error_code)}")
    for topic in answer.topics:
        for entry in topic.partitions:
            if entry.error_code:
                place = TopicPartition(topic.name, entry.partition_index)
                raise NotDone(f"group '{group_id}': {place}: {said(entry.error_code)}")
