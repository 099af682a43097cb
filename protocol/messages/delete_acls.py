"""DeleteAcls (31): the access rules that match a filter are to go.

0  rules for resources by their exact name
1  pattern types; a throttled client waits by itself
2  flexible
3  users are resources too
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int16, int32, string


class DeleteAclsRequest(Message, key=31, versions="0-3", flexible="2+"):
    class Filter(Struct):
        resource_type_filter: int = int8()
        resource_name_filter: str | None = string(nullable="")
        # 3 literal, 4 prefixed; in a filter also 1 any and 2 whatever matches.
        pattern_type_filter: int = int8("1+", default=3)
        principal_filter: str | None = string(nullable="")
        host_filter: str | None = string(nullable="")
        operation: int = int8()
        permission_type: int = int8()

    filters: list[Filter] = array(Filter)


class DeleteAclsResponse(Message, key=31, versions="0-3", flexible="2+"):
    class FilterResult(Struct):
        class MatchingAcl(Struct):
            error_code: int = int16()
            error_message: str | None = string(nullable="", default=None)
            resource_type: int = int8()
            resource_name: str = string()
            pattern_type: int = int8("1+", default=3)
            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()

        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)
        matching_acls: list[MatchingAcl] = array(MatchingAcl)

    throttle_time_ms: int = int32(default=0)
    filter_results: list[FilterResult] = array(FilterResult)


def refused(request: DeleteAclsRequest, code: int) -> DeleteAclsResponse:
    """The answer in which every filter meets the same error; results go in the order asked."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsResponse.FilterResult(error_code=code, matching_acls=[])
            for _ in request.filters
        ]
    )
