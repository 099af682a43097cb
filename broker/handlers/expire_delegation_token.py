"""ExpireDelegationToken: refused, as by Kafka: there are no tokens where nobody authenticates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    refused,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def expire_delegation_token(request: Request, ctx: Context) -> ExpireDelegationTokenResponse:
    message: ExpireDelegationTokenRequest = request.message
    return refused(message, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
