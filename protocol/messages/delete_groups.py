"""DeleteGroups (42): groups are to go, with the offsets they committed.

0  the first
1  a throttled client waits by itself
2  flexible
3  an error message for each group
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, string


class DeleteGroupsRequest(Message, key=42, versions="0-3", flexible="2+"):
    groups_names: list[str] = array(string)


class DeleteGroupsResponse(Message, key=42, versions="0-3", flexible="2+"):
    class Group(Struct):
        group_id: str = string()
        error_code: int = int16()
        error_message: str | None = string("3+", nullable="3+", default=None)

    throttle_time_ms: int = int32(default=0)
    results: list[Group] = array(Group)


def refused(request: DeleteGroupsRequest, code: int) -> DeleteGroupsResponse:
    """The answer in which every group named meets the same error."""
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.Group(group_id=group_id, error_code=code)
            for group_id in request.groups_names
        ]
    )
