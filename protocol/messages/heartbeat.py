"""Heartbeat (12): a member of a classic group is alive.

0  the first
1  throttle time
2  a throttled client waits by itself
3  static members
4  flexible
"""

from __future__ import annotations

from protocol.schema import Message, int16, int32, string


class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()


def refused(request: HeartbeatRequest, code: int) -> HeartbeatResponse:
    """An answer of an error and nothing else."""
    return HeartbeatResponse(error_code=code)
