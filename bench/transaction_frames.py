"""Frames of transactions for the raw load, and the few calls that come before it.

Two generations: TV1, which Apache Kafka 3.9 speaks (AddPartitionsToTxn 3, Produce 9, EndTxn 3), and
TV2 of its 4.x (Produce 12, which adds the partition itself, and EndTxn 5, which grows the epoch).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from bench import frames
from bench.group_frames import error_position, frame
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    Topic,
    TopicResult,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.servers import Server

ADD_PARTITIONS_VERSION = 3
TV1, TV2 = 1, 2
PRODUCE_VERSIONS = {TV1: 9, TV2: 12}
END_VERSIONS = {TV1: 3, TV2: 5}
FIND_COORDINATOR_VERSION, INIT_PRODUCER_ID_VERSION = 4, 4
OF_TRANSACTIONS = 1
CONCURRENT_TRANSACTIONS = 51
TIMEOUT_MS = 600_000
PATIENCE_S = 60.0
#: Loading, not available yet, or not known yet to be here; an end is under way: asked again.
NOT_YET = frozenset({14, 15, 16, CONCURRENT_TRANSACTIONS})


class Producer(NamedTuple):
    """A producer; without a transactional id it is an idempotent one."""

    transactional_id: str | None
    producer_id: int
    epoch: int

    def batch(self, batch: bytes, sequence: int, *, epoch: int | None = None) -> bytes:
        """The same batch from this producer; `sequence` is that of its first record."""
        return frames.of_producer(
            *(batch, self.producer_id, self.epoch if epoch is None else epoch, sequence),
            transactional=self.transactional_id is not None,
        )


def producers(server: Server, ids: Sequence[str | None]) -> list[Producer]:
    """Producers that have begun, one for each transactional id or None."""
    with WireClient("127.0.0.1", server.port, timeout_s=PATIENCE_S) as client:
        return [_begun(client, one) for one in ids]


def _begun(client: WireClient, transactional_id: str | None) -> Producer:
    end_s = time.monotonic() + PATIENCE_S
    asked = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
    )
    while True:
        found = client.call(asked, INIT_PRODUCER_ID_VERSION)
        if found.error_code == 0:
            return Producer(transactional_id, found.producer_id, found.producer_epoch)
        if found.error_code not in NOT_YET or time.monotonic() > end_s:
            raise RuntimeError(f"{transactional_id} was refused: error {found.error_code}")
        if transactional_id is not None:
            find = FindCoordinatorRequest(
                key_type=OF_TRANSACTIONS, coordinator_keys=[transactional_id]
            )
            client.call(find, FIND_COORDINATOR_VERSION)
        time.sleep(0.02)


def add_partitions(producer: Producer, topic: str, partitions: Sequence[int]) -> bytes:
    """AddPartitionsToTxn 3."""
    assert producer.transactional_id is not None
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[Topic(name=topic, partitions=list(partitions))],
    )
    return frame(request, ADD_PARTITIONS_VERSION)


def end(
    producer: Producer, *, commit: bool, generation: int = TV1, epoch: int | None = None
) -> bytes:
    """EndTxn 3, or 5 of TV2."""
    assert producer.transactional_id is not None
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch if epoch is None else epoch,
        committed=commit,
    )
    return frame(request, END_VERSIONS[generation])


def transactions(
    producer: Producer,
    topic: str,
    batch: bytes,
    *,
    count: int,
    records: int,
    generation: int,
    partition: int = 0,
    commit: bool = True,
) -> Iterator[bytes]:
    """All frames of so many transactions of one batch, which has so many records."""
    produce_version = PRODUCE_VERSIONS[generation]
    for number in range(count):
        if generation == TV1:
            epoch, sequence = producer.epoch, number * records
            yield add_partitions(producer, topic, [partition])
        else:
            epoch, sequence = producer.epoch + number, 0
        yield frames.produce_frame(
            *(topic, producer.batch(batch, sequence, epoch=epoch)),
            acks=-1,
            partition=partition,
            transactional_id=producer.transactional_id,
            version=produce_version,
        )
        yield end(producer, commit=commit, generation=generation, epoch=epoch)


def error_positions(topic: str, generation: int) -> list[int]:
    """Of the answers to the frames of one transaction."""

    def added(code: int) -> AddPartitionsToTxnResponse:
        result = TopicResult.PartitionResult(partition_index=0, partition_error_code=code)
        topics = [TopicResult(name=topic, results_by_partition=[result])]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    ended = error_position(
        lambda code: EndTxnResponse(error_code=code, producer_epoch=0), END_VERSIONS[generation]
    )
    found = [frames.produce_error_position(topic), ended]
    if generation == TV1:
        found.insert(0, error_position(added, ADD_PARTITIONS_VERSION))
    return found
