"""CreateDelegationToken: a token by which programs act for its owner (KIP-48).

Whoever is known may have one for itself, and one for others with the right to create their tokens
(KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.delegation_tokens import refusal
from broker.handlers.metadata_changes import changed, make_change
from broker.security.principal import USER, Principal
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.logdata.metadata import DelegationTokenRecord
from protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from storage.identity import uuid_text

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from protocol.connection import Request
    from storage.steps import Steps


def create_delegation_token(
    request: Request, ctx: Context
) -> CreateDelegationTokenResponse | ChangeWait:
    message: CreateDelegationTokenRequest = request.message
    owner = requester = ctx.principal
    if message.owner_principal_name:
        owner = Principal(message.owner_principal_type or USER, message.owner_principal_name)
    refused = refusal(ctx)
    for_another = refused is None and owner != requester
    if for_another and not ctx.allows(Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        refused = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if refused is None and any(one.principal_type != USER for one in message.renewers):
        refused = ErrorCode.INVALID_PRINCIPAL_TYPE
    if refused is not None:
        return _refused(refused, owner, requester)
    return changed(_answer(message, owner, ctx), ctx)


def _answer(
    message: CreateDelegationTokenRequest, owner: Principal, ctx: Context
) -> Steps[CreateDelegationTokenResponse]:
    requester, tokens = ctx.principal, ctx.delegation_tokens()
    if tokens is None:
        return _refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, owner, requester)
    settings, now_ms = ctx.settings.current, ctx.clock_ms()
    lifetime_ms = settings.delegation_token_max_lifetime_ms
    if message.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, message.max_lifetime_ms)
    token = DelegationTokenRecord(
        owner=str(owner),
        requester=str(requester),
        renewers=[f"{one.principal_type}:{one.principal_name}" for one in message.renewers],
        issue_timestamp=now_ms,
        max_timestamp=now_ms + lifetime_ms,
        expiration_timestamp=now_ms + min(lifetime_ms, settings.delegation_token_expiry_time_ms),
        token_id=uuid_text(ctx.new_uuid()),
    )
    yield from make_change("a new delegation token", [token], ctx)
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiration_timestamp,
        max_timestamp_ms=token.max_timestamp,
        token_id=token.token_id,
        hmac=tokens.secret(token.token_id),
    )


def _refused(
    code: ErrorCode, owner: Principal, requester: Principal
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )
