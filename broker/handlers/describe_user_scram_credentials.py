"""DescribeUserScramCredentials: which users have credentials, and of how many iterations. No salt
and no key is ever told."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

UserResult = DescribeUserScramCredentialsResponse.User


def describe_user_scram_credentials(
    request: Request, ctx: Context
) -> DescribeUserScramCredentialsResponse:
    message: DescribeUserScramCredentialsRequest = request.message
    known: dict[str, list[UserResult.CredentialInfo]] = {}
    for (user, mechanism), record in sorted(ctx.controller.image.scram_credentials.items()):
        known.setdefault(user, []).append(
            UserResult.CredentialInfo(mechanism=mechanism, iterations=record.iterations)
        )
    named = Counter(user.name for user in message.users or ())
    results = []
    for user in named or known:
        entry = UserResult(user=user, error_code=ErrorCode.NONE, credential_infos=[])
        if named[user] > 1:
            entry.error_code = ErrorCode.DUPLICATE_RESOURCE
            entry.error_message = f"user '{user}' is named twice"
        elif user not in known:
            entry.error_code = ErrorCode.RESOURCE_NOT_FOUND
            entry.error_message = f"user '{user}' has no credentials"
        else:
            entry.credential_infos = known[user]
        results.append(entry)
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, results=results)
