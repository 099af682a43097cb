"""ListTransactions: there are none; states that Kafka does not know either are told (KIP-664).

A pattern for transactional ids (version 2) is looked at all the same: a wrong one is no empty list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.regular_expressions import InvalidExpression, matching
from protocol.errors import ErrorCode
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    refused,
)

if TYPE_CHECKING:
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


def list_transactions(request: Request, ctx: Context) -> ListTransactionsResponse:
    message: ListTransactionsRequest = request.message
    if message.transactional_id_pattern:
        try:
            matching(message.transactional_id_pattern, ())
        except InvalidExpression:
            return refused(message, ErrorCode.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[one for one in message.state_filters if one not in STATES],
        transaction_states=[],
    )
