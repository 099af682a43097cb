"""DeleteGroups: groups without members go, with all their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.pending import Durable, coordinator_not_available
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.partitions.topic import Partition
    from protocol.connection import Request

GroupResult = DeleteGroupsResponse.Group


def delete_groups(request: Request, ctx: Context) -> Any:
    message: DeleteGroupsRequest = request.message
    results = []
    touched: dict[Partition, None] = {}
    for group_id in dict.fromkeys(message.groups_names):
        try:
            ctx.require(Operation.DELETE, ResourceType.GROUP, group_id)
            shard = ctx.offsets.delete_group(group_id)
            if not shard.is_durable:
                touched[shard.partition] = None
            results.append(GroupResult(group_id=group_id, error_code=ErrorCode.NONE))
        except KafkaError as error:
            results.append(
                GroupResult(
                    group_id=group_id, error_code=error.code, error_message=str(error) or None
                )
            )
    response = DeleteGroupsResponse(results=results)
    if not touched:
        return response
    return Durable(response, list(touched), coordinator_not_available)
