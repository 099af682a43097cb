"""AddPartitionsToTxn: a transaction begins, or goes on, with more partitions.

Clients ask up to version 3, for one transaction: if one of the partitions can't be written to, none
is added. From version 4 on brokers ask, for several transactions, and may only want to know whether
the partitions have been added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.transactions.transaction import TV1, TV2
from broker.partitions.internal_topics import TRANSACTION_TOPIC
from broker.pending import Durable, coordinator_not_available
from protocol.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.eras import ADD_PARTITIONS_TO_TXN, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    Topic,
    TopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.handlers.context import Context
    from protocol.connection import Request

    Place = tuple[str, int]

SEVERAL_SINCE = 4

Asked = AddPartitionsToTxnRequest.Transaction


def add_partitions_to_txn(request: Request, ctx: Context) -> AddPartitionsToTxnResponse | Durable:
    message: AddPartitionsToTxnRequest = request.message
    version = request.version
    if version >= SEVERAL_SINCE:
        if not ctx.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        response = AddPartitionsToTxnResponse(
            error_code=ErrorCode.NONE,
            results_by_transaction=[
                AddPartitionsToTxnResponse.TransactionResult(
                    transactional_id=asked.transactional_id,
                    topic_results=_results(asked, version, ctx),
                )
                for asked in message.transactions
            ],
        )
        return _to_process(response, message, ctx)
    asked = Asked(
        transactional_id=message.v3_and_below_transactional_id,
        producer_id=message.v3_and_below_producer_id,
        producer_epoch=message.v3_and_below_producer_epoch,
        topics=message.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(asked, version, ctx))


def _to_process(
    response: AddPartitionsToTxnResponse, message: AddPartitionsToTxnRequest, ctx: Context
) -> AddPartitionsToTxnResponse | Durable:
    """What another process is told is on the disk, for it appends by that: if the machine lost it,
    nobody would know to which transaction the batches belong."""
    if ctx.neighbours is None or not ctx.group_commit.covers_acks or not ctx.transactions.is_there:
        return response
    found = {
        ctx.transactions.runtime.partition_of(one.transactional_id) for one in message.transactions
    }
    touched = [one for one in found if not one.led_elsewhere]
    return Durable(response, touched, coordinator_not_available)


def _results(asked: Asked, version: int, ctx: Context) -> list[TopicResult]:
    """The entries of the answer for one transaction."""
    try:
        codes = _codes(asked, version, ctx)
        other = ErrorCode.NONE
    except KafkaError as error:
        codes, other = {}, error.code
    return [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                TopicResult.PartitionResult(
                    partition_index=index,
                    partition_error_code=code_for(
                        ADD_PARTITIONS_TO_TXN, version, codes.get((topic.name, index), other)
                    ),
                )
                for index in topic.partitions
            ],
        )
        for topic in asked.topics
    ]


def _codes(asked: Asked, version: int, ctx: Context) -> Mapping[Place, int]:
    """The errors of partitions. Raises KafkaError for one of all of them."""
    of_brokers = version >= SEVERAL_SINCE
    if not of_brokers:
        ctx.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id)
    places = _places(asked.topics)
    closed = {
        place
        for place in places
        if place[0] == TRANSACTION_TOPIC
        or not (of_brokers or ctx.allows(Operation.WRITE, ResourceType.TOPIC, place[0]))
    }
    if closed:
        return {
            place: ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if place in closed
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for place in places
        }
    unknown = {place for place in places if ctx.topics.partition(*place) is None}
    if unknown:
        return {
            place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if place in unknown
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for place in places
        }
    transactions = ctx.transactions.runtime
    who = (asked.transactional_id, asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        missing = transactions.missing(*who, places)
        return dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE)
    client_version = TV2 if version >= SEVERAL_SINCE else TV1
    transactions.add(*who, places, client_version=client_version)
    return {}


def _places(topics: list[Topic]) -> list[Place]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]
