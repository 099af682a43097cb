"""RenewDelegationToken: a token is to live longer, up to its greatest age."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from broker.handlers.delegation_tokens import own_token, refusal
from broker.handlers.metadata_changes import changed, make_change
from protocol.errors import ErrorCode
from protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    refused,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from protocol.connection import Request
    from storage.steps import Steps


def renew_delegation_token(
    request: Request, ctx: Context
) -> RenewDelegationTokenResponse | ChangeWait:
    message: RenewDelegationTokenRequest = request.message
    code = refusal(ctx)
    if code is not None:
        return refused(message, code)
    return changed(_answer(message, ctx), ctx)


def _answer(
    message: RenewDelegationTokenRequest, ctx: Context
) -> Steps[RenewDelegationTokenResponse]:
    tokens = ctx.delegation_tokens()
    token = own_token(tokens, bytes(message.hmac), ctx)
    if isinstance(token, ErrorCode):
        return RenewDelegationTokenResponse(error_code=token, expiry_timestamp_ms=0)
    period_ms = ctx.settings.current.delegation_token_expiry_time_ms
    if message.renew_period_ms > 0:
        period_ms = min(period_ms, message.renew_period_ms)
    expires_ms = min(token.max_timestamp, ctx.clock_ms() + period_ms)
    renewed = copy(token)
    renewed.expiration_timestamp = expires_ms
    yield from make_change("a renewed delegation token", [renewed], ctx)
    return RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expires_ms)
