"""ListTransactions: all transactional ids, or those of some states, producers, ages, or with names
that a regular expression matches (KIP-664, KIP-994, KIP-1152). States that there are not are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.regular_expressions import InvalidExpression, matching
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
    if transactions.is_there:
        if transactions.runtime.is_loading:
            return refused(message, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        found = {
            transactional_id: now
            for transactional_id, now in transactions.runtime.all()
            if _is_wanted(now, message, ctx.now_ms)
            and ctx.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        }
    names = frozenset(found)
    if message.transactional_id_pattern:
        try:
            names = matching(message.transactional_id_pattern, found)
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


def _is_wanted(now: Transaction, message: ListTransactionsRequest, now_ms: int) -> bool:
    """Whether state, producer and age are among those that are asked for."""
    if message.producer_id_filters and now.producer_id not in message.producer_id_filters:
        return False
    if message.state_filters and now.state.title not in message.state_filters:
        return False
    return message.duration_filter < 0 or now_ms - now.start_ms > message.duration_filter
