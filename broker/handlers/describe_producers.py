"""DescribeProducers: which producers a partition remembers, and since where their transactions are
open (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.partitions.topic_names import name_fault
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

Answered = DescribeProducersResponse.Topic


def describe_producers(request: Request, ctx: Context) -> DescribeProducersResponse:
    message: DescribeProducersRequest = request.message
    return DescribeProducersResponse(
        topics=[
            Answered(
                name=asked.name,
                partitions=[
                    _described(asked.name, index, ctx) for index in asked.partition_indexes
                ],
            )
            for asked in message.topics
        ]
    )


def _described(name: str, index: int, ctx: Context) -> Answered.Partition:
    entry = Answered.Partition(
        partition_index=index, error_code=ErrorCode.NONE, active_producers=[]
    )
    fault = name_fault(name)
    partition = ctx.topics.partition(name, index)
    if not ctx.allows(Operation.READ, ResourceType.TOPIC, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        entry.error_code, entry.error_message = code, code.meaning
    elif fault is not None:
        entry.error_code, entry.error_message = ErrorCode.INVALID_TOPIC_EXCEPTION, fault
    elif partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        entry.error_code, entry.error_message = code, code.meaning
    else:
        entry.active_producers = [
            Answered.Partition.ProducerState(
                producer_id=producer_id,
                producer_epoch=epoch,
                last_sequence=last_sequence if batches else -1,
                last_timestamp=timestamp,
                coordinator_epoch=coordinator_epoch,
                current_txn_start_offset=opened,
            )
            for producer_id, (
                epoch,
                last_sequence,
                batches,
                timestamp,
                coordinator_epoch,
                opened,
            ) in partition.log.producers.known()
        ]
    return entry
