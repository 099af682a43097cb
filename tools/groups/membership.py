"""The groups there are, and who is in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.client import said
from protocol.errors import ErrorCode
from protocol.logdata.membership import assignment_of
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tools.cluster import TopicPartition
from tools.errors import NotDone

if TYPE_CHECKING:
    from collections.abc import Collection

    from tools.cluster import Cluster

CONSUMER_PROTOCOL = "consumer"
"""The protocol type of classic groups of consumers: what their members are given can be read."""


class ListedGroup(NamedTuple):
    """`state` and `kind` ("classic", "consumer", ...) are "" where the broker does not tell them:
    before Kafka 2.6 and 3.8. `protocol_type` is "" of a group that only keeps offsets."""

    group_id: str
    kind: str
    state: str
    protocol_type: str


class Member(NamedTuple):
    """`assigned` is None for what cannot be read: a group of something other than consumers."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: list[TopicPartition] | None
    epoch: int | None


class Group(NamedTuple):
    """`epoch` is that of a group of the newer protocol (KIP-848). Nobody tells the generation of a
    classic one. `exists` is False for one that the coordinator does not know."""

    group_id: str
    kind: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int | None
    members: list[Member]
    coordinator: str
    exists: bool = True


def list_groups(cluster: Cluster, *, but: Collection[int] = ()) -> list[ListedGroup]:
    """The groups of all brokers, `but` those of these ids, by name."""
    found: list[ListedGroup] = []
    answers = cluster.on_each_broker(
        lambda connection: connection.call(ListGroupsRequest(), ListGroupsResponse),
        lambda answer: answer.error_code,
        but=but,
    )
    for connection, answer in answers:
        if answer.error_code:
            raise NotDone(f"{connection.address}: ListGroups: {said(answer.error_code)}")
        found += [
            ListedGroup(group.group_id, group.group_type, group.group_state, group.protocol_type)
            for group in answer.groups
        ]
    return sorted(found)


def group_of(cluster: Cluster, group_id: str) -> Group:
    """The group and its members. One that does not exist is without both, and not `exists`."""
    return _consumer_group(cluster, group_id) or _classic_group(cluster, group_id)


def _consumer_group(cluster: Cluster, group_id: str) -> Group | None:
    """None if it is no group of the newer protocol, or the broker has no such groups."""
    if not cluster.offers(ConsumerGroupDescribeRequest):
        return None
    request = ConsumerGroupDescribeRequest(
        group_ids=[group_id], include_authorized_operations=False
    )
    coordinator, answer = cluster.coordinated(
        group_id,
        lambda connection: (
            connection.address,
            connection.call(request, ConsumerGroupDescribeResponse).groups[0],
        ),
        lambda answer: answer[1].error_code,
    )
    # Kafka 3.x offers the request also where the protocol is switched off.
    if answer.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    if answer.error_code:
        raise NotDone(f"group '{group_id}': {said(answer.error_code)}")
    members = [
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            sorted(
                TopicPartition(topic.topic_name, partition)
                for topic in member.assignment.topic_partitions
                for partition in topic.partitions
            ),
            member.member_epoch,
        )
        for member in answer.members
    ]
    return Group(
        group_id=group_id,
        kind="consumer",
        state=answer.group_state,
        protocol_type=CONSUMER_PROTOCOL,
        assignor=answer.assignor_name,
        epoch=answer.group_epoch,
        members=members,
        coordinator=coordinator,
    )


def _classic_group(cluster: Cluster, group_id: str) -> Group:
    request = DescribeGroupsRequest(groups=[group_id])
    coordinator, answer = cluster.coordinated(
        group_id,
        lambda connection: (
            connection.address,
            connection.call(request, DescribeGroupsResponse).groups[0],
        ),
        lambda answer: answer[1].error_code,
    )
    if answer.error_code not in (0, ErrorCode.GROUP_ID_NOT_FOUND):
        raise NotDone(f"group '{group_id}': {said(answer.error_code)}")
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assigned(answer.protocol_type, member.member_assignment),
            None,
        )
        for member in answer.members
    ]
    return Group(
        group_id=group_id,
        kind="classic",
        state=answer.group_state,
        protocol_type=answer.protocol_type,
        assignor=answer.protocol_data,
        epoch=None,
        members=members,
        coordinator=coordinator,
        # Before version 6 a group that does not exist is described as dead.
        exists=answer.error_code == 0 and answer.group_state != "Dead",
    )


def _assigned(protocol_type: str, data: bytes) -> list[TopicPartition] | None:
    if not data:
        return []
    assignment = assignment_of(data) if protocol_type == CONSUMER_PROTOCOL else None
    if assignment is None:
        return None
    return sorted(
        TopicPartition(topic, partition)
        for topic, partitions in assignment.partitions
        for partition in partitions
    )
