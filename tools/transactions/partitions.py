"""Transactions as the partitions know them that they write to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.partitions import by_topic
from tools.cluster import TopicPartition
from tools.errors import NotDone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from client.connection import Connection
    from tools.cluster import Cluster

NOT_OFFERED = "this broker does not tell of producers (DescribeProducers; Kafka 3.0 is the first)"


class Producer(NamedTuple):
    """A producer that a partition remembers. -1 is what it does not know.

    `start_offset` is where its open transaction begins, `last_timestamp_ms` the newest time of its
    last batch or marker, which the producer has set.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int


class Marker(NamedTuple):
    """An abort, to be written to a partition."""

    producer_id: int
    epoch: int
    coordinator_epoch: int


def producers_of(
    cluster: Cluster, places: Iterable[TopicPartition]
) -> dict[TopicPartition, list[Producer] | ErrorCode]:
    """The producers of each partition, as its leader remembers them. Raises NotDone."""
    if not cluster.offers(DescribeProducersRequest):
        raise NotDone(NOT_OFFERED)
    wanted = list(places)
    results: dict[TopicPartition, list[Producer] | ErrorCode] = {}
    for connection, of_leader in cluster.by_leader(wanted, results):
        kind = DescribeProducersRequest.Topic
        request = DescribeProducersRequest(
            topics=[
                kind(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(of_leader).items()
            ]
        )
        for topic in connection.call(request, DescribeProducersResponse).topics:
            for entry in topic.partitions:
                place = TopicPartition(topic.name, entry.partition_index)
                results[place] = _producers_in(entry)
    return {place: results.get(place, ErrorCode.UNKNOWN_SERVER_ERROR) for place in wanted}


def _producers_in(entry: DescribeProducersResponse.Topic.Partition) -> list[Producer] | ErrorCode:
    if entry.error_code:
        try:
            return ErrorCode(entry.error_code)
        except ValueError:
            return ErrorCode.UNKNOWN_SERVER_ERROR
    return sorted(
        Producer(
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in entry.active_producers
    )


def producers_in(cluster: Cluster, place: TopicPartition) -> list[Producer]:
    """The producers of one partition. Raises NotDone."""
    found = producers_of(cluster, [place])[place]
    if isinstance(found, ErrorCode):
        raise NotDone(f"partition {place}: {said(found)}")
    return found


def write_abort(cluster: Cluster, place: TopicPartition, marker: Marker) -> None:
    """Have the partition's leader end a transaction there. Raises NotDone."""
    kind = WriteTxnMarkersRequest.Marker
    request = WriteTxnMarkersRequest(
        markers=[
            kind(
                producer_id=marker.producer_id,
                producer_epoch=marker.epoch,
                transaction_result=False,
                topics=[kind.Topic(name=place.topic, partition_indexes=[place.partition])],
                coordinator_epoch=marker.coordinator_epoch,
            )
        ]
    )
    code = _written(cluster, place, request)
    if code:
        raise NotDone(f"partition {place}: WriteTxnMarkers: {said(code)}")


def _written(cluster: Cluster, place: TopicPartition, request: WriteTxnMarkersRequest) -> int:
    results: dict[TopicPartition, int | ErrorCode] = {}
    for connection, _ in cluster.by_leader([place], results):
        results[place] = _code_in(connection, request)
    return results[place]


def _code_in(connection: Connection, request: WriteTxnMarkersRequest) -> int:
    answer = connection.call(request, WriteTxnMarkersResponse)
    codes = [
        entry.error_code
        for marker in answer.markers
        for topic in marker.topics
        for entry in topic.partitions
    ]
    return codes[0] if codes else ErrorCode.UNKNOWN_SERVER_ERROR
