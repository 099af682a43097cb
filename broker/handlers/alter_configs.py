"""AlterConfigs: replaces all settings of a topic, broker, group or subscription to client metrics;
what is not named goes back to what holds without it.

Of a broker these are the settings made at run time, for it or ("") for all brokers. They take
effect at once; what came from the file, the environment and the command line holds below them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.handlers.config_resources import BROKER_LOGGER, resource_to_alter
from broker.handlers.metadata_changes import changed
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from protocol.connection import Request
    from storage.steps import Steps

Asked = AlterConfigsRequest.Resource
Answered = AlterConfigsResponse.Resource


def alter_configs(request: Request, ctx: Context) -> ChangeWait:
    return changed(_answer(request, ctx), ctx)


def _answer(request: Request, ctx: Context) -> Steps[AlterConfigsResponse]:
    message: AlterConfigsRequest = request.message
    named = Counter((asked.resource_type, asked.resource_name) for asked in message.resources)
    responses = []
    for asked in message.resources:
        answered = Answered(
            error_code=ErrorCode.NONE,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
        try:
            if asked.resource_type == BROKER_LOGGER:
                raise KafkaError(
                    "the levels of loggers are changed one by one, with IncrementalAlterConfigs",
                    code=ErrorCode.INVALID_REQUEST,
                )
            resource = resource_to_alter(asked.resource_type, asked.resource_name, named, ctx)
            yield from resource.replace(_overrides(asked), validate_only=message.validate_only)
        except KafkaError as error:
            answered.error_code = error.code
            answered.error_message = str(error)
        responses.append(answered)
    return AlterConfigsResponse(responses=responses)


def _overrides(asked: Asked) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for config in asked.configs:
        if config.name in overrides:
            raise KafkaError(f"{config.name} is named twice", code=ErrorCode.INVALID_REQUEST)
        if config.value is None:
            raise KafkaError(f"{config.name} has no value", code=ErrorCode.INVALID_REQUEST)
        overrides[config.name] = config.value
    return overrides
