"""Mirroring to Apache Kafka, from triglot and from the oldest Kafka that runs here.

One release is tried each time; `TEST_MOVING_ALL=1` tries both.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster, TopicPartition
from pipeline.jobs.mirror import Mirror
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, LZ4, NONE, SNAPPY
from protocol.records.legacy import build_messages
from tests.clients.available import end_of_test
from tests.pipeline.mirroring import digest, micro_batch, stored
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4
from tests.support.old_kafka import OldKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess
    from tests.support.kafka_release import Release

# Inside the first test that wants them, jars may have to be fetched.
pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.timeout(600)]

NOW_MS = 1_700_000_000_000
RELEASES = [KAFKA_3_9, KAFKA_4] if os.environ.get("TEST_MOVING_ALL") else [KAFKA_4]


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.name)
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaProcess]:
    release: Release = request.param
    try:
        process = KafkaProcess(tmp_path_factory.mktemp("kafka") / "data", release=release)
    except NotAvailable as reason:
        end_of_test("java", f"Apache Kafka {release.name}: {reason}")
    with process:
        yield process


def test_batches_of_triglot_arrive_in_kafka_with_their_bytes(
    broker: BrokerProcess, kafka: KafkaProcess, tmp_path: Path
) -> None:
    place = TopicPartition(f"to-kafka-{kafka.release.name}", 0)
    following = [0, 0]
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic(place.topic, 1, {"max.message.bytes": "2000000"})
        for number in range(40):
            rows = [(NOW_MS + index, b"k", b"%d" % number, (("h", b"x"),)) for index in range(5)]
            producer = number % 2
            batch = build_batch(
                rows, codec=(NONE, GZIP, LZ4)[number % 3], producer_id=7_000 + producer,
                producer_epoch=0, base_sequence=following[producer],
            )  # fmt: skip
            following[producer] += 5
            cluster.produce(place, [batch])
    mirror = Mirror(broker.bootstrap, kafka.bootstrap, str(tmp_path / "state"), (place.topic,))
    micro_batch(mirror, commit=False)
    source, copy = stored(broker.bootstrap, place.topic), stored(kafka.bootstrap, place.topic)
    assert [entry[16:] for entry in copy] == [entry[16:] for entry in source]
    (facts,) = micro_batch(mirror)
    assert facts["counts"] == {"found": 40, "found_records": 200}
    with Cluster(kafka.bootstrap) as cluster:
        configs = cluster.topic_configs(place.topic, own=True)
    assert configs.get("max.message.bytes") == "2000000"

    # The same batches again: Kafka takes them for repetitions of those that it has.
    again = Mirror(
        broker.bootstrap, kafka.bootstrap, str(tmp_path / "again"), (place.topic,), append=True
    )
    (facts,) = micro_batch(again)
    assert facts["counts"]["producer_refused"] == 40
    copy = stored(kafka.bootstrap, place.topic)
    assert digest(copy[40:]) == digest(source)
    assert [entry[61:] for entry in copy[40:]] == [entry[61:] for entry in source]


def test_topics_of_kafka_0_8_arrive_as_batches(kafka: KafkaProcess, tmp_path: Path) -> None:
    try:
        old = OldKafka(tmp_path / "old", version="0.8.2.2")
    except NotAvailable as reason:
        end_of_test("java", f"Apache Kafka 0.8: {reason}")
    with old, Cluster(old.bootstrap) as cluster:
        old.create_topic("from-old")
        place = TopicPartition("from-old", 0)
        for number, codec in enumerate((NONE, GZIP, SNAPPY, NONE)):
            rows = [(0, b"k", b"%d-%d" % (number, index), ()) for index in range(20)]
            entries = [build_messages(rows, magic=0, codec=codec)]
            cluster.produce(place, entries, magic=0)
        mirror = Mirror(old.bootstrap, kafka.bootstrap, str(tmp_path / "state"), ("from-old",))
        micro_batch(mirror, commit=False)
        results = micro_batch(mirror)
        assert sum(facts["counts"].get("sent", 0) for facts in results) == 0
        source, copy = stored(old.bootstrap, "from-old"), stored(kafka.bootstrap, "from-old")
    assert {entry[16] for entry in source} == {0}
    assert [Batch(memoryview(entry)).codec for entry in copy] == [NONE, GZIP, SNAPPY, NONE]
    assert digest(copy) == digest(source)
    assert digest(copy)[0] == 80
