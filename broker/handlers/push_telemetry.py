"""PushTelemetry: the last metrics of a client are kept, to be seen at /client-metrics (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.telemetry_client import facts_by_id
from protocol.errors import ErrorCode
from protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def push_telemetry(request: Request, ctx: Context) -> PushTelemetryResponse:
    message: PushTelemetryRequest = request.message
    ctx.client_metrics().take(
        message.client_instance_id,
        facts_by_id(request, ctx),
        message.subscription_id,
        message.compression_type,
        bytes(message.metrics),
        ctx.groups.now_ms(),
        terminating=message.terminating,
    )
    return PushTelemetryResponse(error_code=ErrorCode.NONE)
