"""Faults and conversations of brokers that tests have started, without a control port."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from client.errors import Refused
from testing import AsyncBroker, Broker, BrokerFailed
from testing.control import ControlError
from tests.support.caller import Caller, batch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.topic("orders").create()
        yield broker


def test_a_fault_acts_as_often_as_it_is_to(broker: Broker) -> None:
    with (
        broker.faults.fail("Produce", error="MESSAGE_TOO_LARGE", topic="orders") as fault,
        Caller(broker.host, broker.port) as caller,
    ):
        codes = [caller.produce("orders", batch(b"one")).error_code for _ in range(2)]
    assert codes == [10, 0]
    assert fault.fired == 1
    assert broker.unfired() == []


def test_a_fault_that_never_acted_is_known(broker: Broker) -> None:
    with broker.faults.fail("Produce", error="MESSAGE_TOO_LARGE", topic="payments") as fault:
        pass
    assert [one.number for one in broker.unfired()] == [fault.number]
    broker.faults.clear()
    assert broker.unfired() == []


def test_an_error_that_is_none_of_kafka_is_refused_in_one_line(broker: Broker) -> None:
    with pytest.raises(ControlError, match="NOT_LEADER_OR_FOLLOWER"):
        broker.faults.fail("Produce", error="NOT_LEADER_OR_FOLOWER")


def test_what_clients_have_sent_is_told_without_the_questions_of_the_test(broker: Broker) -> None:
    broker.topics()
    with Caller(broker.host, broker.port) as caller:
        caller.produce("orders", batch(b"one"))
    sent = broker.conversations()
    assert "Produce" in [one.api for one in sent]
    assert not any(one.client == "triglot-testing" for one in sent)
    assert broker.conversations(client="triglot-testing", api="Metadata")
    assert broker.conversations(after=sent[-1].number) == []


def test_a_new_process_has_no_faults_and_one_that_is_gone_is_told() -> None:
    with Broker() as broker:
        broker.faults.fail("Produce", error="MESSAGE_TOO_LARGE")
        broker.kill()
        with pytest.raises(BrokerFailed, match="does not run"):
            broker.faults.standing()
        assert broker.unfired() == []
        broker.start()
        assert broker.faults.standing() == []
        os.kill(broker.pid, signal.SIGKILL)
        with pytest.raises(BrokerFailed, match="does not answer, or has ended"):
            broker.faults.standing()
        assert broker.unfired() == []


def test_time_passes_when_the_test_says_so() -> None:
    with Broker({"log.retention.check.interval.ms": 1_000}) as broker:
        orders = broker.topic("orders").create(settings={"retention.ms": 3_600_000})
        now_ms = broker.clock.now_ms()
        with Caller(broker.host, broker.port) as caller:
            caller.produce("orders", batch(b"one", timestamp_ms=now_ms))
        with pytest.raises(AssertionError, match="has 1 records, wanted none within 0 s"):
            orders.wait_until_empty(timeout_s=0)
        broker.clock.advance(hours=25)
        assert broker.clock.now_ms() >= now_ms + 25 * 3_600_000
        orders.wait_until_empty(timeout_s=100)


async def test_an_inline_broker_has_them_too() -> None:
    async with AsyncBroker() as broker:
        fault = broker.faults.fail("CreateTopics", error="POLICY_VIOLATION")
        with pytest.raises(Refused, match="POLICY_VIOLATION"):
            await asyncio.to_thread(broker.topic("orders").create)
        assert fault.fired == 1
        assert broker.conversations(client="triglot-testing", api="CreateTopics")
