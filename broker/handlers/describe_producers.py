"""DescribeProducers: which producers a partition remembers, and since where their transactions are
open (KIP-664). A partition that is named again is told of once: producers may be many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.partitions.topic_names import name_fault
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
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
                name=name,
                partitions=[_described(name, index, ctx) for index in dict.fromkeys(indexes)],
            )
            for name, indexes in _asked(message).items()
        ]
    )


def _asked(message: DescribeProducersRequest) -> dict[str, list[int]]:
    """The partitions by topic."""
    found: dict[str, list[int]] = {}
    for topic in message.topics:
        found.setdefault(topic.name, []).extend(topic.partition_indexes)
    return found


def _described(name: str, index: int, ctx: Context) -> Answered.Partition:
    entry = Answered.Partition(
        partition_index=index, error_code=ErrorCode.NONE, active_producers=[]
    )
    fault = name_fault(name)
    if not ctx.allows(Operation.READ, ResourceType.TOPIC, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        entry.error_code, entry.error_message = code, code.meaning
    elif fault is not None:
        entry.error_code, entry.error_message = ErrorCode.INVALID_TOPIC_EXCEPTION, fault
    else:
        try:
            partition = ctx.topics.led(name, index)
        except KafkaError as error:
            entry.error_code, entry.error_message = error.code, str(error)
            return entry
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
