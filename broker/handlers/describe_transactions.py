"""DescribeTransactions: no transactional id is known, for there are no transactions (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    refused,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def describe_transactions(request: Request, ctx: Context) -> DescribeTransactionsResponse:
    message: DescribeTransactionsRequest = request.message
    response = refused(message, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    for state in response.transaction_states:
        if not state.transactional_id:
            state.error_code = ErrorCode.INVALID_REQUEST
    return response
