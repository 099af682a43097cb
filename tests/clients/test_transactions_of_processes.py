"""Transactions over partitions that several processes lead, as clients see them."""

from __future__ import annotations

import os
import signal
import warnings
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from broker.coordinator.transactions.transaction import TV2
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, Topic
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.test_moves_of_processes import moved, moves
from tests.broker.test_processes import HOST, WITHIN_S, Directory, directory, leaders, until
from tests.clients.transactions.telling import set_transaction_version
from tests.support.caller import batch, produce_request

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.caller import Caller

pytestmark = [pytest.mark.clients, pytest.mark.linux]

__all__ = ["directory"]

TOPIC, PARTITIONS = "t", 4


def servers(one: Directory) -> list[str]:
    return [f"{HOST}:{port}" for port in one.ports]


def make_topic(one: Directory) -> None:
    with one.connect(0) as caller:
        caller.create_topic(TOPIC, PARTITIONS)


def producer_of(one: Directory, transactional_id: str) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=servers(one), transactional_id=transactional_id)
    producer.init_transactions()
    return producer


def send_everywhere(producer: KafkaProducer, value: bytes) -> None:
    sent = [producer.send(TOPIC, value, partition=index) for index in range(PARTITIONS)]
    for one in sent:
        one.get(timeout=WITHIN_S)


def committed(one: Directory) -> list[list[bytes]]:
    """What each partition has for readers of committed records, who wait for what is open."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers(one),
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    consumer.assign(places)
    ends = consumer.end_offsets(places)
    found: list[list[bytes]] = [[] for _ in places]
    while any(consumer.position(place) < ends[place] for place in places):
        for place, records in consumer.poll(1000).items():
            found[place.partition] += [record.value for record in records]
    consumer.close()
    return found


def coordinator_of(one: Directory, transactional_id: str) -> int:
    with one.connect(0) as caller:
        asked = FindCoordinatorRequest(key=transactional_id, key_type=1)
        number: int = caller.call(asked, 1).node_id - 1
    return number


def ids_of_both(one: Directory) -> Iterable[str]:
    """A transactional id of each process."""
    found: dict[int, str] = {}
    for at in range(100):
        found.setdefault(coordinator_of(one, f"x{at}"), f"x{at}")
        if len(found) == 2:
            return found.values()
    raise AssertionError("one process coordinates all")


def test_transactions_are_whole_whichever_process_coordinates_them(directory: Directory) -> None:
    directory.start(2)
    make_topic(directory)
    wanted: list[bytes] = []
    for transactional_id in ids_of_both(directory):
        producer = producer_of(directory, transactional_id)
        for number in range(4):
            value = f"{transactional_id} {number}".encode()
            producer.begin_transaction()
            send_everywhere(producer, value)
            offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(number, "", -1)}
            for group in ("g0", "g1", "g2"):
                producer.send_offsets_to_transaction(offsets, group)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                wanted.append(value)
        producer.close()

    assert committed(directory) == [wanted] * PARTITIONS
    for group in ("g0", "g1", "g2"):
        consumer = KafkaConsumer(bootstrap_servers=servers(directory), group_id=group)
        assert consumer.committed(TopicPartition(TOPIC, 0)) == 2
        consumer.close()
    directory.stop()


def test_a_transaction_goes_on_after_starts_with_other_numbers_of_processes(
    directory: Directory,
) -> None:
    directory.start(1)
    make_topic(directory)
    wanted: list[bytes] = []
    for processes in (2, 3, 1, 2):
        directory.stop()
        directory.start(processes)
        producer = producer_of(directory, "x")
        value = b"%d" % len(wanted)
        producer.begin_transaction()
        send_everywhere(producer, value)
        producer.commit_transaction()
        wanted.append(value)
        producer.begin_transaction()
        send_everywhere(producer, b"never")
        producer.close(timeout=0)  # the next instance aborts it
    producer_of(directory, "x").close()

    assert committed(directory) == [wanted] * PARTITIONS


def test_an_end_that_was_decided_comes_about_when_the_processes_are_back(
    directory: Directory,
) -> None:
    """One that has to write markers stands still; the one that has decided is killed."""
    directory.start(2)
    make_topic(directory)
    (transactional_id, *_) = ids_of_both(directory)
    coordinator = coordinator_of(directory, transactional_id)
    producer = producer_of(directory, transactional_id)
    producer.begin_transaction()
    send_everywhere(producer, b"v")
    asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    with directory.connect(coordinator) as caller, directory.connect(coordinator) as other:
        (found,) = caller.call(asked, 0).transaction_states
        pids = directory.children()
        os.kill(pids[1 - coordinator], signal.SIGSTOP)
        other.send(
            EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=found.producer_id,
                producer_epoch=found.producer_epoch,
                committed=True,
            ),
            3,
        )
        until(
            lambda: caller.call(asked, 0).transaction_states[0].transaction_state == "PrepareCommit"
        )
        os.kill(pids[coordinator], signal.SIGKILL)
    directory.said("a process died")
    os.kill(pids[1 - coordinator], signal.SIGCONT)

    assert committed(directory) == [[b"v"]] * PARTITIONS
    producer.close(timeout=0)


def move_all(caller: Caller) -> None:
    """Have each partition of the topic led by the other of two processes."""
    to = {index: [3 - leader] for index, leader in enumerate(leaders(caller))}
    assert moved(caller, TOPIC, to) == [ErrorCode.NONE] * PARTITIONS
    until(lambda: leaders(caller) == [one for (one,) in to.values()])
    until(lambda: not moves(caller))


def test_a_transaction_goes_on_and_ends_in_partitions_that_have_moved_meanwhile(
    directory: Directory,
) -> None:
    """With librdkafka: one is in both processes, of the next only what was before the move."""
    directory.start(2)
    make_topic(directory)
    wanted: list[bytes] = []
    with directory.connect(0) as caller:
        for transactional_id in ids_of_both(directory):
            producer = Producer(
                {
                    "bootstrap.servers": ",".join(servers(directory)),
                    "transactional.id": transactional_id,
                    "linger.ms": 0,
                }
            )
            producer.init_transactions(WITHIN_S)
            for goes_on in (True, False):
                for commits in (True, False):
                    name = f"{transactional_id} {goes_on} {commits} "
                    values = [f"{name}{part}".encode() for part in range(1 + goes_on)]
                    producer.begin_transaction()
                    produce_everywhere(producer, values[0])
                    move_all(caller)
                    for value in values[1:]:
                        produce_everywhere(producer, value)
                    if commits:
                        producer.commit_transaction(WITHIN_S)
                        wanted += values
                    else:
                        producer.abort_transaction(WITHIN_S)

    assert committed(directory) == [wanted] * PARTITIONS
    assert "a handler failed" not in directory.log()


def produce_everywhere(producer: Producer, value: bytes) -> None:
    for index in range(PARTITIONS):
        producer.produce(TOPIC, value, partition=index)
    assert producer.flush(WITHIN_S) == 0


def test_no_late_batch_gets_into_a_partition_that_has_been_away_when_its_transaction_ended(
    directory: Directory,
) -> None:
    """It would stay open for good: its producer, of the first generation, has the same epoch."""
    directory.start(2)
    make_topic(directory)
    (transactional_id, *_) = ids_of_both(directory)
    begun = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    with (
        directory.connect(coordinator_of(directory, transactional_id)) as of_id,
        directory.connect(0) as caller,
    ):
        given = of_id.call(begun, 4)
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=[Topic(name=TOPIC, partitions=[0])],
        )
        (added,) = of_id.call(asked, 3).results_by_topic_v3_and_below
        assert added.results_by_partition[0].partition_error_code == ErrorCode.NONE

        def sent(sequence: int) -> int:
            records = batch(
                b"v",
                producer_id=given.producer_id,
                producer_epoch=given.producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
            request = produce_request((TOPIC, 0, records), transactional_id=transactional_id)
            (answered,) = caller.call(request, 11).responses
            code: int = answered.partition_responses[0].error_code
            return code

        assert leaders(caller)[0] == 1
        assert sent(0) == ErrorCode.NONE
        move_all(caller)
        ended = of_id.call(
            EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=given.producer_id,
                producer_epoch=given.producer_epoch,
                committed=True,
            ),
            3,
        )
        assert ended.error_code == ErrorCode.NONE
        move_all(caller)
        assert sent(1) == ErrorCode.TRANSACTION_ABORTABLE

    assert committed(directory) == [[b"v"], [], [], []]


def test_batches_of_the_second_generation_join_by_themselves_wherever_they_come(
    directory: Directory,
) -> None:
    """What Kafka's clients of 4.0 send: no partition is added before it is written to, and the
    epoch grows with each end (KIP-890)."""
    directory.start(2)
    make_topic(directory)
    callers = [directory.connect(number) for number in (0, 1)]
    set_transaction_version(callers[1], TV2)
    (transactional_id, *_) = ids_of_both(directory)
    begun = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    with callers[0], callers[1]:
        of_id = callers[coordinator_of(directory, transactional_id)]
        given = of_id.call(begun, 4)
        producer_id, epoch = given.producer_id, given.producer_epoch
        for committed_too in (True, False):
            for index in range(PARTITIONS):
                value = b"committed" if committed_too else b"aborted"
                sent = batch(
                    value,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=0,
                    transactional=True,
                )
                request = produce_request((TOPIC, index, sent), transactional_id=transactional_id)
                (answered,) = callers[index % 2].call(request, 12).responses
                assert answered.partition_responses[0].error_code == ErrorCode.NONE
            ended = of_id.call(
                EndTxnRequest(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    committed=committed_too,
                ),
                5,
            )
            assert ended.error_code == ErrorCode.NONE
            producer_id, epoch = ended.producer_id, ended.producer_epoch
        late = batch(
            b"late",
            producer_id=producer_id,
            producer_epoch=epoch - 1,
            base_sequence=1,
            transactional=True,
        )
        request = produce_request((TOPIC, 1, late), transactional_id=transactional_id)
        (answered,) = callers[1].call(request, 12).responses
        assert answered.partition_responses[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH

    assert committed(directory) == [[b"committed"]] * PARTITIONS
