"""SyncGroup: the leader says who gets which partitions, and everybody learns its share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.waits import GroupWait
from protocol.eras import SYNC_GROUP, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.sync_group import SyncGroupRequest, refused

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


NAMES_PROTOCOL_SINCE = 5


def sync_group(request: Request, ctx: Context) -> Any:
    message: SyncGroupRequest = request.message
    wait = GroupWait(request)
    named = message.protocol_type is not None and message.protocol_name is not None
    if request.version >= NAMES_PROTOCOL_SINCE and not named:
        return refused(message, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        ctx.groups.classic.sync(wait, message, ctx.caller(request))
    except KafkaError as error:
        return refused(message, code_for(SYNC_GROUP, request.version, error.code))
    return wait.result()
