"""ListTransactions: all transactional ids, or those of some states, producers, ages, or with names
that a regular expression matches (KIP-664, KIP-994, KIP-1152). States that there are not are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.regular_expressions import MAX_WORK, InvalidExpression, matching
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    refused,
)

if TYPE_CHECKING:
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


def list_transactions(request: Request, ctx: Context) -> ListTransactionsResponse:
    message: ListTransactionsRequest = request.message
    transactions = ctx.transactions
    found: dict[str, Transaction] = {}
    wanted = _Wanted(message)
    if transactions.is_there:
        if transactions.runtime.is_loading:
            return refused(message, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        found = {
            transactional_id: now
            for transactional_id, now in transactions.runtime.all()
            if wanted.has(now, ctx.now_ms)
            and ctx.allows(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id, silent=True
            )
        }
    names = frozenset(found)
    if message.transactional_id_pattern:
        try:
            names = matching(message.transactional_id_pattern, found, max_work=MAX_WORK)
        except InvalidExpression:
            return refused(message, ErrorCode.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[one for one in message.state_filters if one not in STATES],
        transaction_states=[
            Listed(
                transactional_id=transactional_id,
                producer_id=now.producer_id,
                transaction_state=now.state.title,
            )
            for transactional_id, now in found.items()
            if transactional_id in names
        ],
    )


class _Wanted:
    """The states, producers and ages that are asked for; as many filters as a peer likes."""

    def __init__(self, message: ListTransactionsRequest) -> None:
        self._producer_ids = frozenset(message.producer_id_filters)
        self._states = frozenset(message.state_filters)
        self._duration_ms = message.duration_filter

    def has(self, now: Transaction, now_ms: int) -> bool:
        if self._producer_ids and now.producer_id not in self._producer_ids:
            return False
        if self._states and now.state.title not in self._states:
            return False
        return self._duration_ms < 0 or now_ms - now.start_ms > self._duration_ms
