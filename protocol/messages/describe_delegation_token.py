"""DescribeDelegationToken (41): the tokens of some owners.

0  the first
1  a throttled client waits by itself
2  flexible
3  the answer tells who asked for a token
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, binary, int16, int32, int64, string


class DescribeDelegationTokenRequest(Message, key=41, versions="0-3", flexible="2+"):
    class Owner(Struct):
        principal_type: str = string()
        principal_name: str = string()

    # Null is all that the caller may see.
    owners: list[Owner] | None = array(Owner, nullable="")


class DescribeDelegationTokenResponse(Message, key=41, versions="0-3", flexible="2+"):
    class Token(Struct):
        class Renewer(Struct):
            principal_type: str = string()
            principal_name: str = string()

        principal_type: str = string()
        principal_name: str = string()
        token_requester_principal_type: str = string("3+", default="")
        token_requester_principal_name: str = string("3+", default="")
        issue_timestamp: int = int64()
        expiry_timestamp: int = int64()
        max_timestamp: int = int64()
        token_id: str = string()
        hmac: bytes = binary()
        renewers: list[Renewer] = array(Renewer)

    error_code: int = int16()
    tokens: list[Token] = array(Token)
    # Comes last here; in most responses it comes first.
    throttle_time_ms: int = int32(default=0)


def refused(request: DescribeDelegationTokenRequest, code: int) -> DescribeDelegationTokenResponse:
    """An answer of an error and no tokens."""
    return DescribeDelegationTokenResponse(error_code=code, tokens=[])
