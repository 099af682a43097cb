"""DescribeDelegationToken: the tokens that the client owns or may renew, and those that rules open
to it, one by one or by their owner (KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.delegation_tokens import refusal
from broker.security.delegation_tokens import may_renew, stored_principal
from broker.security.principal import Principal
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    refused,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request
    from protocol.logdata.metadata import DelegationTokenRecord

Token = DescribeDelegationTokenResponse.Token


def describe_delegation_token(request: Request, ctx: Context) -> DescribeDelegationTokenResponse:
    message: DescribeDelegationTokenRequest = request.message
    code = refusal(ctx)
    if code is not None:
        return refused(message, code)
    tokens = ctx.delegation_tokens()
    if tokens is None:
        return refused(message, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if message.owners is not None:
        owners = [Principal(one.principal_type, one.principal_name) for one in message.owners]
    found = [
        _described(one, tokens.secret(one.token_id))
        for one in tokens.all()
        if owners is None or any(may_renew(one, owner) for owner in owners)
        if _may_see(one, ctx)
    ]
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=found)


def _may_see(token: DelegationTokenRecord, ctx: Context) -> bool:
    return (
        may_renew(token, ctx.principal)
        or ctx.allows(
            Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, silent=True
        )
        or ctx.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, silent=True)
    )


def _described(token: DelegationTokenRecord, secret: bytes) -> Token:
    owner, requester = stored_principal(token.owner), stored_principal(token.requester)
    renewers = [stored_principal(one) for one in token.renewers]
    return Token(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            Token.Renewer(principal_type=one.kind, principal_name=one.name) for one in renewers
        ],
    )
