"""The transactional producer against our own broker, in both generations of transactions, and
against Apache Kafka of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client.cluster import LATEST, Cluster, TopicPartition
from client.committing import Committed
from client.errors import Refused
from client.transactions import TransactionalProducer
from protocol.errors import ErrorCode
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, LZ4, NONE
from protocol.records.layout import HEADER_SIZE
from protocol.records.walk import last_offset, walk
from testing.proxy import FaultProxy
from tests.clients.available import end_of_test
from tests.clients.transactions.telling import set_transaction_version
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4
from tests.support.transaction_ends import wait_for_ends
from tests.support.transactions import handed_out

if TYPE_CHECKING:
    from collections.abc import Iterator


OF_KAFKA = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.timeout(600)]
KAFKAS = {"kafka-3.9": KAFKA_3_9, "kafka-4": KAFKA_4}
SERVERS = ["older", "newer", *(pytest.param(name, marks=OF_KAFKA) for name in KAFKAS)]


@pytest.fixture(scope="module", params=SERVERS)
def generation(
    request: pytest.FixtureRequest,
    broker: BrokerProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BrokerProcess | KafkaProcess]:
    """A broker whose clients add partitions to transactions, and one where Produce does."""
    if request.param == "older":
        yield broker
        return
    if request.param in KAFKAS:
        try:
            kafka = KafkaProcess(
                tmp_path_factory.mktemp(request.param) / "data",
                settings={"log.retention.ms": "-1"},
                release=KAFKAS[request.param],
            )
        except NotAvailable as reason:
            end_of_test("java", f"Apache Kafka: {reason}")
        with kafka:
            yield kafka
        return
    with BrokerProcess(tmp_path_factory.mktemp("newer") / "data") as newer:
        with Caller(newer.host, newer.port) as caller:
            set_transaction_version(caller, 2)
        yield newer


@pytest.fixture
def cluster(generation: BrokerProcess | KafkaProcess) -> Iterator[Cluster]:
    with Cluster(generation.bootstrap, timeout_s=10) as made:
        yield made


@pytest.fixture
def places(cluster: Cluster, request: pytest.FixtureRequest) -> list[TopicPartition]:
    name = str(request.node.name).translate({ord("["): "-", ord("]"): None})
    cluster.create_topic(name, 3)
    return [TopicPartition(name, index) for index in range(3)]


def batch(*values: bytes, codec: int = NONE) -> bytes:
    return build_batch([(1_700_000_000_000, b"k", value, ()) for value in values], codec=codec)


def committed(cluster: Cluster, place: TopicPartition) -> list[bytes | None]:
    """What a reader of committed records hands out."""
    found: list[bytes | None] = []
    offset, end = 0, cluster.offsets([place], LATEST, committed_only=True)[place]
    while offset < end:
        fetched = cluster.fetch(place, offset, committed_only=True)
        found += handed_out(bytes(fetched.entries), fetched.aborted)
        offset = last_offset_of(fetched.entries) + 1
    return found


def last_offset_of(entries: memoryview) -> int:
    return max(last_offset(entries, at, magic) for at, _, magic in walk(entries))


def test_batches_and_offsets_of_a_transaction_are_seen_together(
    cluster: Cluster, places: list[TopicPartition]
) -> None:
    first, second, _ = places
    group = f"group-{first}"
    with cluster.transactional_producer(f"both-{first}") as producer:
        producer.initialize()
        for number in range(12):
            producer.send(places[number % 2], batch(b"%d" % number, b"again"))
        producer.send_offsets(group, {first: Committed(7, "as far as 7")})
        assert committed(cluster, first) == []
        producer.commit()
        wait_for_ends(cluster, places)
        assert committed(cluster, first) == [
            v for n in range(0, 12, 2) for v in (b"%d" % n, b"again")
        ]
        assert len(committed(cluster, second)) == 12
        assert cluster.committed(group) == {first: Committed(7, "as far as 7")}
        assert producer.open_s == 0.0

        # The next one goes on with sequences, or with another epoch.
        producer.send(first, batch(b"next"))
        producer.send_offsets(group, {first: Committed(8, "")})
        producer.commit()
    wait_for_ends(cluster, places)
    assert committed(cluster, first)[-1] == b"next"
    assert cluster.committed(group) == {first: Committed(8, "")}


def test_nothing_of_what_is_aborted_or_left_is_seen(
    cluster: Cluster, places: list[TopicPartition]
) -> None:
    first, second, third = places
    group = f"group-{first}"
    with cluster.transactional_producer(f"left-{first}") as producer:
        producer.initialize()
        producer.send(first, batch(b"aborted"))
        producer.abort()
        producer.send(second, batch(b"kept"))
        producer.commit()
        producer.send(third, batch(b"left"))
        producer.send_offsets(group, {first: Committed(7, "")})
    # All are ended: nobody waits.
    wait_for_ends(cluster, places)
    assert [committed(cluster, place) for place in places] == [[], [b"kept"], []]
    assert cluster.committed(group) == {}


def test_who_takes_the_id_over_ends_what_was_open_and_fences_its_producer(
    cluster: Cluster, places: list[TopicPartition]
) -> None:
    first, second, _ = places
    name = f"same-{first}"
    with Cluster(cluster.servers) as other:
        zombie = other.transactional_producer(name)
        zombie.initialize()
        zombie.send(first, batch(b"zombie"))
        zombie.send_offsets(name, {first: Committed(1, "zombie")})
        with cluster.transactional_producer(name) as producer:
            producer.initialize()
            assert cluster.committed(name) == {}
            with pytest.raises(Refused, match=rf"'{name}' has been taken over: by a later") as told:
                zombie.commit()
            assert told.value.code in (
                ErrorCode.INVALID_PRODUCER_EPOCH,
                ErrorCode.PRODUCER_FENCED,
            )
            with pytest.raises(Refused, match="has failed before: it can only be aborted"):
                zombie.send(second, batch(b"zombie"))
            with pytest.raises(Refused, match="has failed before: it can only be aborted"):
                zombie.commit()
            producer.send(first, batch(b"later"))
            producer.commit()
        zombie.close()
    wait_for_ends(cluster, places)
    assert committed(cluster, first) == [b"later"]
    assert committed(cluster, second) == []


def test_records_stay_as_they_are_compressed(
    cluster: Cluster, places: list[TopicPartition]
) -> None:
    sent = [batch(b"x" * 100, b"y" * 100, codec=codec) for codec in (NONE, GZIP, LZ4)]
    with cluster.transactional_producer(f"as-is-{places[0]}") as producer:
        producer.initialize()
        for one in sent:
            producer.send(places[0], one)
        producer.commit()
    entries = cluster.fetch(places[0], 0).entries
    stored = [entries[at : at + size] for at, size, _ in walk(entries)]
    assert [bytes(one[HEADER_SIZE:]) for one in stored[:3]] == [one[HEADER_SIZE:] for one in sent]
    batches = [Batch(one) for one in stored]
    assert [(one.is_transactional, one.base_sequence) for one in batches[:3]] == [
        (True, 0),
        (True, 2),
        (True, 4),
    ]
    marker = cluster.fetch(places[0], 6).entries
    assert Batch(marker).is_control


def test_what_comes_behind_a_first_batch_that_is_refused_is_not_stored_before_it(
    generation: BrokerProcess | KafkaProcess, places: list[TopicPartition]
) -> None:
    """As by a leader that has just been made one."""
    values = [b"%d" % number for number in range(4)]
    with FaultProxy(generation.bootstrap) as proxy, Cluster(proxy.bootstrap) as cluster:
        proxy.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
        with cluster.transactional_producer(f"refused-{places[0]}") as producer:
            producer.initialize()
            for value in values:
                producer.send(places[0], batch(value))
            producer.commit()
        wait_for_ends(cluster, places)
        assert committed(cluster, places[0]) == values


def test_a_transaction_that_may_not_be_so_long_is_told(
    cluster: Cluster, places: list[TopicPartition]
) -> None:
    producer = cluster.transactional_producer(f"long-{places[0]}", timeout_ms=901_000)
    with pytest.raises(Refused, match=r"no transaction open for 901 s: .*max\.timeout\.ms"):
        producer.initialize()


def test_a_transaction_that_was_open_for_too_long_is_told(
    cluster: Cluster, places: list[TopicPartition]
) -> None:
    now = [0.0]
    name = f"slow-{places[0]}"
    slow = TransactionalProducer(cluster._router, name, timeout_ms=60_000, clock=lambda: now[0])
    slow.initialize()
    slow.send(places[0], batch(b"slow"))
    now[0] = 61.0
    with cluster.transactional_producer(name) as broker_s_part:
        # What the broker does when the time is up: it ends the transaction, and raises the epoch.
        broker_s_part.initialize()
    with pytest.raises(Refused, match="was open for 61 s, and the broker aborts it after 60 s"):
        slow.commit()
