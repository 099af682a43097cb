"""DescribeProducers, version 0."""

from __future__ import annotations

from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.broker_process import BrokerProcess
from tests.support.caller import NOW_MS, Caller, batch

NOT_THERE = "There is no such topic or partition here."


def described(caller: Caller, topic: str, *partitions: int) -> list[Any]:
    asked = DescribeProducersRequest.Topic(name=topic, partition_indexes=list(partitions))
    (answered,) = caller.call(DescribeProducersRequest(topics=[asked]), 0).topics
    assert answered.name == topic
    assert [one.partition_index for one in answered.partitions] == list(partitions)
    found: list[Any] = answered.partitions
    return found


def new_producer(caller: Caller) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    producer_id: int = caller.call(request, 4).producer_id
    return producer_id


def test_a_partition_tells_the_producers_that_it_remembers(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic("orders", 2)
        producer_id = new_producer(caller)
        of_producer = {"producer_id": producer_id, "producer_epoch": 0}
        caller.produce("orders", batch(b"a", b"b", base_sequence=0, **of_producer))
        caller.produce("orders", batch(b"c", base_sequence=2, **of_producer))
        caller.produce("orders", batch(b"of nobody"))
        before = described(caller, "orders", 0, 1)
    own_broker.stop()
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        after = described(caller, "orders", 0, 1)

    for busy, idle in (before, after):
        assert (busy.error_code, idle.error_code, idle.active_producers) == (0, 0, [])
        (producer,) = busy.active_producers
        assert (producer.producer_id, producer.producer_epoch) == (producer_id, 0)
        assert (producer.last_sequence, producer.last_timestamp) == (2, NOW_MS)
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)


def test_what_is_not_there_has_no_producers(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    found = [*described(caller, topic, 1, -1), *described(caller, "nope", 0)]

    assert [(one.error_code, one.error_message) for one in found] == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_THERE)
    ] * 3


def test_a_name_that_no_topic_can_have_is_said_to_be_one(caller: Caller) -> None:
    for name in ("", "a/b"):
        (found,) = described(caller, name, 0)
        assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
