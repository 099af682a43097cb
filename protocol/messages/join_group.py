"""JoinGroup (11): a member enters a classic group, and waits for the others.

0  the session timeout is the time to rejoin as well
1  a time to rejoin of its own
2  throttle time
3  a throttled client waits by itself
4  a member without an id is sent back with one before it may join
5  static members
6  flexible
7  the answer tells the kind of protocol
8  a reason for joining
9  a leader that comes back may be told not to assign again
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, binary, boolean, int16, int32, string


class JoinGroupRequest(Message, key=11, versions="0-9", flexible="6+"):
    class Protocol(Struct):
        name: str = string()
        metadata: bytes = binary()

    group_id: str = string()
    session_timeout_ms: int = int32()
    # -1 is the session timeout.
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[Protocol] = array(Protocol)
    reason: str | None = string("8+", nullable="8+", default=None)


class JoinGroupResponse(Message, key=11, versions="0-9", flexible="6+"):
    class Member(Struct):
        member_id: str = string()
        group_instance_id: str | None = string("5+", nullable="5+", default=None)
        metadata: bytes = binary()

    throttle_time_ms: int = int32("2+", default=0)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    # Empty where there is none, for it may be null only from version 7.
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+", default=False)
    member_id: str = string()
    # Empty for all but the leader.
    members: list[Member] = array(Member)


def refused(request: JoinGroupRequest, code: int) -> JoinGroupResponse:
    """An answer of an error; the member keeps the id it came with."""
    return JoinGroupResponse(
        error_code=code, protocol_name="", leader="", member_id=request.member_id, members=[]
    )
