"""ListConfigResources (74): what has settings. Until Kafka 4.0 its name was
ListClientMetricsResources.

0  client metrics only
1  resources of the types asked for, or of all
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = array(int8, "1+", default=())


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    class ConfigResource(Struct):
        resource_name: str = string()
        resource_type: int = int8("1+", default=16)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)


def refused(request: ListConfigResourcesRequest, code: int) -> ListConfigResourcesResponse:
    """An answer of an error and no resources."""
    return ListConfigResourcesResponse(error_code=code, config_resources=[])
