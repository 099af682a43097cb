"""InitProducerId, and the five batches that are remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.records.batch import Batch
from protocol.registry import APIS
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch, produce_request

if TYPE_CHECKING:
    from tests.support.caller import Appended

LAST_SEQUENCE = 2**31 - 1


def new_id(caller: Caller, version: int = 5) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    answer = caller.call(request, version)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    found: int = answer.producer_id
    return found


class Producer:
    """An idempotent producer that keeps nothing in mind: sequences are the test's."""

    def __init__(self, caller: Caller, topic: str) -> None:
        self.caller = caller
        self.topic = topic
        self.producer_id = new_id(caller)

    def send(self, sequence: int, count: int = 1, *, epoch: int = 0, version: int = 9) -> Appended:
        values = [b"%d" % (sequence + number) for number in range(count)]
        sent = batch(
            *values, producer_id=self.producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        return self.caller.produce(self.topic, sent, version=version)


@pytest.fixture
def producer(caller: Caller, topic: str) -> Producer:
    caller.create_topic(topic)
    return Producer(caller, topic)


@pytest.mark.parametrize("version", range(6))
def test_every_call_gives_a_new_id_with_epoch_0(caller: Caller, version: int) -> None:
    ids = [new_id(caller, version) for _ in range(5)]

    assert len(set(ids)) == 5
    assert min(ids) >= 0


@pytest.mark.parametrize("version", range(6))
def test_an_empty_transactional_id_is_refused(caller: Caller, version: int) -> None:
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)

    answer = caller.call(request, version)

    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_ids_are_never_given_twice_whatever_becomes_of_the_broker(
    own_broker: BrokerProcess,
) -> None:
    seen: list[int] = []
    for end in (
        own_broker.kill,
        own_broker.kill,
        own_broker.stop,
        own_broker.kill,
        own_broker.stop,
    ):
        own_broker.start()
        with Caller(own_broker.host, own_broker.port) as caller:
            seen += [new_id(caller) for _ in range(1100)]
        end()

    assert len(set(seen)) == len(seen) == 5500


def test_the_last_five_batches_are_recognised_and_not_stored_again(producer: Producer) -> None:
    sent = [producer.send(sequence).base_offset for sequence in range(6)]
    assert sent == list(range(6))

    for sequence in (5, 3, 1, 4, 2):
        again = producer.send(sequence)
        assert (again.error_code, again.base_offset) == (0, sequence)

    sixth_oldest = producer.send(0)
    assert (sixth_oldest.error_code, sixth_oldest.base_offset) == (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        -1,
    )
    assert producer.caller.values(producer.topic) == [b"%d" % n for n in range(6)]
    assert producer.send(6).base_offset == 6


@pytest.mark.parametrize("version", [3, 7, 8, 12, 13])
def test_a_gap_in_the_sequence_is_refused(producer: Producer, version: int) -> None:
    assert producer.send(0, 3, version=version).error_code == 0

    for wrong in (4, 2, 100):
        refused = producer.send(wrong, version=version)
        assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(3, version=version).base_offset == 3


def test_a_repeated_batch_with_another_count_is_not_a_duplicate(producer: Producer) -> None:
    producer.send(0, 3)

    assert producer.send(0, 2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0, 3).base_offset == 0


def test_the_sequence_wraps_to_0(producer: Producer) -> None:
    assert producer.send(LAST_SEQUENCE - 1, 2).error_code == 0
    assert producer.send(0).base_offset == 2

    other = Producer(producer.caller, producer.topic)
    assert other.send(LAST_SEQUENCE, 3).error_code == 0, "a batch may wrap inside"
    assert other.send(2).error_code == 0
    assert other.send(LAST_SEQUENCE, 3).base_offset == 3, "and be recognised afterwards"


def test_a_new_epoch_begins_with_0_and_fences_the_old_one(producer: Producer) -> None:
    producer.send(0, 5)

    assert producer.send(5, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0, epoch=1).base_offset == 5
    assert producer.send(5, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.send(1, epoch=1).base_offset == 6


def test_an_unknown_producer_may_begin_anywhere(producer: Producer) -> None:
    assert producer.send(77).base_offset == 0
    assert producer.send(78).base_offset == 1


def test_producers_and_partitions_do_not_mix(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, partitions=2)
    first, second = Producer(caller, topic), Producer(caller, topic)

    assert first.send(0).base_offset == 0
    assert second.send(0).base_offset == 1
    assert first.send(1).base_offset == 2
    other_partition = batch(b"x", producer_id=first.producer_id, producer_epoch=0, base_sequence=0)
    assert caller.produce(topic, other_partition, partition=1).base_offset == 0


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1), (-1, -1)])
def test_half_a_producer_is_an_invalid_record(
    producer: Producer, epoch: int, sequence: int
) -> None:
    refused = producer.send(sequence, epoch=epoch)

    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert producer.send(sequence, epoch=epoch, version=7).error_code == ErrorCode.CORRUPT_MESSAGE


def test_a_duplicate_is_answered_with_the_original_append_time(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, message_timestamp_type="LogAppendTime")
    producer = Producer(caller, topic)
    first = producer.send(0)
    producer.send(1)

    again = producer.send(0)

    assert again.log_append_time_ms == first.log_append_time_ms > 0
    stored = Batch(memoryview(bytes(caller.fetch(topic).records)))
    assert stored.max_timestamp == first.log_append_time_ms


def test_duplicates_in_one_write_are_recognised_before_anything_is_written(
    producer: Producer,
) -> None:
    caller, topic = producer.caller, producer.topic
    sent = batch(b"a", producer_id=producer.producer_id, producer_epoch=0, base_sequence=0)
    request = produce_request((topic, 0, sent), (topic, 0, sent))

    caller.send_raw(b"".join(caller.frame(request, 9, number) for number in range(3)))

    for number in range(3):
        answer = caller.receive(APIS[0], 9, number)
        entries = [answered.partition_responses[0] for answered in answer.responses]
        assert [(entry.error_code, entry.base_offset) for entry in entries] == [(0, 0), (0, 0)]
    assert caller.values(topic) == [b"a"]


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_remembered_across_stops_and_kills(
    own_broker: BrokerProcess, clean: bool
) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic("t")
        producer = Producer(caller, "t")
        for sequence in range(7):
            assert producer.send(sequence).base_offset == sequence
    (own_broker.stop if clean else own_broker.kill)()
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        producer.caller = caller
        # Kafka's snapshot files have room for the last batch only; after a kill all five are found
        # again in the log.
        for sequence in (6,) if clean else (2, 4, 6):
            assert producer.send(sequence).base_offset == sequence
        assert producer.send(1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.send(8).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.send(7).base_offset == 7
        assert len(caller.values("t")) == 8
    own_broker.stop()
