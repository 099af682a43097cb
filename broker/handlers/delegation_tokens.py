"""What the requests about delegation tokens have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.delegation_tokens import is_expired, may_renew
from broker.security.principal import ANONYMOUS
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.security.delegation_tokens import DelegationTokens
    from protocol.logdata.metadata import DelegationTokenRecord


def refusal(ctx: Context) -> ErrorCode | None:
    """Why this client may not ask about tokens at all: nobody knows it, or a token let it in."""
    known = ctx.security_protocol != "PLAINTEXT" and ctx.principal != ANONYMOUS
    if ctx.delegation_token is not None or not known:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return None


def own_token(
    tokens: DelegationTokens | None, secret: bytes, ctx: Context, *, even_expired: bool = False
) -> DelegationTokenRecord | ErrorCode:
    """The token with this secret, which the client may renew and end; else why not."""
    if tokens is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    token = tokens.find(secret)
    if token is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    expired = is_expired(token, ctx.clock_ms())
    if expired and not even_expired:
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    if not may_renew(token, ctx.principal):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    return token
