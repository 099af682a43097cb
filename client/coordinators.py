"""The brokers that look after groups and transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.errors import Failure, Refused, Unreachable
from client.routing import Again
from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from client.connection import Connection
    from client.routing import Router

GROUP, TRANSACTION = 0, 1
"""Types of keys. The second is known from version 1 on (Kafka 0.11)."""

RETRIABLE = frozenset(known for known in ErrorCode if known.retriable)


def coordinator(router: Router, key: str, key_type: int = GROUP) -> Connection:
    """A connection to the broker that keeps the group, or the transactional id.

    Raises Refused, Again, ConnectionLost, NoVersion.
    """
    connection = router.any()
    request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
    answer = connection.call(request, FindCoordinatorResponse, oldest=key_type)
    found = answer.coordinators[0] if answer.coordinators else answer
    if found.error_code:
        raise failed(key_name(key, key_type), found.error_code)
    what = f"the coordinator of {key_name(key, key_type)}"
    return router.at((found.host, found.port), what)


def key_name(key: str, key_type: int) -> str:
    """A group or a transactional id as a sentence has it."""
    return f"{'transactional id' if key_type == TRANSACTION else 'group'} '{key}'"


def failed(what: str, code: int) -> Failure | Again:
    """The error of a coordinator: Again where it may soon answer otherwise, else Refused."""
    text = f"{what}: {said(code)}"
    return Again(Unreachable(text)) if code in RETRIABLE else Refused(text, code)
