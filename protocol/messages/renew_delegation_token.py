"""RenewDelegationToken (39): a token is to live longer.

0  the first
1  a throttled client waits by itself
2  flexible
"""

from __future__ import annotations

from protocol.schema import Message, binary, int16, int32, int64


class RenewDelegationTokenRequest(Message, key=39, versions="0-2", flexible="2+"):
    hmac: bytes = binary()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, key=39, versions="0-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    # Comes last here; in most responses it comes first.
    throttle_time_ms: int = int32(default=0)


def refused(request: RenewDelegationTokenRequest, code: int) -> RenewDelegationTokenResponse:
    """An answer of an error and nothing else."""
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
