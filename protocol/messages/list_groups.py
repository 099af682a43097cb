"""ListGroups (16): the groups there are.

0  the first; old clients probe the age of a broker with it
1  throttle time
2  a throttled client waits by itself
3  flexible
4  only groups in certain states; the answer tells the state
5  only groups of certain types; the answer tells the type
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, string


class ListGroupsRequest(Message, key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = array(string, "4+", default=())
    types_filter: list[str] = array(string, "5+", default=())


class ListGroupsResponse(Message, key=16, versions="0-5", flexible="3+"):
    class Group(Struct):
        group_id: str = string()
        protocol_type: str = string()
        group_state: str = string("4+", default="")
        group_type: str = string("5+", default="")

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()
    groups: list[Group] = array(Group)


def refused(request: ListGroupsRequest, code: int) -> ListGroupsResponse:
    """An answer of an error and no groups."""
    return ListGroupsResponse(error_code=code, groups=[])
