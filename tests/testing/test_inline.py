"""A broker in the event loop of the test."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from testing import AsyncBroker, BrokerFailed, TopicPartition
from tests.support.administrator import Administrator
from tests.support.group_caller import GroupCaller, Member
from tests.testing.test_topics import batch, values

HAS_MEMORY = Path("/dev/shm").is_dir()


async def test_it_answers_in_the_loop_of_the_test_and_is_gone_after_it() -> None:
    threads = set(threading.enumerate())
    async with AsyncBroker() as broker:
        folder = Path(broker._folder or "")
        assert await asyncio.to_thread(folder.exists)

        def talk() -> list[bytes | None]:
            broker.topic("orders").create()
            broker.cluster.produce(TopicPartition("orders", 0), [batch(b"a")])
            broker.assert_no_duplicates("orders")
            return values(broker.topic("orders").wait_for(1))

        assert await asyncio.to_thread(talk) == [b"a"]
    assert not await asyncio.to_thread(folder.exists)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(broker.host, broker.port)
    for thread in set(threading.enumerate()) - threads:
        # Those of `to_thread` belong to the loop.
        if not thread.name.startswith("asyncio_"):
            thread.join(60)
            assert not thread.is_alive(), thread.name


async def test_stopped_as_soon_as_it_has_started_it_leaves_nothing_to_be_done() -> None:
    threads = threading.active_count()
    async with AsyncBroker():
        pass
    await asyncio.sleep(0)
    assert threading.active_count() == threads


async def test_no_time_passes_for_its_groups_after_it(capfd: pytest.CaptureFixture[str]) -> None:
    session_s = 0.3
    async with AsyncBroker({"group.min.session.timeout.ms": "50"}) as broker:

        def join() -> None:
            with Administrator(broker.host, broker.port) as admin:
                admin.find_coordinator("readers")
            caller = GroupCaller(broker.host, broker.port)
            with Member(caller, "readers", session_ms=int(session_s * 1000)) as member:
                assert member.enter().error_code == 0

        await asyncio.to_thread(join)
    await asyncio.sleep(2 * session_s)
    assert capfd.readouterr().err == ""


async def test_a_question_that_would_block_the_loop_is_refused() -> None:
    async with AsyncBroker() as broker:
        with pytest.raises(BrokerFailed, match=r"await asyncio\.to_thread"):
            broker.topics()


async def test_stopped_and_started_it_keeps_its_port_and_its_topics() -> None:
    async with AsyncBroker(memory=HAS_MEMORY) as broker:
        port = broker.port
        await asyncio.to_thread(broker.topic("orders").create)
        await broker.stop()
        with pytest.raises(BrokerFailed, match="does not run"):
            await broker.stop()
        await broker.start()
        assert broker.port == port
        assert await asyncio.to_thread(broker.topics) == ["orders"]


async def test_two_run_in_one_loop() -> None:
    async with AsyncBroker() as one, AsyncBroker() as two:
        await asyncio.to_thread(one.topic("orders").create)
        assert await asyncio.to_thread(two.topics) == []


async def test_a_setting_that_does_not_exist_is_refused() -> None:
    broker = AsyncBroker({"log.retention.hourz": 1})
    with pytest.raises(BrokerFailed, match=r"did you mean log\.retention\.hours"):
        async with broker:
            pass
    assert broker._folder is None
