"""AddPartitionsToTxn (24): a transaction is going to write to these partitions.

0  one transaction, as clients ask
1  a throttled client waits by itself
2  PRODUCER_FENCED may be answered
3  flexible; the last that clients use
4  several transactions, as brokers ask; may only check; an error for the whole request
5  TRANSACTION_ABORTABLE may be answered
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string


class Topic(Struct):
    name: str = string()
    partitions: list[int] = array(int32)


class AddPartitionsToTxnRequest(Message, key=24, versions="0-5", flexible="3+"):
    class Transaction(Struct):
        transactional_id: str = string()
        producer_id: int = int64()
        producer_epoch: int = int16()
        verify_only: bool = boolean(default=False)
        topics: list[Topic] = array(Topic)

    transactions: list[Transaction] = array(Transaction, "4+", default=())
    v3_and_below_transactional_id: str = string("0-3", default="")
    v3_and_below_producer_id: int = int64("0-3", default=0)
    v3_and_below_producer_epoch: int = int16("0-3", default=0)
    v3_and_below_topics: list[Topic] = array(Topic, "0-3", default=())


class TopicResult(Struct):
    class PartitionResult(Struct):
        partition_index: int = int32()
        partition_error_code: int = int16()

    name: str = string()
    results_by_partition: list[PartitionResult] = array(PartitionResult)


class AddPartitionsToTxnResponse(Message, key=24, versions="0-5", flexible="3+"):
    class TransactionResult(Struct):
        transactional_id: str = string()
        topic_results: list[TopicResult] = array(TopicResult)

    throttle_time_ms: int = int32(default=0)
    results_by_topic_v3_and_below: list[TopicResult] = array(TopicResult, "0-3", default=())
    error_code: int = int16("4+", default=0)
    results_by_transaction: list[TransactionResult] = array(TransactionResult, "4+", default=())


def refused(request: AddPartitionsToTxnRequest, code: int) -> AddPartitionsToTxnResponse:
    """The answer in which the request and every partition in it meet the same error."""
    return AddPartitionsToTxnResponse(
        error_code=code,
        results_by_topic_v3_and_below=_refused_topics(request.v3_and_below_topics, code),
        results_by_transaction=[
            AddPartitionsToTxnResponse.TransactionResult(
                transactional_id=asked.transactional_id,
                topic_results=_refused_topics(asked.topics, code),
            )
            for asked in request.transactions
        ],
    )


def _refused_topics(topics: list[Topic], code: int) -> list[TopicResult]:
    return [
        TopicResult(
            name=asked.name,
            results_by_partition=[
                TopicResult.PartitionResult(partition_index=index, partition_error_code=code)
                for index in asked.partitions
            ],
        )
        for asked in topics
    ]
