"""DescribeGroups: classic groups, their state, and who their members are and what they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.classic.group import ClassicGroup
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

UNKNOWN_IS_AN_ERROR_SINCE = 6
DEAD, EMPTY = "Dead", "Empty"

GroupResult = DescribeGroupsResponse.Group


def describe_groups(request: Request, ctx: Context) -> DescribeGroupsResponse:
    message: DescribeGroupsRequest = request.message
    return DescribeGroupsResponse(
        groups=[_describe(group_id, request.version, ctx) for group_id in message.groups]
    )


def _describe(group_id: str, version: int, ctx: Context) -> GroupResult:
    try:
        ctx.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        shard = ctx.groups.existing_shard(group_id)
    except KafkaError as error:
        return _entry(group_id, "", code=error.code)
    group = None if shard is None else shard.state.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        return _described(group)
    if group is None and shard is not None and shard.state.offsets.knows(group_id):
        return _entry(group_id, EMPTY)
    if version < UNKNOWN_IS_AN_ERROR_SINCE:
        return _entry(group_id, DEAD)
    why = "not found." if group is None else "is not a classic group."
    return _entry(
        group_id, DEAD, code=ErrorCode.GROUP_ID_NOT_FOUND, message=f"Group {group_id} {why}"
    )


def _described(group: ClassicGroup) -> GroupResult:
    shown = group.describe()
    return GroupResult(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=shown.state,
        protocol_type=shown.protocol_type,
        protocol_data=shown.protocol_name,
        members=[
            GroupResult.Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in shown.members
        ],
    )


def _entry(
    group_id: str, state: str, *, code: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> GroupResult:
    return GroupResult(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )
