"""RenewDelegationToken: refused, as by Kafka: there are no tokens where nobody authenticates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    refused,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def renew_delegation_token(request: Request, ctx: Context) -> RenewDelegationTokenResponse:
    message: RenewDelegationTokenRequest = request.message
    return refused(message, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
