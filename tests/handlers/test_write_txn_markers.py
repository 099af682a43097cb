"""WriteTxnMarkers: ends that somebody else has decided on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.support.fake_connection import InProcessBroker
from tests.support.transactions import (
    KnownTransactions,
    TransactionalClient,
    create_topic,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC, ID, PRODUCER = "orders", "bank", 7
OFFSETS = "__consumer_offsets"
Marker = WriteTxnMarkersRequest.Marker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data", offsets_topic_num_partitions="1") as running:
        create_topic(running, TOPIC, 2)
        yield running


@pytest.fixture
def client(broker: InProcessBroker) -> TransactionalClient:
    KnownTransactions.of(broker).begin(ID, PRODUCER, (TOPIC, 0), (TOPIC, 1))
    return TransactionalClient(broker, ID, PRODUCER)


def marker(*places: tuple[str, int], **fields: Any) -> Marker:
    """One for producer 7, epoch 0, that aborts."""
    given: dict[str, Any] = {
        "producer_id": PRODUCER,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        **fields,
    }
    topics = [Marker.Topic(name=name, partition_indexes=[index]) for name, index in places]
    return Marker(topics=topics, **given)


def codes(client: TransactionalClient, *markers: Marker, version: int = 1) -> list[list[int]]:
    answer = client.asker.call(WriteTxnMarkersRequest(markers=list(markers)), version)
    assert [one.producer_id for one in answer.markers] == [one.producer_id for one in markers]
    return [
        [entry.error_code for topic in one.topics for entry in topic.partitions]
        for one in answer.markers
    ]


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_ended_in_the_partitions_that_are_named_and_on_the_disk(
    broker: InProcessBroker, client: TransactionalClient, version: int, commit: bool
) -> None:
    for partition in (0, 1):
        client.send(TOPIC, b"a", partition=partition)

    wanted = marker((TOPIC, 1), transaction_result=commit)

    assert codes(client, wanted, version=version) == [[0]]
    assert client.fetch(TOPIC, partition=0).last_stable_offset == 0
    found = client.fetch(TOPIC, partition=1)
    assert found.last_stable_offset == 2
    assert len(found.aborted_transactions) == (not commit)
    log = partition_of(broker, TOPIC, 1).log
    assert log.recovery_point == log.written_offset == 2


@pytest.mark.parametrize("version", range(3))
def test_each_partition_of_each_marker_has_its_own_outcome(
    broker: InProcessBroker, client: TransactionalClient, version: int
) -> None:
    client.epoch = 1
    KnownTransactions.of(broker).begin(ID, PRODUCER, (TOPIC, 0), epoch=1)
    client = TransactionalClient(broker, ID, PRODUCER)
    client.epoch = 1
    client.send(TOPIC, b"a")

    found = codes(
        client,
        marker((TOPIC, 0), (TOPIC, 1), ("gone", 0), (TOPIC, 2), (OFFSETS, 0)),
        marker((TOPIC, 0), producer_epoch=1, coordinator_epoch=5),
        marker((TOPIC, 0), producer_epoch=1, coordinator_epoch=4),
        marker(("__transaction_state", 0)),
        version=version,
    )

    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == [
        [ErrorCode.INVALID_PRODUCER_EPOCH, 0, gone, gone, gone],
        [0],
        [ErrorCode.TRANSACTION_COORDINATOR_FENCED],
        [ErrorCode.INVALID_TOPIC_EXCEPTION],
    ]


def test_a_marker_is_written_where_no_transaction_is_open_too(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    assert codes(client, marker((TOPIC, 0)), marker((TOPIC, 0))) == [[0], [0]]

    assert partition_of(broker, TOPIC).log.written_offset == 2
    assert client.fetch(TOPIC).aborted_transactions == []


def test_a_marker_of_transaction_version_2_must_outgrow_the_epoch_of_what_is_open(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    """As Kafka 4.3 has it (KIP-1228); one that comes again after the end is taken."""
    client.send(TOPIC, b"a")
    same, newer = (
        marker((TOPIC, 0), producer_epoch=epoch, transaction_version=2) for epoch in (0, 1)
    )

    assert codes(client, same, version=2) == [[ErrorCode.INVALID_PRODUCER_EPOCH]]
    assert codes(client, newer, newer, version=2) == [[0], [0]]
    assert codes(client, same, version=2) == [[ErrorCode.INVALID_PRODUCER_EPOCH]]
    assert client.fetch(TOPIC).last_stable_offset == 3


@pytest.mark.parametrize("commit", [True, False])
def test_pending_offsets_are_settled_by_a_marker_in_their_partition(
    broker: InProcessBroker, client: TransactionalClient, commit: bool
) -> None:
    assert client.commit_offsets("readers", {(TOPIC, 0): 5}, version=5) == {(TOPIC, 0): 0}

    assert codes(client, marker((OFFSETS, 0), transaction_result=commit)) == [[0]]

    (shard,) = broker.running.broker.groups.runtime.shards
    found = shard.state.offsets.get("readers", TOPIC, 0)
    assert (found.offset if found else None) == (5 if commit else None)
    assert shard.state.offsets.pending("readers") == []
