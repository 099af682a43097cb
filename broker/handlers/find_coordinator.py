"""FindCoordinator: this broker coordinates everything there is to coordinate.

Who looks for the coordinator of a group or a transactional id is about to use it: what it needs on
the disk is made now, so that the first answer is final.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.nodes import this_node
from protocol.acls import REFUSALS, Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

GROUP, TRANSACTION, SHARE = 0, 1, 2
SEVERAL_KEYS_SINCE = 4
SHARE_SINCE = 6

Coordinator = FindCoordinatorResponse.Coordinator


def find_coordinator(request: Request, ctx: Context) -> FindCoordinatorResponse:
    message: FindCoordinatorRequest = request.message
    highest = SHARE if request.version >= SHARE_SINCE else TRANSACTION
    if not GROUP <= message.key_type <= highest:
        raise KafkaError(
            f"coordinator type {message.key_type}, wanted 0 to {highest}",
            code=ErrorCode.INVALID_REQUEST,
        )
    one_key = request.version < SEVERAL_KEYS_SINCE
    keys = [message.key] if one_key else message.coordinator_keys
    kind = ResourceType.TRANSACTIONAL_ID if message.key_type == TRANSACTION else ResourceType.GROUP
    allowed = [key for key in keys if ctx.allows(Operation.DESCRIBE, kind, key)]
    if message.key_type == GROUP:
        if allowed:
            ctx.groups.look_for(allowed, request.client_id or "")
    elif message.key_type == TRANSACTION and allowed:
        ctx.transactions.require_topic()
    node_id, host, port, _ = this_node(ctx)
    if one_key:
        if not allowed:
            raise KafkaError(code=REFUSALS[kind])
        return FindCoordinatorResponse(node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=ErrorCode.NONE)
            if key in allowed
            else Coordinator(key=key, node_id=-1, host="", port=-1, error_code=REFUSALS[kind])
            for key in keys
        ]
    )
