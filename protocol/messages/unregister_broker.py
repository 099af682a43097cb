"""UnregisterBroker (64): the cluster is to forget a broker.

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, int16, int32, string


class UnregisterBrokerRequest(Message, key=64, versions="0", flexible="0+"):
    broker_id: int = int32()


class UnregisterBrokerResponse(Message, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)


def refused(request: UnregisterBrokerRequest, code: int) -> UnregisterBrokerResponse:
    """An answer of an error and nothing else."""
    return UnregisterBrokerResponse(error_code=code)
