"""Real clients over every protocol with authentication, with every mechanism that they have."""

from __future__ import annotations

import asyncio
import os
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.support.secured import USERS, SecuredBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.certificates import Issued

pytestmark = pytest.mark.clients

RECORD_BYTES = 700_000
RECORDS = [os.urandom(RECORD_BYTES) for _ in range(6)]
"""Enough to be fetched in slices that plaintext connections would get by sendfile."""


class Way(NamedTuple):
    """How a client comes in."""

    protocol: str
    mechanism: str

    def __str__(self) -> str:
        return f"{self.protocol}-{self.mechanism}".rstrip("-")


WAYS = [
    Way("SSL", ""),
    Way("SASL_PLAINTEXT", "PLAIN"),
    Way("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    Way("SASL_SSL", "PLAIN"),
    Way("SASL_SSL", "SCRAM-SHA-512"),
]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"listener.name.ssl.ssl.client.auth": "required"}
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as broker:
        broker.add_scram_users()
        yield broker
        assert "Traceback" not in broker.output()


@pytest.fixture(scope="module")
def alice(secured: SecuredBroker) -> Issued:
    return secured.authority.issue("alice")


def with_kafka_python(broker: SecuredBroker, way: Way, alice: Issued, topic: str) -> list[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer, KafkaProducer

    given: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_of(way.protocol),
        "security_protocol": way.protocol,
        "ssl_cafile": str(broker.authority.certificate),
    }
    if way.mechanism:
        given |= {
            "sasl_mechanism": way.mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": USERS["alice"],
        }
    else:
        given |= {"ssl_certfile": str(alice.certificate), "ssl_keyfile": str(alice.key)}
    producer = KafkaProducer(**given)
    for record in RECORDS:
        producer.send(topic, record).get(timeout=20)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **given)
    found = [next(consumer).value for _ in RECORDS]
    consumer.close()
    return found


def with_confluent(broker: SecuredBroker, way: Way, alice: Issued, topic: str) -> list[bytes]:
    from confluent_kafka import Consumer, Producer

    given: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_of(way.protocol),
        "security.protocol": way.protocol,
        "ssl.ca.location": str(broker.authority.certificate),
    }
    if way.mechanism:
        given |= {
            "sasl.mechanism": way.mechanism,
            "sasl.username": "alice",
            "sasl.password": USERS["alice"],
        }
    else:
        given |= {
            "ssl.certificate.location": str(alice.certificate),
            "ssl.key.location": str(alice.key),
        }
    producer = Producer(given)
    for record in RECORDS:
        producer.produce(topic, record)
    assert producer.flush(20) == 0
    reading = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**given, **reading})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(RECORDS):
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        found.append(message.value() or b"")
    consumer.close()
    return found


def with_aiokafka(broker: SecuredBroker, way: Way, alice: Issued, topic: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    context = broker.context()
    context.load_cert_chain(alice.pem)
    given: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_of(way.protocol),
        "security_protocol": way.protocol,
        "ssl_context": context,
    }
    if way.mechanism:
        given |= {
            "sasl_mechanism": way.mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": USERS["alice"],
        }

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(**given) as producer:
            for record in RECORDS:
                await producer.send_and_wait(topic, record)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **given) as consumer:
            return [(await consumer.getone()).value for _ in RECORDS]

    return asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("use", [with_kafka_python, with_confluent, with_aiokafka])
def test_records_come_back_as_they_were_sent(
    secured: SecuredBroker,
    alice: Issued,
    use: Callable[[SecuredBroker, Way, Issued, str], list[bytes]],
    way: Way,
    topic: str,
) -> None:
    assert use(secured, way, alice, topic) == RECORDS
