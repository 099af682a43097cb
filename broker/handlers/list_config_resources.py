"""ListConfigResources: what has settings, by kind (KIP-1142). In version 0 that is what clients are
asked to measure (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.config_resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from broker.handlers.nodes import nodes
from protocol.errors import ErrorCode
from protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.handlers.context import Context
    from protocol.connection import Request

TYPES_SINCE = 1
TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)

Found = ListConfigResourcesResponse.ConfigResource


def list_config_resources(request: Request, ctx: Context) -> ListConfigResourcesResponse:
    message: ListConfigResourcesRequest = request.message
    if request.version < TYPES_SINCE:
        wanted = {CLIENT_METRICS}
    else:
        wanted = set(message.resource_types or TYPES)
    if not wanted <= set(TYPES):
        return refused(message, ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            Found(resource_name=name, resource_type=kind)
            for kind in TYPES
            if kind in wanted
            for name in _names(kind, ctx)
        ],
    )


def _names(kind: int, ctx: Context) -> Iterable[str]:
    if kind == TOPIC:
        return sorted(ctx.topics.by_name)
    if kind in (BROKER, BROKER_LOGGER):
        return [str(node.node_id) for node in nodes(ctx)]
    return sorted(name for one, name in ctx.controller.image.configs if one == kind)
