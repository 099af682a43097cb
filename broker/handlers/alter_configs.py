"""AlterConfigs: replaces all settings of a topic; what is not named goes back to its default.

Settings of the broker itself are read-only here: they come from the file, the environment and the
command line.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from config import ConfigError, TopicSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from broker.context import Context
    from broker.topics import Topic
    from protocol.connection import Request

TOPIC = 2

Asked = AlterConfigsRequest.Resource
Answered = AlterConfigsResponse.Resource


def alter_configs(request: Request, ctx: Context) -> AlterConfigsResponse:
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
            topic = topic_to_alter(asked.resource_type, asked.resource_name, named, ctx)
            replace(topic, _overrides(asked), ctx, validate_only=message.validate_only)
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
        if config.value is not None:
            overrides[config.name] = config.value
    return overrides


def topic_to_alter(
    resource_type: int, name: str, named: Counter[tuple[int, str]], ctx: Context
) -> Topic:
    """The topic whose settings are to change. Raises KafkaError; `named` counts
    what the request names; nothing may come twice."""
    if named[resource_type, name] > 1:
        raise KafkaError(f"resource '{name}' is named twice", code=ErrorCode.INVALID_REQUEST)
    if resource_type != TOPIC:
        raise KafkaError(
            "only the settings of topics can be changed while the broker runs; the broker's own "
            "come from its properties file, its environment and --set",
            code=ErrorCode.INVALID_REQUEST,
        )
    topic = ctx.broker.topics.by_name.get(name)
    if topic is None:
        raise KafkaError(f"there is no topic '{name}'", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def replace(topic: Topic, overrides: dict[str, str], ctx: Context, *, validate_only: bool) -> None:
    """Give a topic these settings and no others. Raises KafkaError; then nothing has changed."""
    try:
        if validate_only:
            TopicSettings.of(ctx.broker.settings, overrides)
        else:
            ctx.broker.topics.configure(topic, overrides)
    except ConfigError as error:
        raise KafkaError(str(error), code=ErrorCode.INVALID_CONFIG) from None
    except OSError as error:
        ctx.failed("storing settings", error, topic=topic.name)
        raise KafkaError(
            f"the data directory can't be written: {error.strerror}",
            code=ErrorCode.KAFKA_STORAGE_ERROR,
        ) from None
