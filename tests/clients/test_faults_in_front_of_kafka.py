"""`triglot faults` in front of Apache Kafka: of 3.9, and of a cluster of two brokers of 4."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from testing.control import Control
from testing.faults import Faults, conversations
from tests.clients.available import end_of_test, every_client_but
from tests.clients.drivers.driver import KEEP_FOR_EVER
from tests.clients.records import FIRST_TIMESTAMP_MS, Record
from tests.clients.test_faults import commit_by_confluent_kafka, commit_by_kafka_python
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4
from tests.support.proxy_process import ProxyProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.clients.drivers.driver import Driver

pytestmark = [pytest.mark.clients, pytest.mark.java, pytest.mark.long]

EACH = pytest.mark.parametrize(
    "client", every_client_but("java-3.9", "kafkajs", "aiokafka"), indirect=True
)
PARTITIONS = 2


class SecondBroker(KafkaProcess):
    """A broker of the cluster that another node began."""

    def __init__(self, data: Path, first: KafkaProcess) -> None:
        super().__init__(data, release=first.release)
        self._first = first

    def properties(self) -> dict[str, str]:
        voters = self._first.properties()["controller.quorum.voters"]
        return {
            **super().properties(),
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{self.bootstrap}",
        }


@pytest.fixture(scope="module", params=["3.9", "4, two brokers"])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[KafkaProcess]]:
    """The brokers of a cluster."""
    folder = tmp_path_factory.mktemp("kafka")
    try:
        if request.param == "3.9":
            brokers = [KafkaProcess(folder / "data", release=KAFKA_3_9)]
        else:
            first = KafkaProcess(folder / "first", release=KAFKA_4)
            brokers = [first, SecondBroker(folder / "second", first)]
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with ExitStack() as running:
        yield [running.enter_context(broker) for broker in brokers]


@pytest.fixture(scope="module")
def proxy(kafka: list[KafkaProcess]) -> Iterator[ProxyProcess]:
    with ProxyProcess(kafka[0].bootstrap) as proxy:
        yield proxy


@pytest.fixture
def faults(proxy: ProxyProcess) -> Iterator[Faults]:
    found = Faults(Control.at(proxy.control))
    yield found
    found.clear()


@pytest.mark.parametrize("client", ["confluent-kafka"], indirect=True)
def test_every_broker_of_the_cluster_has_a_port_of_the_proxy(
    client: Driver, kafka: list[KafkaProcess], proxy: ProxyProcess
) -> None:
    while len(told := client.describe_cluster(proxy.bootstrap).brokers) < len(kafka):
        pass  # the newest broker is told a moment after it has started

    assert proxy.bootstrap in told
    assert len(set(told)) == len(kafka)
    assert set(told).isdisjoint(broker.bootstrap for broker in kafka)


@EACH
def test_a_lost_answer_and_fetches_with_errors_lose_and_double_nothing(
    client: Driver, proxy: ProxyProcess, faults: Faults, topic: str
) -> None:
    client.create_topic(proxy.bootstrap, topic, partitions=PARTITIONS, configs=KEEP_FOR_EVER)
    sent = [
        Record(number % PARTITIONS, FIRST_TIMESTAMP_MS, None, b"%d" % number)
        for number in range(20)
    ]

    with faults.drop_answer("Produce", topic=topic) as lost:
        client.produce(proxy.bootstrap, topic, sent, codec="none", idempotent=True)
    with faults.fail(
        "Fetch", topic=topic, partition=1, error="NOT_LEADER_OR_FOLLOWER", times=2
    ) as failed:
        stored = client.consume(proxy.bootstrap, topic)

    assert (lost.fired, failed.fired) == (1, 2)
    for partition in range(PARTITIONS):
        assert [one.value for _, one in stored[partition]] == [
            one.value for one in sent if one.partition == partition
        ]


@pytest.mark.parametrize("commit", [commit_by_kafka_python, commit_by_confluent_kafka])
@pytest.mark.parametrize("client", ["confluent-kafka"], indirect=True)
def test_a_member_of_a_group_stays_on_the_proxy_for_all_that_it_does(
    client: Driver, commit: Any, proxy: ProxyProcess, faults: Faults, topic: str
) -> None:
    client.create_topic(proxy.bootstrap, topic, partitions=PARTITIONS, configs=KEEP_FOR_EVER)
    sent = [Record(one, FIRST_TIMESTAMP_MS, None, b"a") for one in range(PARTITIONS)]
    client.produce(proxy.bootstrap, topic, sent, codec="none", idempotent=False)
    group = f"group-of-{topic}"

    with faults.fail("SyncGroup", error="REBALANCE_IN_PROGRESS") as fault:
        commit(proxy.bootstrap, topic, group)

    assert fault.fired == 1
    control = Control.at(proxy.control)
    for api in ("FindCoordinator", "JoinGroup", "SyncGroup", "OffsetCommit", "LeaveGroup"):
        asked = [one for one in conversations(control, api=api) if group in one.text]
        assert asked, f"{api} did not come by the proxy"
    assert len([one for one in conversations(control, api="JoinGroup") if group in one.text]) > 1
    assert any(
        f"topic_id: {topic}," in one.text or f"topic: {topic}," in one.text
        for one in conversations(control, api="Fetch")
    )
