"""What a request costs its client's quotas, and what its answer says of it (KIP-219).

Whoever is above a quota is answered at once, with the time to wait in the answer, and its
connection is muted for so long: nothing that it sends is handled. Newer clients wait by themselves.
Older ones find that their next answer is late; so Kafka holds no answer back for them either.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from protocol.connection import PRODUCE_KEY
from protocol.single_produce import SingleAnswer

LENGTH_BYTES = 4
"""The length before each request, which is not counted."""

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.client_quotas import ClientQuotas
    from protocol.connection import Request


def charge(
    request: Request, quotas: ClientQuotas, client: tuple[str, str], *, size: int, handled_s: float
) -> int:
    """Count a request of so many bytes, with its length, that has taken so long; the ms that its
    client has to wait. What is fetched or changed is counted by the handlers."""
    throttle_ms = quotas.handled(client, handled_s)
    if request.route.api.key == PRODUCE_KEY:
        throttle_ms = max(throttle_ms, quotas.produced(client, size - LENGTH_BYTES))
    request.throttle_time_ms = throttle_ms
    return throttle_ms


def with_throttle_time(
    request: Request, response: Any, quotas: ClientQuotas, context: Context
) -> tuple[Any, int]:
    """The answer with the longest wait of all quotas, and that wait (ms). What was worked for the
    request since it was charged is counted, on whatever thread."""
    of_request = getattr(request, "throttle_time_ms", 0)
    worked_s = getattr(request, "worked_s", 0.0)
    if worked_s:
        of_request = max(of_request, quotas.handled(context.client(request), worked_s))
    of_response = getattr(response, "throttle_time_ms", 0)
    if of_request <= of_response:
        return response, of_response
    if response.__class__ is SingleAnswer:
        response = response.general(request.version)
    elif hasattr(response, "throttle_time_ms"):
        response = copy(response)  # which others may be answered with, too
    else:
        return response, of_request  # a SaslHandshake, which has no such field
    response.throttle_time_ms = of_request
    return response, of_request
