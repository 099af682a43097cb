"""SyncGroup (14): the leader of a classic group hands out assignments, the others get theirs.

0  the first
1  throttle time
2  a throttled client waits by itself
3  static members
4  flexible
5  the protocol is named in both directions and checked
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, binary, int16, int32, string


class SyncGroupRequest(Message, key=14, versions="0-5", flexible="4+"):
    class Assignment(Struct):
        member_id: str = string()
        assignment: bytes = binary()

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[Assignment] = array(Assignment)


class SyncGroupResponse(Message, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = binary()


def refused(request: SyncGroupRequest, code: int) -> SyncGroupResponse:
    """An answer of an error and no assignment."""
    return SyncGroupResponse(error_code=code, assignment=b"")
