"""What a test is told of topics and groups, and how a claim about them fails."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from client.cluster import TopicPartition
from client.errors import NoSuchTopic
from protocol.records.builder import build_batch
from testing import Broker
from testing.namespace import Namespace
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing import Record


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker, request: pytest.FixtureRequest) -> Namespace:
    return Namespace(shared, request.node.name)


def batch(*values: bytes) -> bytes:
    return build_batch([(1_000 + number, b"key", value, ()) for number, value in enumerate(values)])


def store(broker: Namespace, *values: bytes, partition: int = 0) -> None:
    place = TopicPartition(broker.name("orders"), partition)
    broker.broker.cluster.produce(place, [batch(*values)])


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_records_are_those_of_all_partitions_in_order(broker: Namespace) -> None:
    broker.topic("orders").create(2)
    store(broker, b"a", b"b", partition=1)
    store(broker, b"c")
    store(broker, b"d", partition=1)
    found = broker.topic("orders").records()
    assert [(one.partition, one.offset, one.value) for one in found] == [
        (0, 0, b"c"),
        (1, 0, b"a"),
        (1, 1, b"b"),
        (1, 2, b"d"),
    ]
    assert (found[1].key, found[1].timestamp_ms, found[1].headers) == (b"key", 1_000, ())
    assert broker.topic("orders").ends() == {0: (0, 1), 1: (0, 3)}


def test_records_of_open_and_aborted_transactions_are_left_out(broker: Namespace) -> None:
    broker.topic("orders").create()
    place = TopicPartition(broker.name("orders"), 0)
    producer = broker.broker.cluster.transactional_producer(broker.name("copier"))
    producer.initialize()
    for value, end in ((b"committed", producer.commit), (b"aborted", producer.abort)):
        producer.send(place, batch(value))
        end()
    producer.send(place, batch(b"open"))
    producer.prepare()
    topic = broker.topic("orders")
    assert values(topic.records()) == [b"committed"]
    assert values(topic.records(committed_only=False)) == [b"committed", b"aborted", b"open"]
    with pytest.raises(AssertionError, match="2 more are of open or aborted transactions"):
        topic.wait_for(2, timeout_s=0)
    producer.abort()


def test_a_topic_that_does_not_exist_is_told_with_those_that_do(broker: Namespace) -> None:
    broker.topic("orders").create()
    with pytest.raises(NoSuchTopic, match=r"there is no topic '\w+\.order'"):
        broker.topic("order").records()
    with pytest.raises(AssertionError, match=r"'\w+\.order' does not exist, wanted 1 .*\.orders"):
        broker.topic("order").wait_for(1, timeout_s=0)


def test_records_are_waited_for_and_a_topic_too(broker: Namespace) -> None:
    found: list[Record] = []
    waiting = threading.Thread(
        target=lambda: found.extend(broker.topic("orders").wait_for(2, timeout_s=100))
    )
    waiting.start()
    name = broker.name("orders")
    with Caller(broker.broker.host, broker.broker.port) as caller:
        caller.create_topic(name)
        for value in (b"a", b"b"):
            caller.produce(name, batch(value))
    waiting.join()
    assert values(found) == [b"a", b"b"]


def test_too_few_records_are_told_with_where_they_are(broker: Namespace) -> None:
    topic = broker.topic("orders").create(2)
    store(broker, b"a" * 100, partition=1)
    with pytest.raises(AssertionError) as failure:
        topic.wait_for(2, timeout_s=0)
    shown = repr(b"a" * 60)
    assert str(failure.value).splitlines() == [
        f"topic '{topic.name}' has 1 records, wanted 2 within 0 s",
        f"  offsets: {topic.name}-0 0..0, {topic.name}-1 0..1",
        f"  {topic.name}-1@0 key=b'key' value={shown}... (100 bytes)",
    ]


def test_duplicates_are_told_with_where_they_are(broker: Namespace) -> None:
    topic = broker.topic("orders").create()
    store(broker, b"a", b"b", b"a")
    with pytest.raises(AssertionError) as failure:
        broker.assert_no_duplicates("orders")
    assert str(failure.value).splitlines() == [
        f"topic '{topic.name}' has 1 duplicates among 3 records, wanted none",
        f"  {topic.name}-0@0 key=b'key' value=b'a'",
        f"  {topic.name}-0@2 key=b'key' value=b'a'",
    ]
    with pytest.raises(AssertionError, match="2 duplicates among 3"):
        broker.assert_no_duplicates("orders", by=lambda record: record.key)
    broker.assert_no_duplicates("orders", by=lambda record: record.offset)


def test_a_group_is_as_far_as_it_has_committed(broker: Namespace) -> None:
    broker.topic("orders").create(2)
    store(broker, b"a", b"b", b"c")
    store(broker, b"d", partition=1)
    group = broker.group("billing")
    zero, one = (TopicPartition(broker.name("orders"), index) for index in (0, 1))
    assert group.state() == "no group"
    assert (group.offsets(), group.lag()) == ({}, {})
    broker.broker.cluster.commit_offsets(group.group_id, {zero: 2})
    assert group.offsets() == {zero: 2}
    assert group.lag() == {zero: 1}
    assert group.lag(zero.topic) == {zero: 1, one: 1}
    assert broker.groups() == {"billing": "Empty"}
    group.wait_for(zero.topic, lag=2, timeout_s=0)


def test_a_group_that_is_too_far_behind_is_told_with_where(broker: Namespace) -> None:
    topic = broker.topic("orders").create(2)
    store(broker, b"a", b"b")
    group = broker.group("billing")
    broker.broker.cluster.commit_offsets(group.group_id, {TopicPartition(topic.name, 0): 1})
    with pytest.raises(AssertionError) as failure:
        group.wait_for(topic.name, timeout_s=0)
    assert str(failure.value).splitlines() == [
        f"group '{group.group_id}' (Empty) has 1 offsets of topic '{topic.name}' left, wanted at "
        "most 0 within 0 s",
        f"  {topic.name}-0: committed 1, 1 left",
        f"  {topic.name}-1: committed nothing, 0 left",
    ]
