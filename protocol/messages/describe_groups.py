"""DescribeGroups (15): the state and the members of classic groups.

0  the first
1  throttle time
2  a throttled client waits by itself
3  the operations the caller may do, if asked for
4  static members
5  flexible
6  a group that does not exist is an error, with a message; before, it was a dead group
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, binary, boolean, int16, int32, string


class DescribeGroupsRequest(Message, key=15, versions="0-6", flexible="5+"):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+", default=False)


class DescribeGroupsResponse(Message, key=15, versions="0-6", flexible="5+"):
    class Group(Struct):
        class Member(Struct):
            member_id: str = string()
            group_instance_id: str | None = string("4+", nullable="4+", default=None)
            client_id: str = string()
            client_host: str = string()
            member_metadata: bytes = binary()
            member_assignment: bytes = binary()

        error_code: int = int16()
        error_message: str | None = string("6+", nullable="6+", default=None)
        group_id: str = string()
        group_state: str = string()
        protocol_type: str = string()
        # The name of the protocol chosen.
        protocol_data: str = string()
        members: list[Member] = array(Member)
        authorized_operations: int = int32("3+", default=-2147483648)

    throttle_time_ms: int = int32("1+", default=0)
    groups: list[Group] = array(Group)


def refused(request: DescribeGroupsRequest, code: int) -> DescribeGroupsResponse:
    """The answer in which every group asked for meets the same error."""
    return DescribeGroupsResponse(
        groups=[
            DescribeGroupsResponse.Group(
                error_code=code,
                group_id=group_id,
                group_state="",
                protocol_type="",
                protocol_data="",
                members=[],
            )
            for group_id in request.groups
        ]
    )
