"""CreateAcls: refused, rule by rule: nothing would enforce them, for there is no authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

NO_AUTHORIZER = "No Authorizer is configured."


def create_acls(request: Request, ctx: Context) -> CreateAclsResponse:
    message: CreateAclsRequest = request.message
    return CreateAclsResponse(
        results=[
            CreateAclsResponse.Result(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
            )
            for _ in message.creations
        ]
    )
