"""LeaveGroup: members of a classic group leave, or are put out of it by an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request
    from protocol.messages.leave_group import LeaveGroupResponse


def leave_group(request: Request, ctx: Context) -> LeaveGroupResponse:
    return ctx.groups.classic.leave(request.message, ctx.caller(request))
