"""Quotas as a server's clients meet them; Apache Kafka gives the same answers (TEST_SERVER=kafka).

Times come from the answers, not from a clock of the test: a rate is taken over ten seconds and
more, so what is above the quota at once tells exactly which quota was taken.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from tests.handlers.quota_calls import Part, alter, client, entry, ip, user
from tests.support.caller import Caller, Target, batch, fetch_request, produce_request
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.clients

ME = user("ANONYMOUS")
WINDOW_S = 10
KNOWN_WITHIN_S = 0.5
"""Kafka answers before its parts know of a quota, and nothing of it tells when they do."""


@pytest.fixture
def admin(broker: ServerProcess) -> Iterator[Caller]:
    """Its own client id has no quota but those of all."""
    with Caller(broker.host, broker.port, client_id="admin") as caller:
        yield caller


@pytest.fixture
def name() -> str:
    return f"quota-{uuid.uuid4().hex[:12]}"


def set_quota(admin: Caller, *parts: Part, **quotas: float | None) -> None:
    (answered,) = alter(admin, entry(*parts, **quotas))
    assert answered.error_code == 0, answered.error_message
    if os.environ.get("TEST_SERVER") == "kafka":
        time.sleep(KNOWN_WITHIN_S)


def produce_wait_ms(broker: ServerProcess, topic: str, client_id: str, size: int) -> int:
    """What a new connection of this client is told when it has sent so much."""
    with Caller(broker.host, broker.port, client_id=client_id) as caller:
        request = produce_request((topic, 0, batch(b"v" * size)), acks=1)
        answered = caller.call(request, 9)
        assert answered.responses[0].partition_responses[0].error_code == 0
        wait_ms: int = answered.throttle_time_ms
        return wait_ms


def test_the_most_particular_quota_is_taken(
    broker: ServerProcess, admin: Caller, name: str
) -> None:
    admin.create_topic(name)
    size = 1_000_000
    levels: list[tuple[Part, ...]] = [
        (ME, client(name)),
        (ME, client(None)),
        (ME,),
        (user(None), client(name)),
        (user(None), client(None)),
        (user(None),),
        (client(name),),
        (client(None),),
    ]
    try:
        for number, parts in reversed(list(enumerate(levels))):
            quota = 1000.0 * 2**number
            set_quota(admin, *parts, producer_byte_rate=quota)
            told = produce_wait_ms(broker, name, name, size) / 1000
            # Up to four requests are counted for the same one by now.
            counted = (told + WINDOW_S) * quota / size
            assert 0.95 < counted < 5, (parts, told)
    finally:
        for parts in levels:
            set_quota(admin, *parts, producer_byte_rate=None)
    assert produce_wait_ms(broker, name, name, size) == 0


@pytest.mark.parametrize("version", [3, 5, 6, 9])
def test_a_producer_above_its_quota_is_answered_at_once_and_then_muted(
    broker: ServerProcess, admin: Caller, name: str, version: int
) -> None:
    admin.create_topic(name)
    set_quota(admin, client(name), producer_byte_rate=10_000.0)

    with Caller(broker.host, broker.port, client_id=name) as caller:
        request = produce_request((name, 0, batch(b"v" * 300_000)), acks=1)
        answered = caller.call(request, version)
        caller.send(MetadataRequest(topics=[]), 9)

        assert 19_000 <= answered.throttle_time_ms <= 20_100
        caller.see_nothing_come(0.5)
    set_quota(admin, client(name), producer_byte_rate=None)


def test_a_muted_client_goes_on_when_its_time_is_over(
    broker: ServerProcess, admin: Caller, name: str
) -> None:
    admin.create_topic(name)
    set_quota(admin, client(name), producer_byte_rate=100_000.0)

    with Caller(broker.host, broker.port, client_id=name) as caller:
        request = produce_request((name, 0, batch(b"v" * 1_040_000)), acks=1)
        assert 0 < caller.call(request, 9).throttle_time_ms <= 500
        assert caller.call(MetadataRequest(topics=[]), 9)
    set_quota(admin, client(name), producer_byte_rate=None)


def test_a_fetch_above_the_quota_is_answered_without_records(
    broker: ServerProcess, admin: Caller, name: str
) -> None:
    admin.create_topic(name)
    for _ in range(4):
        assert admin.produce(name, batch(b"v" * 60_000), version=9).error_code == 0
    set_quota(admin, client(name), consumer_byte_rate=10_000.0)

    with Caller(broker.host, broker.port, client_id=name) as caller:
        limit = {"partition_max_bytes": 61_000}  # Kafka begins the next batch, too
        first = caller.call(fetch_request(Target(name, **limit)), 12)
        held_up = caller.call(fetch_request(Target(name, 1, **limit)), 12)
        caller.send(fetch_request(Target(name, 1, **limit)), 12)

        assert first.throttle_time_ms == 0
        assert 0 < len(bytes(first.responses[0].partitions[0].records)) <= 100_000
        assert held_up.responses == []
        assert 1_500 <= held_up.throttle_time_ms <= 2_300
        caller.see_nothing_come(0.2)
    set_quota(admin, client(name), consumer_byte_rate=None)


def _create(*names: str, partitions: int) -> CreateTopicsRequest:
    asked = CreateTopicsRequest.Topic
    return CreateTopicsRequest(
        topics=[
            asked(
                name=one,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            for one in names
        ]
    )


@pytest.mark.parametrize(("version", "codes"), [(5, [0, 0, 0]), (6, [0, 0, 89])])
def test_topics_beyond_the_quota_of_changes(
    broker: ServerProcess, admin: Caller, name: str, version: int, codes: list[int]
) -> None:
    set_quota(admin, client(name), controller_mutation_rate=1.0)

    with Caller(broker.host, broker.port, client_id=name) as caller:
        names = [f"{name}-{number}" for number in range(3)]
        answered = caller.call(_create(*names, partitions=8), version)

        by_name = {one.name: one.error_code for one in answered.topics}
        assert sorted(by_name.values()) == codes
        least = 12_000 if version == 5 else 4_000
        assert least <= answered.throttle_time_ms <= least + 1_000
    set_quota(admin, client(name), controller_mutation_rate=None)


def test_connections_beyond_the_quota_of_their_address_are_closed_unheard(
    new_server: Callable[..., ServerProcess],
) -> None:
    server = new_server()
    with Caller(server.host, server.port) as admin:
        set_quota(admin, ip("127.0.0.1"), connection_creation_rate=2.0)
    callers = [Caller(server.host, server.port) for _ in range(30)]

    assert callers[0].call(MetadataRequest(topics=[]), 9)
    with pytest.raises(ConnectionClosed):
        callers[-1].call(MetadataRequest(topics=[]), 9)

    for caller in callers:
        caller.socket.close()


def test_connections_beyond_the_rate_of_the_broker_wait_and_are_all_served(
    new_server: Callable[..., ServerProcess],
) -> None:
    server = new_server(max_connection_creation_rate="40", quota_window_num="2")
    begun_s = time.monotonic()
    callers = [Caller(server.host, server.port) for _ in range(90)]

    for caller in callers:
        assert caller.call(MetadataRequest(topics=[]), 9)
        caller.socket.close()

    assert time.monotonic() - begun_s > 1, "a second's worth comes at once, the others wait"


def _per_second(seconds: float, step: Callable[[], int]) -> float:
    """Bytes that these steps bring in a second, from the end of the first burst on."""
    begun_s, total = time.monotonic(), 0
    while time.monotonic() < begun_s + seconds:
        total += step()
    return total / (time.monotonic() - begun_s)


MOST_OF_QUOTA = 1.4
"""What Kafka's windows let through in a few seconds; over minutes it is 1.04. An unthrottled client
gets a hundred times the quota."""


@pytest.mark.long
def test_librdkafka_produces_and_consumes_at_its_quota(
    new_server: Callable[..., ServerProcess], name: str
) -> None:
    server, rate, record = new_server(quota_window_num="2"), 200_000.0, 2_000
    with Caller(server.host, server.port, client_id="admin") as admin:
        admin.create_topic(name)
        quotas = {"producer_byte_rate": rate, "consumer_byte_rate": rate}
        set_quota(admin, client(name), **quotas)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "client.id": name,
            "batch.size": 16_384,
            "linger.ms": 5,
            "queue.buffering.max.messages": 50,
        }
    )
    delivered = 0

    def count(error: object, message: object) -> None:
        nonlocal delivered
        assert error is None
        delivered += record

    def produce() -> int:
        before = delivered
        while len(producer) < 50:
            producer.produce(name, os.urandom(record), on_delivery=count)
        producer.poll(0.05)
        return delivered - before

    _per_second(2, produce)
    assert rate / 2 < _per_second(8, produce) < MOST_OF_QUOTA * rate
    producer.flush()

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "client.id": name,
            "group.id": name,
            "fetch.max.bytes": 65_536,
            "message.max.bytes": 65_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])

    def consume() -> int:
        return sum(len(one.value() or b"") for one in consumer.consume(50, 0.05) if not one.error())

    _per_second(3, consume)
    assert rate / 2 < _per_second(6, consume) < MOST_OF_QUOTA * rate
    consumer.close()
