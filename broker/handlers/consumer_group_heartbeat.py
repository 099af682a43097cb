"""ConsumerGroupHeartbeat: a member of a consumer group (KIP-848) joins, lives and leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.pending import Durable, coordinator_not_available
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def consumer_group_heartbeat(request: Request, ctx: Context) -> Any:
    message: ConsumerGroupHeartbeatRequest = request.message
    groups = ctx.groups
    if not groups.consumer.is_offered:
        return _refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            "group.coordinator.rebalance.protocols does not name the consumer protocol",
        )
    names = message.subscribed_topic_names or ()
    if ctx.authorizer is not None and not all(map(ctx.may_describe, names)):
        return _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "")
    try:
        shard, response = groups.consumer.heartbeat(message, ctx.caller(request))
    except KafkaError as error:
        if error.code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            ctx.refused_subscription(message.group_id, error, client_id=request.client_id)
        return _refusal(error.code, str(error))
    if shard.is_durable:
        return response
    return Durable(response, [shard.partition], coordinator_not_available)


def _refusal(code: ErrorCode, why: str) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=why or None, member_epoch=0, heartbeat_interval_ms=0
    )
