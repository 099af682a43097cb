"""LeaveGroup (13): members leave a classic group, or are put out of it.

0  one member; its error is the error of the request
1  throttle time
2  a throttled client waits by itself
3  several members, static ones too, each with its own error
4  flexible
5  a reason for leaving
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, string


class LeaveGroupRequest(Message, key=13, versions="0-5", flexible="4+"):
    class Member(Struct):
        member_id: str = string()
        group_instance_id: str | None = string(nullable="", default=None)
        reason: str | None = string("5+", nullable="5+", default=None)

    group_id: str = string()
    member_id: str = string("0-2", default="")
    members: list[Member] = array(Member, "3+", default=())


class LeaveGroupResponse(Message, key=13, versions="0-5", flexible="4+"):
    class Member(Struct):
        member_id: str = string()
        group_instance_id: str | None = string(nullable="")
        error_code: int = int16()

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()
    members: list[Member] = array(Member, "3+", default=())


def refused(request: LeaveGroupRequest, code: int) -> LeaveGroupResponse:
    """An answer of an error and nothing else."""
    return LeaveGroupResponse(error_code=code)
