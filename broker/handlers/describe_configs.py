"""DescribeConfigs: the settings of topics and of this broker, with where each value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.describe import broker_rows, topic_rows
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from broker.context import Context
    from config.describe import ConfigRow
    from protocol.connection import Request

TOPIC, BROKER = 2, 4
SOURCES_SINCE = 1
DEFAULT_SOURCE = 5

Asked = DescribeConfigsRequest.Resource
Result = DescribeConfigsResponse.Result


def describe_configs(request: Request, ctx: Context) -> DescribeConfigsResponse:
    message: DescribeConfigsRequest = request.message
    results = []
    for asked in message.resources:
        result = Result(
            error_code=ErrorCode.NONE,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=[],
        )
        try:
            wanted = None if asked.configuration_keys is None else set(asked.configuration_keys)
            result.configs = [
                _config(row, request.version, message, of_broker=asked.resource_type == BROKER)
                for row in _rows(asked, ctx)
                if wanted is None or row.name in wanted
            ]
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = str(error)
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _rows(asked: Asked, ctx: Context) -> list[ConfigRow]:
    broker = ctx.broker
    if asked.resource_type == TOPIC:
        topic = broker.topics.by_name.get(asked.resource_name)
        if topic is None:
            raise KafkaError(
                f"there is no topic '{asked.resource_name}'",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return topic_rows(broker.settings, topic.overrides)
    if asked.resource_type == BROKER:
        if asked.resource_name == "":
            return []
        if asked.resource_name != str(broker.node_id):
            raise KafkaError(
                f"broker '{asked.resource_name}' is not here, this is broker {broker.node_id}",
                code=ErrorCode.INVALID_REQUEST,
            )
        return broker_rows(broker.settings)
    raise KafkaError(
        f"resource type {asked.resource_type} has no settings here; topics are {TOPIC}, "
        f"brokers {BROKER}",
        code=ErrorCode.INVALID_REQUEST,
    )


def _config(
    row: ConfigRow, version: int, message: DescribeConfigsRequest, *, of_broker: bool
) -> Result.Config:
    config = Result.Config(
        name=row.name,
        value=row.value,
        # Whatever Kafka can change while it runs: AlterConfigs refuses the broker's settings here.
        read_only=of_broker or row.read_only,
        config_source=row.source,
        is_default=row.source == DEFAULT_SOURCE,
        is_sensitive=row.sensitive,
        config_type=row.type,
        documentation=row.documentation if message.include_documentation else None,
    )
    if message.include_synonyms and version >= SOURCES_SINCE:
        config.synonyms = [
            Result.Config.Synonym(name=name, value=value, source=source)
            for name, value, source in row.synonyms
        ]
    return config
