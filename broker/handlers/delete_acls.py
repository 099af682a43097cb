"""DeleteAcls: refused, filter by filter: there is no authorizer, and there are no rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.create_acls import NO_AUTHORIZER
from protocol.errors import ErrorCode
from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def delete_acls(request: Request, ctx: Context) -> DeleteAclsResponse:
    message: DeleteAclsRequest = request.message
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsResponse.FilterResult(
                error_code=ErrorCode.SECURITY_DISABLED,
                error_message=NO_AUTHORIZER,
                matching_acls=[],
            )
            for _ in message.filters
        ]
    )
