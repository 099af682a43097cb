"""WriteTxnMarkers: transactions are ended in single partitions, by decision of another.

Versions 0 to 2. It is for coordinators that lead other partitions, and for an administrator who
aborts what no coordinator knows any more. A marker is written where no transaction is open, too, as
by Kafka; with version 2 the asker may have it refused if it comes too late (KIP-1228).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.partitions.internal_topics import INTERNAL, OFFSETS_TOPIC
from broker.pending import Durable
from broker.producing.markers import TransactionEnd
from protocol.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Container

    from broker.handlers.context import Context
    from broker.partitions.topic import Partition
    from protocol.connection import Request
    from storage.log import Log

EPOCHS_OUTGROW_SINCE = 2
"""The transaction.version from which on each end has an epoch of its own."""

NOT_OURS = INTERNAL - {OFFSETS_TOPIC}
"""Topics in which nobody writes transactions."""

Answered = WriteTxnMarkersResponse.Marker


def write_txn_markers(request: Request, ctx: Context) -> Any:
    message: WriteTxnMarkersRequest = request.message
    if not ctx.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, silent=True):
        ctx.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    touched: dict[Partition, None] = {}
    response = WriteTxnMarkersResponse(
        markers=[_written(marker, ctx, touched) for marker in message.markers]
    )
    if not ctx.group_commit.covers_acks or not touched:
        return response
    return Durable(response, list(touched), _not_synced)


def _written(
    marker: WriteTxnMarkersRequest.Marker, ctx: Context, touched: dict[Partition, None]
) -> Answered:
    """The outcome of one marker; what it was written to is added to `touched`."""
    end = TransactionEnd(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        outgrows=marker.transaction_version >= EPOCHS_OUTGROW_SINCE,
    )
    topics = []
    for asked in marker.topics:
        # One marker each, however often a partition is named.
        places = [(asked.name, index) for index in dict.fromkeys(asked.partition_indexes)]
        if asked.name in NOT_OURS:
            codes: list[int] = [ErrorCode.INVALID_TOPIC_EXCEPTION] * len(places)
        else:
            ctx.transactions.ended(marker.producer_id, places)
            codes = ctx.markers.end(end, places, if_open=False)
        for place, code in zip(places, codes, strict=True):
            partition = ctx.topics.partition(*place)
            if partition is not None and code == ErrorCode.NONE:
                touched[partition] = None
        topics.append(
            Answered.Topic(
                name=asked.name,
                partitions=[
                    Answered.Topic.Partition(partition_index=index, error_code=code)
                    for (_, index), code in zip(places, codes, strict=True)
                ],
            )
        )
    return Answered(producer_id=marker.producer_id, topics=topics)


def _not_synced(
    request: Request, durable: Durable, failed: Container[Log]
) -> WriteTxnMarkersResponse:
    """A coordinator asks again."""
    return refused(request.message, ErrorCode.KAFKA_STORAGE_ERROR)
