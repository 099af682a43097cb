"""IncrementalAlterConfigs: changes the settings of a topic one by one (KIP-339).

Set, delete, and for lists append and subtract. All changes of one topic are made, or none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.handlers.alter_configs import replace, topic_to_alter
from config import is_list
from config.describe import topic_rows
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from broker.context import Context
    from broker.topics import Topic
    from protocol.connection import Request

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Change = IncrementalAlterConfigsRequest.Resource.Config
Answered = IncrementalAlterConfigsResponse.Resource


def incremental_alter_configs(request: Request, ctx: Context) -> IncrementalAlterConfigsResponse:
    message: IncrementalAlterConfigsRequest = request.message
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
            replace(
                topic,
                _changed(topic, asked.configs, ctx),
                ctx,
                validate_only=message.validate_only,
            )
        except KafkaError as error:
            answered.error_code = error.code
            answered.error_message = str(error)
        responses.append(answered)
    return IncrementalAlterConfigsResponse(responses=responses)


def _changed(topic: Topic, changes: list[Change], ctx: Context) -> dict[str, str]:
    overrides = dict(topic.overrides)
    seen = set()
    for change in changes:
        name = change.name
        if name in seen:
            raise KafkaError(f"{name} is named twice", code=ErrorCode.INVALID_REQUEST)
        seen.add(name)
        if change.config_operation == DELETE:
            overrides.pop(name, None)
            continue
        if change.value is None:
            raise KafkaError(f"{name} has no value", code=ErrorCode.INVALID_REQUEST)
        if change.config_operation == SET:
            overrides[name] = change.value
        elif change.config_operation in (APPEND, SUBTRACT):
            overrides[name] = _list_changed(topic, change, change.value, ctx)
        else:
            raise KafkaError(
                f"operation {change.config_operation} on {name}, wanted 0 to 3",
                code=ErrorCode.INVALID_REQUEST,
            )
    return overrides


def _list_changed(topic: Topic, change: Change, value: str, ctx: Context) -> str:
    name = change.name
    if not is_list(name):
        raise KafkaError(
            f"{name} is not a list: it can be set or deleted, not appended to or subtracted from",
            code=ErrorCode.INVALID_CONFIG,
        )
    rows = topic_rows(ctx.broker.settings, topic.overrides)
    current = next(row.value for row in rows if row.name == name) or ""
    items = [item.strip() for item in current.split(",") if item.strip()]
    given = [item.strip() for item in value.split(",") if item.strip()]
    if change.config_operation == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)
