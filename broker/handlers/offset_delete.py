"""OffsetDelete: offsets of a group are to go, those of topics that it does not read now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.pending import Durable, coordinator_not_available
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

Topic = OffsetDeleteResponse.Topic


def offset_delete(request: Request, ctx: Context) -> Any:
    message: OffsetDeleteRequest = request.message
    topics = ctx.topics
    if not message.group_id:
        raise KafkaError("a group needs an id", code=ErrorCode.INVALID_GROUP_ID)
    shard, subscribed = ctx.offsets.to_delete_from(message.group_id)
    offsets = shard.state.offsets
    gone: list[tuple[str, int]] = []
    answered = []
    for asked in message.topics:
        entries = []
        allowed = ctx.allows(Operation.READ, ResourceType.TOPIC, asked.name)
        for one in asked.partitions:
            index = one.partition_index
            code = ErrorCode.NONE
            if not allowed:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif subscribed is None or asked.name in subscribed:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif offsets.get(message.group_id, asked.name, index) is not None or offsets.is_pending(
                message.group_id, asked.name, index
            ):
                gone.append((asked.name, index))
            elif topics.partition(asked.name, index) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            entries.append(Topic.Partition(partition_index=index, error_code=code))
        answered.append(Topic(name=asked.name, partitions=entries))
    if gone:
        ctx.offsets.remove(shard, message.group_id, gone)
    response = OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=answered)
    if shard.is_durable:
        return response
    return Durable(response, [shard.partition], coordinator_not_available)
