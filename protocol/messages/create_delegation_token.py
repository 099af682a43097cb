"""CreateDelegationToken (38): a token by which others may act for its owner.

0  the first
1  a throttled client waits by itself
2  flexible
3  a token for another owner; the answer tells who asked
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, binary, int16, int32, int64, string


class CreateDelegationTokenRequest(Message, key=38, versions="0-3", flexible="2+"):
    class Renewer(Struct):
        principal_type: str = string()
        principal_name: str = string()

    # Null or empty is the one who asks.
    owner_principal_type: str | None = string("3+", nullable="3+", default="")
    owner_principal_name: str | None = string("3+", nullable="3+", default="")
    renewers: list[Renewer] = array(Renewer)
    # -1 is the broker's own.
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message, key=38, versions="0-3", flexible="2+"):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    # Comes last here; in most responses it comes first.
    throttle_time_ms: int = int32(default=0)


def refused(request: CreateDelegationTokenRequest, code: int) -> CreateDelegationTokenResponse:
    """An answer of an error and no token."""
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type="",
        principal_name="",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )
