"""AlterConfigs (33): all the settings of a resource at once; what is not named goes back to
its default.

0  the first
1  a throttled client waits by itself
2  flexible
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class AlterConfigsRequest(Message, key=33, versions="0-2", flexible="2+"):
    class Resource(Struct):
        class Config(Struct):
            name: str = string()
            value: str | None = string(nullable="")

        resource_type: int = int8()
        resource_name: str = string()
        configs: list[Config] = array(Config)

    resources: list[Resource] = array(Resource)
    validate_only: bool = boolean()


class AlterConfigsResponse(Message, key=33, versions="0-2", flexible="2+"):
    class Resource(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32(default=0)
    responses: list[Resource] = array(Resource)


def refused(request: AlterConfigsRequest, code: int) -> AlterConfigsResponse:
    """The answer in which every resource named meets the same error."""
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponse.Resource(
                error_code=code,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked in request.resources
        ]
    )
