"""JoinGroup: a member enters a classic group, and waits until all have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.classic.answers import join_refused
from broker.coordinator.waits import GroupWait
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def join_group(request: Request, ctx: Context) -> Any:
    wait = GroupWait(request)
    try:
        ctx.groups.classic.join(wait, request.message, ctx.caller(request))
    except KafkaError as error:
        return join_refused(request.version, request.message.member_id, error.code)
    return wait.result()
