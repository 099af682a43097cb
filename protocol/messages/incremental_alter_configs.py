"""IncrementalAlterConfigs (44): single settings are set, cleared, added to or taken from.

0  the first
1  flexible
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class IncrementalAlterConfigsRequest(Message, key=44, versions="0-1", flexible="1+"):
    class Resource(Struct):
        class Config(Struct):
            name: str = string()
            # 0 set, 1 delete, 2 append to a list, 3 take from a list.
            config_operation: int = int8()
            value: str | None = string(nullable="")

        resource_type: int = int8()
        resource_name: str = string()
        configs: list[Config] = array(Config)

    resources: list[Resource] = array(Resource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Message, key=44, versions="0-1", flexible="1+"):
    class Resource(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32(default=0)
    responses: list[Resource] = array(Resource)


def refused(request: IncrementalAlterConfigsRequest, code: int) -> IncrementalAlterConfigsResponse:
    """The answer in which every resource named meets the same error."""
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponse.Resource(
                error_code=code,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked in request.resources
        ]
    )
