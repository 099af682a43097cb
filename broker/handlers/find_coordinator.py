"""FindCoordinator: whoever leads the partition that a group or a transactional id falls to.

Who looks for the coordinator of a group or a transactional id is about to use it: what it needs on
the disk is made now, so that the first answer is final.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.nodes import node
from protocol.acls import REFUSALS, Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.handlers.nodes import Node
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
    leaders = _leaders(message.key_type, allowed, request, ctx)
    if one_key:
        if not allowed:
            raise KafkaError(code=REFUSALS[kind])
        found = node(leaders[message.key], ctx)
        return FindCoordinatorResponse(node_id=found.node_id, host=found.host, port=found.port)
    return FindCoordinatorResponse(
        coordinators=[
            _coordinator(key, node(leaders[key], ctx))
            if key in leaders
            else Coordinator(key=key, node_id=-1, host="", port=-1, error_code=REFUSALS[kind])
            for key in keys
        ]
    )


def _leaders(kind: int, keys: list[str], request: Request, ctx: Context) -> dict[str, int]:
    """The ids of the brokers that coordinate these. Raises NeededFirst, KafkaError."""
    if kind == GROUP and keys:
        ctx.groups.look_for(keys, request.client_id or "")
        return {key: ctx.groups.leader_id(key) for key in keys}
    if kind == TRANSACTION and keys:
        ctx.transactions.require_topic()
        return {key: ctx.transactions.leader_id(key) for key in keys}
    return dict.fromkeys(keys, ctx.node_id)


def _coordinator(key: str, found: Node) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=ErrorCode.NONE,
    )
