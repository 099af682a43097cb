"""A coordinator of transactions whose partition moves to another process and comes back: what was
decided is carried out by whoever coordinates then, and told to who asks there."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import pytest

from broker.coordinator.transactions.coordinator import TransactionCoordinator
from broker.coordinator.transactions.loading import AT_ONCE_BYTES
from broker.coordinator.transactions.shared import SharedRuntime
from broker.coordinator.transactions.transaction import TV1
from broker.neighbours import GroupsElsewhere, Neighbours
from broker.partitions.internal_topics import TRANSACTION_TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from storage.slices import FileSlice
from storage.steps import run_here
from tests.support.fake_connection import InProcessBroker
from tests.support.transactions import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC, PLACE, ID = "t", ("t", 0), "copier"
TIMEOUT_MS = 60_000


class Leaders:
    """The connections to whoever leads partitions: they write markers when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.epochs: list[int] = []
        """The coordinator's epoch of each request."""
        self._answers: list[asyncio.Future[None]] = []

    async def ask(self, process: int, request: Any, kind: type[Any]) -> Any:
        assert kind is WriteTxnMarkersResponse
        assert isinstance(request, WriteTxnMarkersRequest)
        (marker,) = request.markers
        self.epochs.append(marker.coordinator_epoch)
        answer = self._loop.create_future()
        self._answers.append(answer)
        await answer
        told, of_topic = WriteTxnMarkersResponse.Marker, WriteTxnMarkersResponse.Marker.Topic
        topics = [
            of_topic(
                name=topic.name,
                partitions=[
                    of_topic.Partition(partition_index=index, error_code=ErrorCode.NONE)
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ]
        return WriteTxnMarkersResponse(
            markers=[told(producer_id=marker.producer_id, topics=topics)]
        )

    def answer(self) -> None:
        """The oldest request."""
        self._answers.pop(0).set_result(None)


class World:
    """One process's coordinator of the one partition of the state topic."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.turning = broker
        self.parts = parts = broker.running.broker
        create_topic(broker, TOPIC, 1)
        create_topic(broker, TRANSACTION_TOPIC, 1)
        self.leaders = Leaders(parts.loop)
        groups = cast("GroupsElsewhere", None)
        self.runtime = SharedRuntime(
            Neighbours(1, {"PLAINTEXT": [1, 2]}, 0, groups, self.leaders),
            settings=parts.settings,
            loop=parts.loop,
            topics=parts.topics,
            disk=parts.disk,
            appends=parts.appends,
            group_commit=parts.group_commit,
            participants=parts.markers,
            producer_ids=parts.producer_ids,
            transaction_version=lambda: TV1,
            wall_ms=parts.now_ms,
        )
        run_here(parts.store.reservation())  # of producer ids
        assert self.runtime.take_topic()
        self.partition = parts.topics.by_name[TRANSACTION_TOPIC].partitions[0]
        self._log = self.partition.log
        self.told: list[ErrorCode] = []

    def begin(self, transactional_id: str = ID) -> tuple[int, int]:
        begun = self.runtime.initialize(
            transactional_id, timeout_ms=TIMEOUT_MS, expected=None, aborted=self.told.append
        )
        assert begun is not None
        return begun[1].producer_id, begun[1].epoch

    def open(self) -> tuple[int, int]:
        producer = self.begin()
        self.runtime.add(ID, *producer, [PLACE], client_version=TV1)
        return producer

    def end(self, producer: tuple[int, int]) -> None:
        self.runtime.end(
            ID,
            *producer,
            commit=True,
            client_version=TV1,
            done=lambda code, _, __: self.told.append(code),
        )

    def move(self) -> None:
        """Away, or back in the next epoch. The log stays open: it is this broker's alone."""
        if self.partition.led_elsewhere:
            self.partition.log = self._log
            self._log.set_leader_epoch(self._log.leader_epoch + 1)
        else:
            stored = self.parts.store.get(TRANSACTION_TOPIC)
            assert stored is not None
            settings = self.partition.topic.settings
            self.partition.log = self.parts.directory.elsewhere(stored, 0, settings)
        self.runtime.moved(self.partition)

    def state(self) -> str:
        return self.runtime.known(ID)[1].state.name

    def turn(self) -> None:
        self.turning.turn(5)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with (
        patch.object(TransactionCoordinator, "start"),
        InProcessBroker(tmp_path / "data") as broker,
    ):
        found = World(broker)
        yield found
        found.runtime.stop()
        found.turn()


def test_what_is_open_is_open_for_the_next_coordinator_and_has_its_time(world: World) -> None:
    world.open()
    world.move()
    with pytest.raises(KafkaError) as refused:
        world.runtime.known(ID)
    assert refused.value.code == ErrorCode.NOT_COORDINATOR
    assert not world.runtime._deadlines_ms
    assert not world.runtime.ends.ongoing
    world.move()
    assert world.state() == "ONGOING"
    assert list(world.runtime.known(ID)[1].partitions) == [PLACE]
    assert set(world.runtime._deadlines_ms) == {ID}


def test_a_decision_that_reaches_the_disk_while_the_partition_moves_is_carried_out_by_the_next_one(
    world: World,
) -> None:
    producer = world.open()
    world.end(producer)
    world.move()
    world.turning.turn_until(lambda: bool(world.told))
    assert world.told == [ErrorCode.NOT_COORDINATOR]
    assert world.leaders.epochs == []
    world.move()
    world.turn()
    assert world.state() == "PREPARE_COMMIT"
    world.leaders.answer()
    world.turn()
    assert world.state() == "COMPLETE_COMMIT"
    world.end(producer)
    assert world.told[1:] == [ErrorCode.NONE]


def test_markers_that_were_asked_for_before_a_move_are_asked_for_again_in_the_next_epoch(
    world: World,
) -> None:
    world.end(world.open())
    world.turning.turn_until(lambda: bool(world.leaders.epochs))
    world.move()
    world.move()
    world.turn()
    first, second = world.leaders.epochs
    assert second > first, "so that the first can come too late"
    world.leaders.answer()
    world.turn()
    assert world.told == [ErrorCode.NONE], "it is decided, whoever carries it out"
    assert world.state() == "PREPARE_COMMIT", "the next coordinator waits for its own"
    world.leaders.answer()
    world.turn()
    assert world.state() == "COMPLETE_COMMIT"


def test_a_load_that_is_under_way_ends_before_the_log_may_be_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open()
    while sum(one.byte_size() for one in world._log.segments) <= AT_ONCE_BYTES:
        world.begin("other")
    begun, go_on = threading.Event(), threading.Event()
    read = FileSlice.read

    def held(self: FileSlice) -> Any:
        begun.set()
        assert go_on.wait(30)
        return read(self)

    world.move()
    monkeypatch.setattr(FileSlice, "read", held)
    world.move()
    world.turning.turn_until(begun.is_set)
    world.move()
    assert world.runtime.loads.is_at_work_on(world._log)
    go_on.set()
    world.turning.turn_until(lambda: not world.runtime.loads.is_at_work_on(world._log))
    assert not world.runtime.shards[0].loaded
    world.move()
    world.turning.turn_until(lambda: not world.runtime.is_loading)
    assert world.state() == "ONGOING"
    assert set(world.runtime.shards[0].states) == {ID, "other"}
