"""All that a broker says of its groups, in a form in which two brokers can be compared."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from tests.clients.offsets_in_kafka.groups_made import (
    PARTITIONS,
    PATIENCE_S,
    TOPIC,
    find_coordinator,
)
from tests.support.group_caller import Found, GroupCaller

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.group_caller import Place
    from tests.support.server_process import ServerProcess

SEVERAL, NAMED, WITH_TYPES = 9, 5, 5
LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Facts(NamedTuple):
    """By group what OffsetFetch, DescribeGroups and ConsumerGroupDescribe say, and all groups that
    ListGroups lists."""

    offsets: dict[str, dict[Place, Found]]
    #: What a consumer is told that wants no offset that a transaction may still change.
    stable: dict[str, dict[Place, Found]]
    described: dict[str, Any]
    consumers: dict[str, Any]
    #: (group, protocol type, state, type of group).
    listed: set[tuple[str, str, str, str]]

    def of(self, groups: Iterable[str]) -> Facts:
        """What there is of these groups alone."""
        wanted = set(groups)
        return Facts(
            {group: found for group, found in self.offsets.items() if group in wanted},
            {group: found for group, found in self.stable.items() if group in wanted},
            {group: found for group, found in self.described.items() if group in wanted},
            {group: found for group, found in self.consumers.items() if group in wanted},
            {entry for entry in self.listed if entry[0] in wanted},
        )


def facts_of(server: ServerProcess, groups: Iterable[str]) -> Facts:
    """Ask all of it. Waits until the coordinator of each group has read its log."""
    groups = sorted(groups)
    with GroupCaller(server.host, server.port, timeout_s=PATIENCE_S) as caller:
        for group in groups:
            find_coordinator(caller, group)
            _wait_until_loaded(caller, group)
        listed = caller.call(ListGroupsRequest(), WITH_TYPES)
        assert listed.error_code == 0
        return Facts(
            {group: caller.committed(group, None, version=SEVERAL) for group in groups},
            {group: _stable(caller, group) for group in groups},
            {group: _described(caller, group) for group in groups},
            {group: _consumer_described(caller, group) for group in groups},
            {(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in listed.groups},
        )


def _wait_until_loaded(caller: GroupCaller, group: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = caller.fetch_offsets(group, None, version=SEVERAL)
        code = answer.groups[0].error_code
        if code == 0:
            return
        assert code in LOADING, ErrorCode(code)
        assert time.monotonic() < deadline, ErrorCode(code)
        time.sleep(0.05)


def _stable(caller: GroupCaller, group: str) -> dict[Place, Found]:
    places = [(TOPIC, partition) for partition in range(PARTITIONS)]
    return caller.committed(group, places, version=SEVERAL, require_stable=True)


def _described(caller: GroupCaller, group: str) -> Any:
    (found,) = caller.call(DescribeGroupsRequest(groups=[group]), NAMED).groups
    members = {
        member.member_id: (
            member.group_instance_id,
            member.client_id,
            member.client_host,
            bytes(member.member_metadata),
            bytes(member.member_assignment),
        )
        for member in found.members
    }
    return (
        found.error_code,
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        members,
    )


def _consumer_described(caller: GroupCaller, group: str) -> Any:
    """Of a group of the classic protocol, or where that is all there is, the code alone."""
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    (found,) = caller.call(request, 0).groups
    if found.error_code:
        return found.error_code
    members = {
        member.member_id: (
            member.instance_id,
            member.rack_id,
            member.member_epoch,
            member.client_id,
            member.client_host,
            member.subscribed_topic_names,
            member.subscribed_topic_regex or None,  # Kafka answers an empty one for none
            _partitions(member.assignment),
            _partitions(member.target_assignment),
        )
        for member in found.members
    }
    return (
        found.group_state,
        found.group_epoch,
        found.assignment_epoch,
        found.assignor_name,
        members,
    )


def _partitions(assignment: Any) -> dict[tuple[bytes, str], list[int]]:
    return {
        (topic.topic_id, topic.topic_name): sorted(topic.partitions)
        for topic in assignment.topic_partitions
    }
