"""The groups there are, offsets that a group has committed, written and read by somebody who is no
member of it, and who coordinates a group or a transactional id."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from client.errors import Refused, Unreachable
from client.routing import Again
from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.partitions import TopicPartition, by_topic, offset_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from client.connection import Connection
    from client.routing import Router

# Version 0 of both keeps offsets in ZooKeeper; in 10 topics go by id.
IN_KAFKA, BY_NAME = 1, 9
# The first of OffsetFetch with null for all of a group's offsets, and of FindCoordinator with kinds
# of keys (Kafka 0.11).
NULL_IS_ALL, KNOWS_KINDS = 2, 1
GROUP, TRANSACTION = 0, 1
KINDS = {GROUP: "group", TRANSACTION: "transactional id"}


class Committed(NamedTuple):
    """What a group has committed for a partition: the next offset, and a text of its own."""

    offset: int
    metadata: str


def coordinator(router: Router, key: str, kind: int = GROUP) -> Connection:
    """A connection to the broker that keeps the group, or the transactional id.

    Raises Refused, Again, ConnectionLost.
    """
    connection = router.any()
    request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
    oldest = KNOWS_KINDS if kind else 0
    answer = connection.call(request, FindCoordinatorResponse, oldest=oldest)
    found = answer.coordinators[0] if answer.coordinators else answer
    what = f"{KINDS[kind]} '{key}'"
    if found.error_code:
        raise failed(what, found.error_code)
    address = router.address_of(found.node_id, found.host, found.port)
    return router.at(address, f"the coordinator of {what}")


def groups(router: Router) -> dict[str, str]:
    """The state of each group by its id. Raises Refused, Again, ConnectionLost."""
    found: dict[str, str] = {}
    for connection in router.brokers():
        answer = connection.call(ListGroupsRequest(), ListGroupsResponse)
        if answer.error_code:
            raise failed(f"the groups of {connection.address}", answer.error_code)
        found |= {group.group_id: group.group_state for group in answer.groups}
    return dict(sorted(found.items()))


def commit(connection: Connection, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Raises Refused while the group has members, Again, ConnectionLost."""
    request = offset_commit(group, offsets)
    answer = connection.call(request, OffsetCommitResponse, oldest=IN_KAFKA, newest=BY_NAME)
    for topic in answer.topics:
        for entry in topic.partitions:
            if entry.error_code:
                raise failed(f"group '{group}'", entry.error_code)


def committed(
    connection: Connection,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    stable: bool = False,
) -> dict[TopicPartition, Committed]:
    """What is committed for these partitions, or for any with None, where there is something.

    With `stable` the end of a transaction that would change it is waited for, where the broker
    knows of that (Kafka 2.5, KIP-447). Raises Refused, Again, ConnectionLost.
    """
    request = OffsetFetchRequest(group_id=group, require_stable=stable, topics=None)
    of_one = OffsetFetchRequest.Group(group_id=group, topics=None)
    if partitions is not None:
        wanted = by_topic(partitions).items()
        request.topics = [
            OffsetFetchRequest.Topic(name=name, partition_indexes=at) for name, at in wanted
        ]
        of_one.topics = [of_one.Topic(name=name, partition_indexes=at) for name, at in wanted]
    request.groups = [of_one]
    oldest = NULL_IS_ALL if partitions is None else IN_KAFKA
    answer = connection.call(request, OffsetFetchResponse, oldest=oldest, newest=BY_NAME)
    of_group = answer.groups[0] if answer.groups else answer
    if of_group.error_code:
        raise failed(f"group '{group}'", of_group.error_code)
    found = {}
    for topic in of_group.topics:
        for entry in topic.partitions:
            if entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if entry.error_code:
                raise failed(f"group '{group}'", entry.error_code)
            if entry.committed_offset >= 0:
                place = TopicPartition(topic.name, entry.partition_index)
                found[place] = Committed(entry.committed_offset, entry.metadata or "")
    return found


def failed(what: str, code: int) -> Exception:
    """The failure of an error that a coordinator answers: Again for one that may be over soon."""
    text = f"{what}: {said(code)}"
    if code in {known for known in ErrorCode if known.retriable}:
        return Again(Unreachable(text))
    return Refused(text, code)
