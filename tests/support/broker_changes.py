"""Settings of a running broker, changed and read as an administrator's client does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tests.support.caller import Caller

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)

Altered = IncrementalAlterConfigsResponse.Resource
Config = DescribeConfigsResponse.Result.Config
Synonym = tuple[str, str | None, int]


def alter(
    caller: Caller,
    *changes: tuple[str, int, str | None],
    name: str = "1",
    resource_type: int = BROKER,
    version: int = 1,
    validate_only: bool = False,
) -> Altered:
    """IncrementalAlterConfigs of one resource, by default the broker 1: (key, operation, value)."""
    resource = IncrementalAlterConfigsRequest.Resource
    asked = resource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            resource.Config(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=validate_only)
    (answered,) = caller.call(request, version).responses
    assert (answered.resource_type, answered.resource_name) == (resource_type, name)
    altered: Altered = answered
    return altered


def set_all(caller: Caller, settings: dict[str, str], *, name: str = "1") -> None:
    """Set these of a broker, or ("") of all; they must be taken."""
    answered = alter(caller, *((key, SET, value) for key, value in settings.items()), name=name)
    assert answered.error_code == 0, answered.error_message


def delete_all(caller: Caller, *keys: str, name: str = "1") -> None:
    """Take these away again."""
    answered = alter(caller, *((key, DELETE, None) for key in keys), name=name)
    assert answered.error_code == 0, answered.error_message


def described(
    caller: Caller, name: str = "1", *, resource_type: int = BROKER, version: int = 4
) -> dict[str, Config]:
    """Every setting of a resource, with its synonyms."""
    asked = DescribeConfigsRequest.Resource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=version >= 1)
    (result,) = caller.call(request, version).results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def synonyms(config: Config) -> list[Synonym]:
    return [(one.name, one.value, one.source) for one in config.synonyms]
