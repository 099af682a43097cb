"""ConsumerGroupDescribe: groups of the newer protocol (KIP-848), member by member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.consumer.group import ConsumerGroup
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

GroupResult = ConsumerGroupDescribeResponse.Group


def consumer_group_describe(request: Request, ctx: Context) -> ConsumerGroupDescribeResponse:
    message: ConsumerGroupDescribeRequest = request.message
    return ConsumerGroupDescribeResponse(
        groups=[_describe(group_id, ctx) for group_id in message.group_ids]
    )


def _describe(group_id: str, ctx: Context) -> GroupResult:
    groups = ctx.groups
    try:
        if not group_id:
            raise KafkaError("a group needs an id", code=ErrorCode.INVALID_GROUP_ID)
        ctx.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        shard = groups.existing_shard(group_id)
        group = None if shard is None else shard.state.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.describe(groups.topics)
        known = group is not None or (shard is not None and group_id in shard.state.offsets)
        raise KafkaError(
            f"Group {group_id} {'is not a consumer group' if known else 'not found'}.",
            code=ErrorCode.GROUP_ID_NOT_FOUND,
        )
    except KafkaError as error:
        return GroupResult(
            error_code=error.code,
            error_message=str(error) or None,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
