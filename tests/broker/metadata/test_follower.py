"""A process that follows a running controller over a socket, and has its parts follow in turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker.metadata.follower import MetadataFollower
from broker.metadata.following.machine import ObserverMachine
from broker.network.peer import Peer, PeerLost
from protocol.logdata.metadata import ConfigRecord, TopicRecord
from storage.metadata.image import TOPIC_RESOURCE
from tests.support.running_controller import HOST, RunningController

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from storage.metadata.delta import Delta

REPLICA_ID, DIRECTORY_ID = 2, bytes(range(16))
WITHIN_S = 60.0
HURRY_MS = 50
"""A follower has its fetch wait no longer, so that it notices the end of a test."""


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\1")


class Process:
    """A follower at work, and what its parts are told."""

    def __init__(self) -> None:
        self.controller: RunningController
        self.deltas: asyncio.Queue[Delta] = asyncio.Queue()
        self.served = asyncio.Event()
        self.may_follow = asyncio.Event()
        """Whether the parts are not held up."""
        self.may_follow.set()
        self.may_connect = asyncio.Event()
        self.may_connect.set()
        self.peers: list[Peer] = []
        machine = ObserverMachine(
            cluster_id=None,
            replica_id=REPLICA_ID,
            directory_id=DIRECTORY_ID,
            max_wait_ms=HURRY_MS,
        )
        self.follower = MetadataFollower(
            machine, self._connect, follow=self._follow, caught_up=self._caught_up
        )

    async def _caught_up(self) -> None:
        self.served.set()

    async def _connect(self) -> Peer:
        await self.may_connect.wait()
        loop = asyncio.get_running_loop()
        peer = await Peer.connected(
            lambda protocol: loop.create_connection(protocol, HOST, self.controller.port),
            b"process-1",
        )
        self.peers.append(peer)
        return peer

    async def _follow(self, delta: Delta) -> None:
        await self.may_follow.wait()
        self.deltas.put_nowait(delta)

    async def next_delta(self) -> Delta:
        return await asyncio.wait_for(self.deltas.get(), WITHIN_S)

    def cut(self) -> None:
        self.may_connect.clear()
        self.peers[-1].close()


@pytest.fixture
async def process() -> Process:
    return Process()


@pytest.fixture
def controller(tmp_path: Path, process: Process) -> Any:
    with RunningController(tmp_path / "data") as controller:
        process.controller = controller
        yield controller


@pytest.fixture
async def following(controller: RunningController, process: Process) -> AsyncIterator[Process]:
    """It serves, and is in step with the controller."""
    task = asyncio.create_task(process.follower.run())
    await asyncio.wait_for(process.served.wait(), WITHIN_S)
    yield process
    assert not task.done(), task
    task.cancel()


def add_topic(controller: RunningController, name: str) -> None:
    controller.run(
        lambda: controller.controller.append(
            [
                TopicRecord(name=name, topic_id=topic_id(name)),
                ConfigRecord(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=name,
                    name="retention.ms",
                    value="5",
                ),
            ]
        )
    )


async def until(question: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not question():  # noqa: ASYNC110 - another thread's loop tells nobody
            await asyncio.sleep(0.01)


def followed_to(controller: RunningController) -> int:
    """The offset that the controller knows the process to serve by."""
    observers = controller.run(lambda: controller.controller.observers.live(0))
    return next((one.replicated_offset for one in observers if one.replica_id == REPLICA_ID), -1)


async def test_a_process_serves_when_it_knows_what_the_controller_knows(
    controller: RunningController, process: Process
) -> None:
    add_topic(controller, "before")
    task = asyncio.create_task(process.follower.run())
    await asyncio.wait_for(process.served.wait(), WITHIN_S)

    assert process.follower.image.topics == controller.controller.image.topics
    assert process.deltas.empty(), "it has nothing to be changed yet"
    task.cancel()


async def test_parts_are_told_of_each_change_when_it_is_in_the_image(
    controller: RunningController, following: Process
) -> None:
    add_topic(controller, "t")

    delta = await following.next_delta()

    assert list(delta.topics) == [topic_id("t")]
    assert list(delta.configs) == [(TOPIC_RESOURCE, "t")]
    assert following.follower.image.topics.keys() == {"t"}


async def test_the_controller_knows_how_far_the_parts_have_followed(
    controller: RunningController, following: Process
) -> None:
    following.may_follow.clear()
    before = controller.end_offset
    add_topic(controller, "t")
    await until(lambda: "t" in following.follower.image.topics)
    assert followed_to(controller) <= before, "replayed, and not followed"

    following.may_follow.set()

    await until(lambda: followed_to(controller) == controller.end_offset)


async def test_a_process_goes_on_where_it_was_when_the_connection_is_lost(
    controller: RunningController, following: Process
) -> None:
    following.cut()
    add_topic(controller, "meanwhile")
    following.may_connect.set()

    assert list((await following.next_delta()).topics) == [topic_id("meanwhile")]


async def test_a_snapshot_that_takes_the_place_of_all_is_followed_where_it_differs(
    controller: RunningController, following: Process
) -> None:
    add_topic(controller, "kept")
    await following.next_delta()
    following.cut()
    add_topic(controller, "new")
    controller.run(
        lambda: controller.controller.append(
            [
                ConfigRecord(
                    resource_type=TOPIC_RESOURCE,
                    resource_name="kept",
                    name="retention.ms",
                    value=None,
                )
            ]
        )
    )
    snapshot_id = controller.take_snapshot()
    controller.append()
    controller.raise_start(snapshot_id.end_offset)
    following.may_connect.set()

    delta = await following.next_delta()

    assert list(delta.topics) == [topic_id("new")]
    assert set(delta.configs) == {(TOPIC_RESOURCE, "kept"), (TOPIC_RESOURCE, "new")}
    assert following.follower.image.topics.keys() == {"kept", "new"}
    add_topic(controller, "after")
    assert list((await following.next_delta()).topics) == [topic_id("after")]


async def test_a_controller_that_comes_back_is_followed_in_its_new_epoch(
    tmp_path: Path, process: Process
) -> None:
    with RunningController(tmp_path / "data") as controller:
        process.controller = controller
        task = asyncio.create_task(process.follower.run())
        await asyncio.wait_for(process.served.wait(), WITHIN_S)
        before = process.follower.epoch
        process.cut()
    with RunningController(tmp_path / "data") as again:
        process.controller = again
        add_topic(again, "later")
        process.may_connect.set()
        await until(lambda: "later" in process.follower.image.topics)
        assert process.follower.epoch > before
        assert not task.done()
        task.cancel()
        process.cut()


async def test_who_waits_for_an_answer_of_a_process_that_dies_is_told(
    controller: RunningController, process: Process
) -> None:
    from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

    peer = await process._connect()
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
    answer = await peer.ask(request, DescribeClusterResponse)
    assert answer.controller_id == controller.controller.leader_id
    waiting = peer.ask(request, DescribeClusterResponse)
    peer.close()
    with pytest.raises(PeerLost):
        await waiting
    with pytest.raises(PeerLost):
        await peer.ask(request, DescribeClusterResponse)
