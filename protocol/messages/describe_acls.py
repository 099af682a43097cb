"""DescribeAcls (29): the access rules that match a filter.

0  rules for resources by their exact name
1  pattern types; a throttled client waits by itself
2  flexible
3  users are resources too
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int16, int32, string


class DescribeAclsRequest(Message, key=29, versions="0-3", flexible="2+"):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="")
    # 3 literal, 4 prefixed; in a filter also 1 any and 2 whatever matches.
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="")
    host_filter: str | None = string(nullable="")
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResponse(Message, key=29, versions="0-3", flexible="2+"):
    class Resource(Struct):
        class Acl(Struct):
            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()

        resource_type: int = int8()
        resource_name: str = string()
        pattern_type: int = int8("1+", default=3)
        acls: list[Acl] = array(Acl)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    resources: list[Resource] = array(Resource)


def refused(request: DescribeAclsRequest, code: int) -> DescribeAclsResponse:
    """An answer of an error and no rules."""
    return DescribeAclsResponse(error_code=code, resources=[])
