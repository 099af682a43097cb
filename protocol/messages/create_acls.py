"""CreateAcls (30): new access rules.

0  rules for resources by their exact name
1  pattern types; a throttled client waits by itself
2  flexible
3  users are resources too
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int16, int32, string


class CreateAclsRequest(Message, key=30, versions="0-3", flexible="2+"):
    class Creation(Struct):
        resource_type: int = int8()
        resource_name: str = string()
        # 3 literal, 4 prefixed.
        resource_pattern_type: int = int8("1+", default=3)
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    creations: list[Creation] = array(Creation)


class CreateAclsResponse(Message, key=30, versions="0-3", flexible="2+"):
    class Result(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)

    throttle_time_ms: int = int32(default=0)
    results: list[Result] = array(Result)


def refused(request: CreateAclsRequest, code: int) -> CreateAclsResponse:
    """The answer in which every rule meets the same error; results go in the order asked."""
    return CreateAclsResponse(
        results=[CreateAclsResponse.Result(error_code=code) for _ in request.creations]
    )
