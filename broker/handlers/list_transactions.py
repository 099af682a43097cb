"""ListTransactions: all transactional ids, or those of some states, producers, ages, or with names
that a regular expression matches (KIP-664, KIP-994, KIP-1152). States that there are not are told.

There may be a hundred thousand ids, so they are gone through in slices. Each is listed as it is
then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.pending import Sliced
from broker.regular_expressions import BoundedMatch, InvalidExpression
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from broker.coordinator.transactions.transaction import Transaction
    from broker.handlers.context import Context
    from protocol.connection import Request

STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)
"""Kafka's names of them, in this spelling alone."""

Listed = ListTransactionsResponse.TransactionState


def list_transactions(request: Request, ctx: Context) -> Any:
    message: ListTransactionsRequest = request.message
    transactions = ctx.transactions
    if transactions.is_there and transactions.runtime.is_loading:
        return refused(message, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stopped = refused(message, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Sliced(ctx.loop, _list(message, ctx, ctx.now_ms), stopped, address=ctx.peer_host)


def _list(
    message: ListTransactionsRequest, ctx: Context, now_ms: int
) -> Generator[None, None, ListTransactionsResponse]:
    found: list[Listed] = []
    transactions = ctx.transactions
    try:
        wanted = _Wanted(message, now_ms)
        for transactional_id, now in transactions.runtime.all() if transactions.is_there else ():
            if wanted.has(transactional_id, now) and ctx.allows(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id, silent=True
            ):
                one = Listed(
                    transactional_id=transactional_id,
                    producer_id=now.producer_id,
                    transaction_state=now.state.title,
                )
                found.append(one)
            yield
    except InvalidExpression:
        return refused(message, ErrorCode.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[one for one in message.state_filters if one not in STATES],
        transaction_states=found,
    )


class _Wanted:
    """The states, producers, ages and names that are asked for; as many filters as a peer likes."""

    def __init__(self, message: ListTransactionsRequest, now_ms: int) -> None:
        """Raises InvalidExpression."""
        pattern = message.transactional_id_pattern
        self._matches = BoundedMatch(pattern) if pattern else None
        self._producer_ids = frozenset(message.producer_id_filters)
        self._states = frozenset(message.state_filters)
        self._duration_ms = message.duration_filter
        self._now_ms = now_ms

    def has(self, transactional_id: str, now: Transaction) -> bool:
        """Raises InvalidExpression."""
        if self._producer_ids and now.producer_id not in self._producer_ids:
            return False
        if self._states and now.state.title not in self._states:
            return False
        if self._duration_ms >= 0 and self._now_ms - now.start_ms <= self._duration_ms:
            return False
        return self._matches is None or self._matches(transactional_id)
