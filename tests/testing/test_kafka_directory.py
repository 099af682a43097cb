"""A broker of a test begins with a directory that Apache Kafka has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster
from testing import Broker, TopicPartition
from tests.support.kafka_process import KafkaProcess
from tests.testing.test_broker import contents_of
from tests.testing.test_topics import batch, values

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = TopicPartition("orders", 0)

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.slow]


def test_a_directory_of_kafka_is_copied_served_and_not_touched(tmp_path: Path) -> None:
    kafka = KafkaProcess(tmp_path / "kafka", settings={"offsets.topic.num.partitions": "1"})
    with kafka, Cluster(kafka.bootstrap) as cluster:
        cluster.create_topic("orders", 1)
        cluster.produce(ORDERS, [batch(b"one", b"two")])
    before = contents_of(kafka.logs)
    with Broker(directory=kafka.logs) as broker:
        assert values(broker.topic("orders").records()) == [b"one", b"two"]
        mark = broker.snapshot()
        broker.cluster.produce(ORDERS, [batch(b"three")])
        assert len(broker.topic("orders").records()) == 3
        broker.restore(mark)
        assert values(broker.topic("orders").records()) == [b"one", b"two"]
    assert contents_of(kafka.logs) == before
