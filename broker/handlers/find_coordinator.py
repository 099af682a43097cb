"""FindCoordinator: this broker coordinates everything there is to coordinate.

Who looks for the coordinator of a group or a transactional id is about to use it: what it needs on
the disk is made now, so that the first answer is final.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

GROUP, TRANSACTION, SHARE = 0, 1, 2
SEVERAL_KEYS_SINCE = 4
SHARE_SINCE = 6


def find_coordinator(request: Request, ctx: Context) -> FindCoordinatorResponse:
    message: FindCoordinatorRequest = request.message
    highest = SHARE if request.version >= SHARE_SINCE else TRANSACTION
    if not GROUP <= message.key_type <= highest:
        raise KafkaError(
            f"coordinator type {message.key_type}, wanted 0 to {highest}",
            code=ErrorCode.INVALID_REQUEST,
        )
    if message.key_type == GROUP:
        keys = [message.key] if request.version < SEVERAL_KEYS_SINCE else message.coordinator_keys
        ctx.groups.look_for(keys, request.client_id or "")
    elif message.key_type == TRANSACTION:
        ctx.transactions.require_topic()
    host, port = ctx.advertised()
    node_id = ctx.node_id
    if request.version < SEVERAL_KEYS_SINCE:
        return FindCoordinatorResponse(node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=node_id, host=host, port=port, error_code=ErrorCode.NONE
            )
            for key in message.coordinator_keys
        ]
    )
