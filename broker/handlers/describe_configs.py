"""DescribeConfigs: the settings of topics, this broker and groups, and where each value comes from.

A broker is named by its id; "" is what was set at run time for all of them. The loggers of a broker
are one, "root". Groups and subscriptions to client metrics (KIP-714) need not exist to be
described.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.config_resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    LOG_LEVELS,
    ROOT_LOGGER,
    TOPIC,
    check_broker_name,
    check_named,
    log_level,
    require_configs,
    stored_configs,
    topic_named,
)
from config.describe import (
    ConfigRow,
    Synonym,
    all_brokers_rows,
    broker_rows,
    client_metrics_rows,
    group_rows,
    topic_rows,
)
from config.kinds import string
from protocol.acls import Operation
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

SOURCES_SINCE = 1
DEFAULT_SOURCE = 5
LOGGER_SOURCE = 6

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
            require_configs(
                Operation.DESCRIBE_CONFIGS, asked.resource_type, asked.resource_name, ctx
            )
            wanted = None if asked.configuration_keys is None else set(asked.configuration_keys)
            result.configs = [
                _config(row, request.version, message)
                for row in _rows(asked, ctx)
                if wanted is None or row.name in wanted
            ]
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = str(error)
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _rows(asked: Asked, ctx: Context) -> list[ConfigRow]:
    settings = ctx.settings.current
    if asked.resource_type == TOPIC:
        return topic_rows(settings, topic_named(asked.resource_name, ctx).overrides)
    if asked.resource_type == BROKER:
        check_broker_name(asked.resource_name, ctx)
        return broker_rows(settings) if asked.resource_name else all_brokers_rows(settings)
    if asked.resource_type == BROKER_LOGGER and asked.resource_name:
        check_broker_name(asked.resource_name, ctx)
        return [_logger()]
    if asked.resource_type in (GROUP, CLIENT_METRICS):
        check_named(asked.resource_type, asked.resource_name)
        stored = stored_configs(asked.resource_type, asked.resource_name, ctx)
        return (
            group_rows(settings, stored)
            if asked.resource_type == GROUP
            else client_metrics_rows(stored)
        )
    raise KafkaError(
        f"resource type {asked.resource_type} named '{asked.resource_name}' has no settings here; "
        f"topics ({TOPIC}), brokers ({BROKER}), the loggers of a broker ({BROKER_LOGGER}), groups "
        f"({GROUP}) and client metrics ({CLIENT_METRICS}) have",
        code=ErrorCode.INVALID_REQUEST,
    )


def _logger() -> ConfigRow:
    level = log_level()
    return ConfigRow(
        ROOT_LOGGER,
        level,
        LOGGER_SOURCE,
        string.code,
        read_only=False,
        sensitive=False,
        documentation=f"What is logged: one of {', '.join(LOG_LEVELS)}, and what is above it.",
        synonyms=[Synonym(ROOT_LOGGER, level, LOGGER_SOURCE)],
    )


def _config(row: ConfigRow, version: int, message: DescribeConfigsRequest) -> Result.Config:
    config = Result.Config(
        name=row.name,
        value=row.value,
        read_only=row.read_only,
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
