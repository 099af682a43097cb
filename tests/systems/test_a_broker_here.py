"""A broker of tests on whatever system this is, with real clients: Linux, macOS, Windows.

Nothing here needs more than Python, pytest and the clients have everywhere.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from testing.broker import Broker

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.clients

RECORDS = [os.urandom(100_000) for _ in range(20)]
"""Enough that what is fetched is sent in pieces."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"group.initial.rebalance.delay.ms": 0}, memory=True) as broker:
        yield broker


def by_kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    for value in RECORDS:
        producer.send(topic, value)
    producer.flush(timeout=60)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest"
    )
    found = [next(consumer).value for _ in RECORDS]
    consumer.close()
    return found


def by_librdkafka(bootstrap: str, topic: str) -> list[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in RECORDS:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "others", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(RECORDS):
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        found.append(message.value() or b"")
    consumer.close()
    return found


def test_clients_get_what_they_sent(broker: Broker) -> None:
    assert by_kafka_python(broker.bootstrap, "first") == RECORDS
    assert by_librdkafka(broker.bootstrap, "second") == RECORDS


def test_what_was_acknowledged_is_there_after_a_crash_and_after_a_stop(broker: Broker) -> None:
    assert by_librdkafka(broker.bootstrap, "kept") == RECORDS
    broker.kill()
    broker.start()
    assert [record.value for record in broker.topic("kept").records()] == RECORDS
    broker.restart()
    assert [record.value for record in broker.topic("kept").records()] == RECORDS


def test_a_snapshot_is_restored(broker: Broker) -> None:
    broker.topic("marked").create()
    mark = broker.snapshot()
    by_librdkafka(broker.bootstrap, "marked")
    broker.restore(mark)
    assert broker.topic("marked").records() == []


def test_a_topic_goes_whose_files_are_open_and_comes_again(broker: Broker) -> None:
    by_librdkafka(broker.bootstrap, "gone")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["gone"])["gone"].result(60)
    assert "gone" not in broker.topics()
    broker.topic("gone").create()
    assert broker.topic("gone").records() == []


def test_faults_are_asked_for_and_act(broker: Broker) -> None:
    with broker.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2):
        assert sorted(by_librdkafka(broker.bootstrap, "tried-again")) == sorted(RECORDS)
