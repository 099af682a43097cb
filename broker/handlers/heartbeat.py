"""Heartbeat: a member of a classic group is alive, and hears of a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.eras import HEARTBEAT, code_for
from protocol.errors import KafkaError
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def heartbeat(request: Request, ctx: Context) -> HeartbeatResponse:
    message: HeartbeatRequest = request.message
    try:
        code: int = ctx.groups.classic.heartbeat(message)
    except KafkaError as error:
        code = code_for(HEARTBEAT, request.version, error.code)
    return HeartbeatResponse(error_code=code)
