"""Faults and conversations of brokers that tests have started, without a control port."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from client.cluster import TopicPartition
from client.errors import Refused
from protocol.errors import ErrorCode
from testing import AsyncBroker, Broker, BrokerFailed
from testing.control import ControlError
from tests.support.caller import Caller, batch
from tests.support.consumer_member import ConsumerMember

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


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


def test_faults_at_random_tell_their_seed_and_can_be_had_again(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    with broker.faults.random(client="nobody") as first:
        assert first.fired == 0
        assert f"seed={first.seed}" in capsys.readouterr().err
        with broker.faults.random(client="nobody", seed=first.seed, probability=0.5) as again:
            assert again.seed == first.seed
            assert [one.seed for one in again] == [one.seed for one in first]
    assert broker.faults.standing() == []
    assert broker.unfired() == []


def test_faults_of_a_file_stand_all_or_none(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text('[{"api": "Produce", "topic": "orders", "close": "after"}, {"disk": "ful"}]')
    with pytest.raises(ControlError, match=r"faults\.json: fault 2 of 2: .*did you mean full"):
        broker.faults.load(file)
    assert broker.faults.standing() == []
    file.write_text('[{"api": "Produce", "topic": "orders", "close": "after"}]')
    broker.faults.load(file)
    assert len(broker.faults.standing()) == 1
    broker.faults.clear()
    with pytest.raises(ControlError, match="No such file"):
        broker.faults.load(tmp_path / "missing.json")


def test_records_of_a_lost_leader_are_gone_and_the_epoch_tells(broker: Broker) -> None:
    shop = broker.topic("shop").create(partitions=2)
    with Caller(broker.host, broker.port) as caller:
        for value in (b"one", b"two", b"three"):
            caller.produce("shop", batch(value), partition=1)
        broker.faults.truncate("shop", partition=1, offset=1)
        caller.produce("shop", batch(b"new"), partition=1)
    assert [record.value for record in shop.records()] == [b"one", b"new"]
    (first, second) = broker.control.get("/topics/shop")["partitions"]
    assert first["leader_epoch"] == second["leader_epoch"] == 1
    assert second["end_offset"] == 2
    for partition, offset, why in ((1, 2, r"outside 0\.\.2"), (2, 0, "no partition 2")):
        with pytest.raises(ControlError, match=why):
            broker.faults.truncate("shop", partition=partition, offset=offset)
    broker.kill()
    broker.start()
    assert [record.value for record in shop.records()] == [b"one", b"new"]


def test_a_topic_of_the_brokers_own_is_not_truncated(broker: Broker) -> None:
    broker.cluster.commit_offsets("billing", {TopicPartition("orders", 0): 1})
    with pytest.raises(ControlError, match="is the broker's own"):
        broker.faults.truncate("__consumer_offsets", offset=0)


def test_topics_groups_and_connections_are_listed(broker: Broker) -> None:
    assert "orders" in [one["topic"] for one in broker.control.get("/topics")["topics"]]
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic("payments", 1)
        member = ConsumerMember(caller, "auditors", topics=["payments"], member_id="one")
        answer = member.join()
        while answer.error_code in LOADING:
            answer = member.join()
        assert answer.error_code == 0, answer
        (group,) = [
            one for one in broker.control.get("/groups")["groups"] if one["group"] == "auditors"
        ]
        assert (group["type"], group["state"]) == ("consumer", "Stable")
        assert [one["member"] for one in group["members"]] == [member.member_id]
        here = "{}:{}".format(*caller.socket.getsockname())
        (mine,) = [
            one
            for one in broker.control.get("/connections")["connections"]
            if one["address"] == here
        ]
        assert mine["client"] == group["members"][0]["client"]


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
