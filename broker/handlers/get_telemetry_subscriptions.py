"""GetTelemetrySubscriptions: which metrics a client is to push, and how often (KIP-714).

Counters are asked for as totals, where Kafka asks for what they have grown by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.telemetry_client import facts_by_id
from broker.metadata.client_metrics import ACCEPTED_CODECS
from protocol.errors import ErrorCode
from protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def get_telemetry_subscriptions(
    request: Request, ctx: Context
) -> GetTelemetrySubscriptionsResponse:
    message: GetTelemetrySubscriptionsRequest = request.message
    client_metrics = ctx.client_metrics()
    instance_id, asked = client_metrics.subscribe(
        message.client_instance_id, facts_by_id(request, ctx), ctx.groups.now_ms()
    )
    return GetTelemetrySubscriptionsResponse(
        error_code=ErrorCode.NONE,
        client_instance_id=instance_id,
        subscription_id=asked.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=asked.push_interval_ms,
        telemetry_max_bytes=client_metrics.max_bytes,
        delta_temporality=False,
        requested_metrics=list(asked.metrics),
    )
