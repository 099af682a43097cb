"""IncrementalAlterConfigs: changes single settings of topics, brokers, loggers, groups (KIP-339).

Set, delete, and for lists append and subtract. All changes of one resource are made, or none.
Those of a broker, or ("") of all brokers, take effect at once and outlive a restart; the level of
the logger "root" holds until the next start (KIP-412).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.handlers.config_resources import resource_to_alter
from broker.handlers.metadata_changes import changed
from config import is_list
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from broker.handlers.config_resources import ConfigResource
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from protocol.connection import Request
    from storage.steps import Steps

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Change = IncrementalAlterConfigsRequest.Resource.Config
Answered = IncrementalAlterConfigsResponse.Resource


def incremental_alter_configs(request: Request, ctx: Context) -> ChangeWait:
    return changed(_answer(request, ctx), ctx)


def _answer(request: Request, ctx: Context) -> Steps[IncrementalAlterConfigsResponse]:
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
            resource = resource_to_alter(asked.resource_type, asked.resource_name, named, ctx)
            overrides = _changed(resource, asked.configs)
            yield from resource.replace(overrides, validate_only=message.validate_only)
        except KafkaError as error:
            answered.error_code = error.code
            answered.error_message = str(error)
        responses.append(answered)
    return IncrementalAlterConfigsResponse(responses=responses)


def _changed(resource: ConfigResource, changes: list[Change]) -> dict[str, str]:
    overrides = dict(resource.overrides)
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
            overrides[name] = _list_changed(resource, change, change.value)
        else:
            raise KafkaError(
                f"operation {change.config_operation} on {name}, wanted 0 to 3",
                code=ErrorCode.INVALID_REQUEST,
            )
    return overrides


def _list_changed(resource: ConfigResource, change: Change, value: str) -> str:
    name = change.name
    if not is_list(name):
        raise KafkaError(
            f"{name} is not a list: it can be set or deleted, not appended to or subtracted from",
            code=ErrorCode.INVALID_CONFIG,
        )
    items = [item.strip() for item in resource.value(name).split(",") if item.strip()]
    given = [item.strip() for item in value.split(",") if item.strip()]
    if change.config_operation == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)
