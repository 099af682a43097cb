"""ListGroups: the groups there are, of every kind, with those that only have offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.classic.group import ClassicGroup
from protocol.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.coordinator.shard import Shard
    from broker.handlers.context import Context
    from protocol.connection import Request

GroupResult = ListGroupsResponse.Group


def list_groups(request: Request, ctx: Context) -> ListGroupsResponse:
    message: ListGroupsRequest = request.message
    states = {state.lower() for state in message.states_filter}
    types = {kind.lower() for kind in message.types_filter}
    groups = ctx.groups
    all_shown = ctx.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    return ListGroupsResponse(
        error_code=(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if groups.is_loading else ErrorCode.NONE
        ),
        groups=[
            entry
            for shard in groups.loaded_shards()
            for entry in _entries(shard)
            if (all_shown or ctx.allows(Operation.DESCRIBE, ResourceType.GROUP, entry.group_id))
            and (not states or entry.group_state.lower() in states)
            and (not types or entry.group_type in types)
        ],
    )


def _entries(shard: Shard) -> Iterator[GroupResult]:
    known = shard.state.groups
    for group in known.values():
        if isinstance(group, ClassicGroup):
            yield GroupResult(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type="classic",
            )
        else:
            yield GroupResult(
                group_id=group.group_id,
                protocol_type="consumer",
                group_state=group.state,
                group_type="consumer",
            )
    offsets = shard.state.offsets
    for group_id in (*offsets.groups(), *offsets.pending_groups()):
        if group_id not in known:
            yield GroupResult(
                group_id=group_id, protocol_type="", group_state="Empty", group_type="classic"
            )
