"""What producers do when the broker's disk is full, fails or is slow: what docs/faults.md says of
each client."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from testing import Broker
from tests.clients.available import every_client_but
from tests.clients.records import FIRST_TIMESTAMP_MS, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.drivers.driver import Driver

pytestmark = pytest.mark.clients

EACH = pytest.mark.parametrize("client", every_client_but("java-3.9", "kafkajs"), indirect=True)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"log.retention.ms": -1}) as broker:
        yield broker


@pytest.fixture
def new_topic(broker: Broker, topic: str) -> str:
    broker.topic(topic).create()
    return topic


@contextmanager
def sending(client: Driver, broker: Broker, topic: str, *, idempotent: bool) -> Iterator[None]:
    """A client sends a record meanwhile; at the end it is acknowledged. Begins when the client has
    sent it a second time."""
    after = max((sent.number for sent in broker.conversations()), default=0)
    record = Record(0, FIRST_TIMESTAMP_MS, None, b"a")
    with ThreadPoolExecutor(1) as pool:
        produced = pool.submit(
            client.produce, broker.bootstrap, topic, [record], codec="none", idempotent=idempotent
        )
        while sum(sent.api == "Produce" for sent in broker.conversations(after=after)) < 2:
            assert not produced.done(), produced.result()
            threading.Event().wait(0.05)
        yield
        produced.result()


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.topic(topic).records()]


@EACH
def test_a_producer_waits_until_a_full_disk_has_room_again(
    client: Driver, broker: Broker, new_topic: str
) -> None:
    fault = broker.faults.full_disk()
    with sending(client, broker, new_topic, idempotent=False):
        assert fault.fired
        fault.remove()

    assert values(broker, new_topic) == [b"a"]


@EACH
def test_a_producer_sends_again_until_a_broker_that_could_not_write_is_started_again(
    client: Driver, broker: Broker, new_topic: str
) -> None:
    fault = broker.faults.failed_write(topic=new_topic)
    with sending(client, broker, new_topic, idempotent=False):
        assert fault.fired == 1
        broker.restart()

    assert values(broker, new_topic) == [b"a"]


@EACH
@pytest.mark.parametrize("idempotent", [False, True])
def test_what_was_not_synced_is_sent_again_and_may_be_there_twice_unless_the_producer_is_idempotent(
    client: Driver, broker: Broker, new_topic: str, idempotent: bool
) -> None:
    fault = broker.faults.failed_sync(topic=new_topic)
    with sending(client, broker, new_topic, idempotent=idempotent):
        assert fault.fired == 1
        broker.restart()

    assert values(broker, new_topic) == ([b"a"] if idempotent else [b"a", b"a"])


@EACH
def test_a_producer_waits_for_a_slow_disk(client: Driver, broker: Broker, new_topic: str) -> None:
    with broker.faults.slow_disk(ms=200, topic=new_topic) as fault:
        client.produce(
            broker.bootstrap,
            new_topic,
            [Record(0, FIRST_TIMESTAMP_MS, None, b"a")],
            codec="none",
            idempotent=False,
        )
        assert fault.fired

    assert values(broker, new_topic) == [b"a"]
