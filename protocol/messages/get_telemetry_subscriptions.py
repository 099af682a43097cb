"""GetTelemetrySubscriptions (71): which measurements a client is to send (KIP-714).

Clients that see this API offered ask on every connection.

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, array, boolean, int8, int16, int32, string, uuid


class GetTelemetrySubscriptionsRequest(Message, key=71, versions="0", flexible="0+"):
    # All zero to be given one.
    client_instance_id: bytes = uuid()


class GetTelemetrySubscriptionsResponse(Message, key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)


def refused(
    request: GetTelemetrySubscriptionsRequest, code: int
) -> GetTelemetrySubscriptionsResponse:
    """An answer of an error and no subscription."""
    return GetTelemetrySubscriptionsResponse(
        error_code=code,
        client_instance_id=request.client_instance_id,
        subscription_id=0,
        accepted_compression_types=[],
        push_interval_ms=0,
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=[],
    )
