"""Transactions while answers are lost, coordinators move and brokers are not ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from client.committing import Committed
from client.errors import Refused, Unreachable
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse, TopicResult
from protocol.messages.end_txn import EndTxnResponse
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.messages.init_producer_id import InitProducerIdResponse
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from tests.client.scripted_cluster import (
    COORDINATOR,
    NOT_LEADER,
    PLACE,
    PRODUCE,
    TIMED_OUT,
    Broker,
    breaks,
    cluster,
    in_turn,
    produced,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.transactions import TransactionalProducer

    Script = dict[int, Callable[[Any], Any]]

FETCH_COMMITTED, INIT, ADD, ADD_GROUP, END, TXN_COMMIT = 9, 22, 24, 25, 26, 28
VERSIONS = {FETCH_COMMITTED: (0, 10), INIT: (0, 6), ADD: (0, 5), ADD_GROUP: (0, 4)}
VERSIONS |= {END: (0, 5), TXN_COMMIT: (0, 6)}
LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT = 14, 15, 16, 51
OUT_OF_ORDER, DUPLICATE, WRONG_STATE, ABORTABLE, UNSTABLE = 45, 46, 48, 120, 88
NAME = "copies-3"
GROUP, TRANSACTION = 0, 1
BATCHES = [build_batch([(1, b"k", b"%d" % number, ())] * 2) for number in range(4)]


def initialized(code: int = 0) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=70, producer_epoch=3)


def added(code: int = 0) -> AddPartitionsToTxnResponse:
    entry = TopicResult.PartitionResult(partition_index=0, partition_error_code=code)
    topic = TopicResult(name="orders", results_by_partition=[entry])
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def committed(code: int = 0) -> TxnOffsetCommitResponse:
    kind = TxnOffsetCommitResponse.Topic
    entry = kind.Partition(partition_index=0, error_code=code)
    return TxnOffsetCommitResponse(topics=[kind(name="orders", partitions=[entry])])


def ended(code: int = 0) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)


def coordinated_by(broker: Broker, code: int = 0) -> FindCoordinatorResponse:
    found = FindCoordinatorResponse.Coordinator(
        key="", node_id=1, host=broker.host, port=broker.port, error_code=code
    )
    return FindCoordinatorResponse(coordinators=[found])


class World(Broker):
    """A broker that leads and coordinates all, and answers that all is well unless told else."""

    def __init__(self, script: Script | None = None) -> None:
        well: Script = {
            COORDINATOR: lambda _: coordinated_by(self),
            INIT: lambda _: initialized(),
            ADD: lambda _: added(),
            PRODUCE: lambda _: produced(0),
            ADD_GROUP: lambda _: AddOffsetsToTxnResponse(error_code=0),
            TXN_COMMIT: lambda _: committed(),
            END: lambda _: ended(),
        }
        super().__init__(well | (script or {}), VERSIONS)

    def sent(self) -> list[tuple[int, bytes]]:
        """The sequence and the value of the first record of each batch, in order."""
        found = []
        for request in self.requests(PRODUCE):
            assert request.transactional_id == NAME
            batch = Batch(memoryview(request.topic_data[0].partition_data[0].records))
            assert batch.is_transactional
            assert batch.is_intact()
            assert (batch.producer_id, batch.producer_epoch) == (70, 3)
            found.append((batch.base_sequence, next(iter(batch.records())).value or b""))
        return found


def initialize(producer: TransactionalProducer) -> TransactionalProducer:
    producer.initialize()
    return producer


def test_a_coordinator_that_is_not_ready_is_asked_again_and_one_that_moved_is_looked_for() -> None:
    for key, answer in (
        (INIT, initialized),
        (ADD, added),
        (ADD_GROUP, lambda code=0: AddOffsetsToTxnResponse(error_code=code)),
        (TXN_COMMIT, committed),
        (END, ended),
    ):
        codes = (CONCURRENT, LOADING, NOT_AVAILABLE, NOT_COORDINATOR, 0)
        answers = in_turn(*[answer(code) for code in codes[:2]], breaks, *map(answer, codes[2:]))
        with World({key: answers}) as broker, cluster(broker) as client:
            assert client.topics()
            producer = initialize(client.transactional_producer(NAME))
            producer.send(PLACE, BATCHES[0])
            producer.send_offsets("g", {PLACE: Committed(5, "")})
            producer.commit()
            assert len(broker.requests(key)) == 6, key
            assert len(broker.requests(COORDINATOR)) >= 5


def test_leader_and_coordinators_may_be_three_brokers() -> None:
    with World() as leader, World() as of_group, World() as first:
        by_kind = {GROUP: of_group, TRANSACTION: first}
        first._script = {COORDINATOR: lambda asked: coordinated_by(by_kind[asked.key_type])} | {
            key: answer for key, answer in first._script.items() if key != COORDINATOR
        }
        with cluster(first) as client:
            first.nodes[2] = (leader.host, leader.port)
            first.leader = 2
            producer = initialize(client.transactional_producer(NAME))
            producer.send(PLACE, BATCHES[0])
            producer.send_offsets("g", {PLACE: Committed(5, "")})
            producer.commit()
            assert [key for key, *_ in first.asked if key > 19] == [INIT, ADD, ADD_GROUP, END]
            assert [key for key, *_ in leader.asked] == [PRODUCE]
            assert [key for key, *_ in of_group.asked] == [TXN_COMMIT]


def test_the_older_generation_is_spoken_where_the_newer_is_not_finalized() -> None:
    with World() as broker, cluster(broker) as client:
        producer = initialize(client.transactional_producer(NAME))
        producer.send(PLACE, BATCHES[0])
        producer.send_offsets("g", {PLACE: Committed(5, "")})
        producer.commit()
        spoken = {key: version for key, version, _ in broker.asked}
    wanted = {INIT: 5, ADD: 3, PRODUCE: 11, ADD_GROUP: 4, TXN_COMMIT: 4, END: 4}
    assert {key: spoken[key] for key in wanted} == wanted


BEHIND = [produced(-1, OUT_OF_ORDER)] * 2


@pytest.mark.parametrize(
    "lost",
    [[breaks], [produced(-1, NOT_LEADER), *BEHIND], [produced(-1, TIMED_OUT), *BEHIND]],
    ids=["lost", "refused", "timed-out"],
)
def test_what_may_be_stored_is_sent_again_with_its_sequences_and_all_behind_it(
    lost: list[Any],
) -> None:
    answers = in_turn(produced(0), *lost, produced(-1, DUPLICATE), produced(4))
    with World({PRODUCE: answers}) as broker, cluster(broker) as client:
        producer = initialize(client.transactional_producer(NAME))
        for one in BATCHES:
            producer.send(PLACE, one)
        producer.commit()
        sent = broker.sent()
    expected = [(number * 2, b"%d" % number) for number in range(4)]
    assert sent[:2] == expected[:2]
    assert sent[-3:] == expected[1:]
    assert len(broker.requests(END)) == 1


def test_a_batch_that_is_never_taken_ends_the_transaction_in_one_line() -> None:
    answers = in_turn(produced(-1, NOT_LEADER))
    with World({PRODUCE: answers}) as broker, cluster(broker, timeout_s=0.5) as client:
        producer = initialize(client.transactional_producer(NAME))
        producer.send(PLACE, BATCHES[0])
        with pytest.raises(Unreachable, match="orders-0: a batch could not be written: NOT_LEADER"):
            producer.commit()
        producer.close()
        assert [request.committed for request in broker.requests(END)] == [False]


@pytest.mark.parametrize("code", [OUT_OF_ORDER, WRONG_STATE, ABORTABLE])
def test_what_no_repetition_helps_against_is_told_at_once(code: int) -> None:
    with World({PRODUCE: in_turn(produced(-1, code))}) as broker, cluster(broker) as client:
        with client.transactional_producer(NAME) as producer:
            producer.initialize()
            producer.send(PLACE, BATCHES[0])
            with pytest.raises(Refused, match=rf"does not take .*\({code}\)") as told:
                producer.commit()
            assert told.value.code == code
            with pytest.raises(Refused, match="can only be aborted"):
                producer.send(PLACE, BATCHES[1])
        assert len(broker.requests(PRODUCE)) == 1
        assert [request.committed for request in broker.requests(END)] == [False]


def test_brokers_without_transactions_are_told() -> None:
    with World() as broker, cluster(broker) as client:
        broker._versions.pop(INIT)
        with pytest.raises(Refused, match="has no transactions: they came with Kafka"):
            client.transactional_producer(NAME).initialize()


def test_offsets_that_wait_for_a_transaction_are_asked_for_again() -> None:
    def answer(code: int) -> OffsetFetchResponse:
        of_group = OffsetFetchResponse.Group
        entry = of_group.Topic.Partition(
            partition_index=0, committed_offset=5, metadata="m", error_code=code
        )
        topic = of_group.Topic(name="orders", partitions=[entry])
        return OffsetFetchResponse(groups=[of_group(group_id="g", topics=[topic])])

    with (
        World({FETCH_COMMITTED: in_turn(answer(UNSTABLE), answer(0))}) as broker,
        cluster(broker) as client,
    ):
        assert client.committed("g") == {PLACE: Committed(5, "m")}
        asked = broker.requests(FETCH_COMMITTED)
        assert [(one.require_stable, one.groups[0].topics) for one in asked] == [(True, None)] * 2
