"""Transactions over several brokers: who leads, and who coordinates, is found, and found again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from client.cluster import LATEST, Cluster, TopicPartition
from client.committing import TRANSACTION, Committed, coordinator
from protocol.records.builder import build_batch
from tests.clients.available import end_of_test
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.transaction_ends import wait_for_ends

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.timeout(600)]

IDS = 6
START_MS = 1_700_000_000_000
FOR_EVER = {"log.retention.ms": "-1"}


class SecondBroker(KafkaProcess):
    """A broker of Apache Kafka in the cluster of another one, which is its controller."""

    def __init__(self, data: Path, first: KafkaProcess) -> None:
        super().__init__(data, settings=FOR_EVER)
        self._first = first

    def properties(self) -> dict[str, str]:
        first = self._first.properties()
        return {
            **super().properties(),
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.voters": first["controller.quorum.voters"],
            "listeners": f"PLAINTEXT://{self.bootstrap}",
        }


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[KafkaProcess, SecondBroker]]:
    try:
        first = KafkaProcess(tmp_path_factory.mktemp("first") / "data", settings=FOR_EVER)
    except NotAvailable as reason:
        end_of_test("java", f"Apache Kafka: {reason}")
    with first, SecondBroker(tmp_path_factory.mktemp("second") / "data", first) as second:
        yield first, second


def test_leaders_and_coordinators_of_two_brokers_are_found_and_waited_for(
    brokers: tuple[KafkaProcess, SecondBroker],
) -> None:
    first, second = brokers
    with Cluster(first.bootstrap, timeout_s=90, patient=True) as cluster:
        assert len(cluster._router.patiently(cluster._router.brokers)) == 2
        cluster.create_topic("orders", 4)
        places = [TopicPartition("orders", number) for number in range(4)]
        led_by = {cluster._router.leader(place)[0].address for place in places}
        assert led_by == {first.bootstrap, second.bootstrap}

        producers = [cluster.transactional_producer(f"id-{number}") for number in range(IDS)]
        for producer in producers:
            producer.initialize()
        found = [
            coordinator(cluster._router, producer.transactional_id, TRANSACTION).address
            for producer in producers
        ]
        assert set(found) == led_by

        for number, producer in enumerate(producers):
            for place in places:
                producer.send(place, build_batch([(START_MS, b"k", b"%d" % number, ())]))
            group = producer.transactional_id
            producer.send_offsets(group, {places[0]: Committed(number, "first")})
        again = threading.Thread(target=restart, args=(second,))
        again.start()
        for producer in producers:
            producer.commit()
        again.join()
        for number, producer in enumerate(producers):
            found_there = cluster.committed(producer.transactional_id)
            assert found_there == {places[0]: Committed(number, "first")}
        wait_for_ends(cluster, places)
        # A record and a marker of each.
        ends = cluster.offsets(places, LATEST, committed_only=True)
        assert ends == dict.fromkeys(places, 2 * IDS)


def restart(broker: SecondBroker) -> None:
    broker.kill()
    broker.start()
