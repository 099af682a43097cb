"""The sender of a telemetry request (KIP-714), as subscriptions match it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.client_metrics import ClientFacts
from storage.identity import uuid_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.handlers.context import Context
    from protocol.connection import Request


def facts_by_id(request: Request, ctx: Context) -> Callable[[bytes], ClientFacts]:
    """The facts about the client that sends this request, once it has an id of 16 bytes."""

    def facts_of(instance_id: bytes) -> ClientFacts:
        return ClientFacts(
            uuid_text(instance_id),
            request.client_id or "",
            ctx.software_name,
            ctx.software_version,
            ctx.peer_host,
            str(ctx.peer_port),
        )

    return facts_of
