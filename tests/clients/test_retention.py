"""Real consumers of a log that loses its oldest records while they read."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.support.broker_process import BrokerProcess
from tests.support.disk_usage import bytes_in

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.clients

WITHIN_S = 15.0
SOON = {
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "100",
}
SMALL = {"segment.bytes": "100000", "retention.bytes": "300000"}
VALUE = bytes(1000)
COUNT = 2000


@pytest.fixture(scope="module")
def trimmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=SOON) as process:
        yield process


@pytest.fixture
def filled(trimmed: BrokerProcess, topic: str) -> str:
    """A topic that got 2 MB and keeps 0.3."""
    ConfluentDriver().create_topic(trimmed.bootstrap, topic, partitions=1, configs=SMALL)
    producer = producer_for(trimmed)
    for _ in range(COUNT):
        producer.produce(topic, VALUE, on_delivery=_stored)
        producer.poll(0)
    assert producer.flush(WITHIN_S) == 0
    folder = trimmed.data / f"{topic}-0"
    wait_until(lambda: 200_000 < bytes_in(folder) < 500_000)
    return topic


def producer_for(broker: BrokerProcess) -> confluent_kafka.Producer:
    return confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "batch.size": 20_000, "linger.ms": 1}
    )


def _stored(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
    assert error is None, error


def wait_until(what: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not what():
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.05)


def confluent(bootstrap: str, **more: Any) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, **more}
    )


def read_with_confluent(consumer: confluent_kafka.Consumer) -> list[int]:
    offsets: list[int] = []
    until_s = time.monotonic() + WITHIN_S
    while (not offsets or offsets[-1] < COUNT - 1) and time.monotonic() < until_s:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
    return offsets


def test_confluent_sees_the_new_beginning_and_resets_to_it(
    trimmed: BrokerProcess, filled: str
) -> None:
    consumer = confluent(trimmed.bootstrap, **{"auto.offset.reset": "earliest"})
    low, high = consumer.get_watermark_offsets(
        confluent_kafka.TopicPartition(filled, 0), timeout=WITHIN_S, cached=False
    )
    assert 0 < low < high == COUNT

    consumer.assign([confluent_kafka.TopicPartition(filled, 0, 0)])  # long gone
    offsets = read_with_confluent(consumer)
    consumer.close()

    assert offsets == list(range(low, COUNT))


def test_kafka_python_sees_the_new_beginning_and_resets_to_it(
    trimmed: BrokerProcess, filled: str
) -> None:
    partition = kafka.TopicPartition(filled, 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=trimmed.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=2000,
        group_id=None,
    )
    consumer.assign([partition])
    low = consumer.beginning_offsets([partition])[partition]
    assert low > 0

    consumer.seek(partition, 0)
    offsets = [message.offset for message in consumer]
    consumer.close()

    assert offsets == list(range(low, COUNT))


def test_a_consumer_that_is_told_to_fail_does(trimmed: BrokerProcess, filled: str) -> None:
    consumer = confluent(trimmed.bootstrap, **{"auto.offset.reset": "error"})
    consumer.assign([confluent_kafka.TopicPartition(filled, 0, 0)])

    message = consumer.poll(WITHIN_S)
    consumer.close()

    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET


def test_a_slow_reader_beside_a_fast_writer_misses_nothing_but_what_is_too_old(
    trimmed: BrokerProcess, topic: str
) -> None:
    """The log is trimmed all the time; what is read is in order, without damage, and it jumps only
    forward and only to a beginning."""
    configs = {**SMALL, "retention.bytes": "1000000"}
    ConfluentDriver().create_topic(trimmed.bootstrap, topic, partitions=1, configs=configs)
    producer = producer_for(trimmed)
    consumer = confluent(
        trimmed.bootstrap, **{"auto.offset.reset": "earliest", "fetch.message.max.bytes": 200_000}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    offsets: list[int] = []
    sent = 0
    until_s = time.monotonic() + 4.0
    while time.monotonic() < until_s:
        for _ in range(500):
            producer.produce(topic, b"%d" % sent + VALUE, on_delivery=_stored)
            sent += 1
        producer.flush(WITHIN_S)
        for message in consumer.consume(100, 0.05):
            assert message.error() is None, message.error()
            value, offset = message.value(), message.offset()
            assert value is not None
            assert offset is not None
            assert value == b"%d" % offset + VALUE
            offsets.append(offset)
    low, _ = consumer.get_watermark_offsets(
        confluent_kafka.TopicPartition(topic, 0), timeout=WITHIN_S, cached=False
    )
    consumer.close()

    assert len(offsets) > 100
    assert offsets == sorted(set(offsets))
    assert low > 0
    until_s = time.monotonic() + WITHIN_S
    while bytes_in(trimmed.data / f"{topic}-0") >= 3_000_000:
        assert time.monotonic() < until_s, "what was dropped still takes room"
        time.sleep(0.1)
