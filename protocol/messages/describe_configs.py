"""DescribeConfigs (32): the settings of topics, brokers and other resources.

0  each value says whether it is the default
1  each value says where it comes from instead, with its synonyms if asked for
2  a throttled client waits by itself
3  types, and documentation if asked for
4  flexible
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsRequest(Message, key=32, versions="0-4", flexible="4+"):
    class Resource(Struct):
        resource_type: int = int8()
        resource_name: str = string()
        # Null is all of them.
        configuration_keys: list[str] | None = array(string, nullable="")

    resources: list[Resource] = array(Resource)
    include_synonyms: bool = boolean("1+", default=False)
    include_documentation: bool = boolean("3+", default=False)


class DescribeConfigsResponse(Message, key=32, versions="0-4", flexible="4+"):
    class Result(Struct):
        class Config(Struct):
            class Synonym(Struct):
                name: str = string()
                value: str | None = string(nullable="")
                source: int = int8()

            name: str = string()
            value: str | None = string(nullable="")
            read_only: bool = boolean()
            config_source: int = int8("1+", default=-1)
            is_default: bool = boolean("0", default=False)
            is_sensitive: bool = boolean()
            synonyms: list[Synonym] = array(Synonym, "1+", default=())
            config_type: int = int8("3+", default=0)
            documentation: str | None = string("3+", nullable="3+", default="")

        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[Config] = array(Config)

    throttle_time_ms: int = int32(default=0)
    results: list[Result] = array(Result)


def refused(request: DescribeConfigsRequest, code: int) -> DescribeConfigsResponse:
    """The answer in which every resource asked for meets the same error."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResponse.Result(
                error_code=code,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=[],
            )
            for asked in request.resources
        ]
    )
