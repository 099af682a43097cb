"""Settings of a topic changed while the broker runs, by both requests that do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from tests.support.caller import Caller

TOPIC = 2
SET = 0


def change(caller: Caller, topic: str, **configs: str) -> int:
    """IncrementalAlterConfigs: set these and leave the others. The error code. `_` stands for `.`
    in names."""
    resource = IncrementalAlterConfigsRequest.Resource
    changes = [
        resource.Config(name=key.replace("_", "."), config_operation=SET, value=value)
        for key, value in configs.items()
    ]
    asked = resource(resource_type=TOPIC, resource_name=topic, configs=changes)
    answer = caller.call(IncrementalAlterConfigsRequest(resources=[asked], validate_only=False), 1)
    code: int = answer.responses[0].error_code
    return code


def replace(caller: Caller, topic: str, **configs: str) -> int:
    """AlterConfigs: set these, and all others back to their defaults. The error code."""
    resource = AlterConfigsRequest.Resource
    wanted = [
        resource.Config(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    asked = resource(resource_type=TOPIC, resource_name=topic, configs=wanted)
    answer = caller.call(AlterConfigsRequest(resources=[asked], validate_only=False), 2)
    code: int = answer.responses[0].error_code
    return code
