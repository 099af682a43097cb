"""DescribeTransactions (65): the state of transactions by their ids.

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Message, key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = array(string)


class DescribeTransactionsResponse(Message, key=65, versions="0", flexible="0+"):
    class TransactionState(Struct):
        class Topic(Struct):
            topic: str = string()
            partitions: list[int] = array(int32)

        error_code: int = int16()
        transactional_id: str = string()
        transaction_state: str = string()
        transaction_timeout_ms: int = int32()
        transaction_start_time_ms: int = int64()
        producer_id: int = int64()
        producer_epoch: int = int16()
        topics: list[Topic] = array(Topic)

    throttle_time_ms: int = int32(default=0)
    transaction_states: list[TransactionState] = array(TransactionState)


def refused(request: DescribeTransactionsRequest, code: int) -> DescribeTransactionsResponse:
    """The answer in which every transaction asked for meets the same error."""
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribeTransactionsResponse.TransactionState(
                error_code=code,
                transactional_id=transactional_id,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=[],
            )
            for transactional_id in request.transactional_ids
        ]
    )
