"""PushTelemetry (72): measurements of a client, in the format of OpenTelemetry (KIP-714).

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, binary, boolean, int8, int16, int32, uuid


class PushTelemetryRequest(Message, key=72, versions="0", flexible="0+"):
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = binary()


class PushTelemetryResponse(Message, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()


def refused(request: PushTelemetryRequest, code: int) -> PushTelemetryResponse:
    """An answer of an error and nothing else."""
    return PushTelemetryResponse(error_code=code)
