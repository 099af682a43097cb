"""ExpireDelegationToken: a token is to end sooner, or now; whoever it has let in goes with it."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from broker.handlers.delegation_tokens import own_token, refusal
from broker.handlers.metadata_changes import changed, make_change
from protocol.errors import ErrorCode
from protocol.logdata.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    refused,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from protocol.connection import Request
    from storage.steps import Steps


def expire_delegation_token(
    request: Request, ctx: Context
) -> ExpireDelegationTokenResponse | ChangeWait:
    message: ExpireDelegationTokenRequest = request.message
    code = refusal(ctx)
    if code is not None:
        return refused(message, code)
    return changed(_answer(message, ctx), ctx)


def _answer(
    message: ExpireDelegationTokenRequest, ctx: Context
) -> Steps[ExpireDelegationTokenResponse]:
    at_once = message.expiry_time_period_ms < 0
    token = own_token(ctx.delegation_tokens(), bytes(message.hmac), ctx, even_expired=at_once)
    if isinstance(token, ErrorCode):
        return ExpireDelegationTokenResponse(error_code=token, expiry_timestamp_ms=0)
    record: DelegationTokenRecord | RemoveDelegationTokenRecord
    if at_once:
        expires_ms = ctx.clock_ms()
        record = RemoveDelegationTokenRecord(token_id=token.token_id)
    else:
        expires_ms = min(token.max_timestamp, ctx.clock_ms() + message.expiry_time_period_ms)
        record = copy(token)
        record.expiration_timestamp = expires_ms
    yield from make_change("the end of a delegation token", [record], ctx)
    return ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expires_ms)
