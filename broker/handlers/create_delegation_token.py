"""CreateDelegationToken: refused, as by Kafka: tokens are for those who authenticated (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    refused,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def create_delegation_token(request: Request, ctx: Context) -> CreateDelegationTokenResponse:
    message: CreateDelegationTokenRequest = request.message
    return refused(message, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
