"""DescribeTransactions: the states of transactional ids, and the partitions of what is open
(KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    refused,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

Described = DescribeTransactionsResponse.TransactionState


def describe_transactions(request: Request, ctx: Context) -> DescribeTransactionsResponse:
    message: DescribeTransactionsRequest = request.message
    return DescribeTransactionsResponse(
        transaction_states=[_described(one, ctx) for one in message.transactional_ids]
    )


def _described(transactional_id: str, ctx: Context) -> Described:
    try:
        ctx.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if transactional_id and not ctx.transactions.is_there:
            raise KafkaError(code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        _, now = ctx.transactions.runtime.known(transactional_id)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        return refused(asked, code).transaction_states[0]
    topics: dict[str, list[int]] = {}
    for topic, index in now.partitions:
        if ctx.may_describe(topic):
            topics.setdefault(topic, []).append(index)
    return Described(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=now.state.title,
        transaction_timeout_ms=now.timeout_ms,
        transaction_start_time_ms=now.start_ms,
        producer_id=now.producer_id,
        producer_epoch=now.epoch,
        topics=[Described.Topic(topic=name, partitions=each) for name, each in topics.items()],
    )
