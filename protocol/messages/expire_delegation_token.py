"""ExpireDelegationToken (40): a token is to end sooner, or now.

0  the first
1  a throttled client waits by itself
2  flexible
"""

from __future__ import annotations

from protocol.schema import Message, binary, int16, int32, int64


class ExpireDelegationTokenRequest(Message, key=40, versions="0-2", flexible="2+"):
    hmac: bytes = binary()
    # Below 0 ends the token at once.
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, key=40, versions="0-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    # Comes last here; in most responses it comes first.
    throttle_time_ms: int = int32(default=0)


def refused(request: ExpireDelegationTokenRequest, code: int) -> ExpireDelegationTokenResponse:
    """An answer of an error and nothing else."""
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
