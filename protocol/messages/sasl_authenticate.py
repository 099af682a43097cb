"""SaslAuthenticate (36): a token of the exchange that SaslHandshake began.

0  the first
1  the answer tells how long the session lasts (KIP-368)
2  flexible
"""

from __future__ import annotations

from protocol.schema import Message, binary, int16, int64, string


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = binary()


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    auth_bytes: bytes = binary()
    # 0 is for ever.
    session_lifetime_ms: int = int64("1+", default=0)


def refused(request: SaslAuthenticateRequest, code: int) -> SaslAuthenticateResponse:
    """An answer of an error and no token."""
    return SaslAuthenticateResponse(error_code=code, auth_bytes=b"")
