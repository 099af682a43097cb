"""The coordinator of a partition of `__consumer_offsets` that moves to another process and comes
back: what threads have under way meanwhile, and what passes in time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.loading import snapshotting
from broker.coordinator.loading.loads import AT_ONCE_BYTES
from broker.coordinator.loading.snapshots import ShardSnapshots
from broker.processes.handover import BrokerHandover
from protocol.errors import ErrorCode, KafkaError
from storage.metadata.snapshots import SnapshotWriter
from storage.slices import FileSlice
from storage.steps import run_here
from tests.support.fake_connection import InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker.coordinator.shard import Shard
    from storage.steps import Steps

TOPIC, OFFSETS = "t", "__consumer_offsets"
GROUPS = [f"group-{number}" for number in range(100)]
LONG = "what it is " * 360
"""Metadata that makes a commit 4 KB: all groups together are not loaded at once."""


class World:
    """A broker on a loop that the test turns, whose partitions move away and come back."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.turning = broker
        self.broker = parts = broker.running.broker
        self.groups = parts.groups
        self.runtime = parts.groups.runtime
        self._handover = BrokerHandover(parts)
        if TOPIC not in parts.topics.by_name:
            run_here(parts.topics.create(TOPIC, 4, {}))
            run_here(self.runtime.state_topic.need.met(self.runtime.require_topic))

    def shard(self, index: int = 0) -> Shard:
        return self.runtime.shards[index]

    def commit(self, offset: int, metadata: str = LONG) -> None:
        for group in GROUPS:
            entries: Any = [(TOPIC, 0, offset, 3, metadata, -1)]
            shard = self.runtime.shard(group)
            self.broker.offsets.commit(shard, group, entries, now_ms=1_700_000_000_000)

    def begin_to_move(self, index: int = 0) -> list[None]:
        """Have a partition led elsewhere, or here again; what is returned has an entry when its log
        may be closed, or is open. It stays open: this broker has the directory to itself."""
        parts, done = self.broker, list[None]()
        topic, stored = parts.topics.by_name[OFFSETS], parts.store.get(OFFSETS)
        assert stored is not None
        partition, log = topic.partitions[index], parts.directory.logs[OFFSETS, index]
        if partition.led_elsewhere:
            partition.log = log
            self._handover.moved(partition)
            return [None]
        nobody_uses_it = self._handover.leaves(log)
        partition.log = parts.directory.elsewhere(stored, index, topic.settings)
        self._handover.moved(partition)

        def steps() -> Steps[None]:
            yield nobody_uses_it

        def failed(error: Exception) -> None:
            raise error

        parts.changes.make(steps(), done.append, failed)
        return done

    def move(self, index: int = 0) -> None:
        done = self.begin_to_move(index)
        self.turning.turn_until(lambda: bool(done))

    def offsets(self) -> dict[str, int]:
        self.turning.turn_until(lambda: not self.runtime.is_loading)
        return {
            group: committed.offset
            for shard in self.runtime.loaded_shards()
            for group in shard.state.offsets.groups()
            for _, _, committed in shard.state.offsets.entries(group)
        }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with InProcessBroker(tmp_path, offsets_topic_num_partitions="1") as broker:
        yield World(broker)


class Held:
    """A call of a thread that waits until the test lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        call = getattr(owner, name)

        def held(*arguments: Any, **more: Any) -> Any:
            self.begun.set()
            assert self.go_on.wait(30)
            return call(*arguments, **more)

        monkeypatch.setattr(owner, name, held)


def everywhere(offset: int) -> dict[str, int]:
    return dict.fromkeys(GROUPS, offset)


@pytest.mark.parametrize("metadata", ["", LONG], ids=["little", "much"])
def test_what_was_committed_is_known_again_when_the_partition_comes_back(
    world: World, metadata: str
) -> None:
    for offset in range(3):
        world.commit(offset, metadata)
        world.move()
        assert world.offsets() == {}
        with pytest.raises(KafkaError) as refused:
            world.runtime.shard(GROUPS[0])
        assert refused.value.code == ErrorCode.NOT_COORDINATOR
        world.move()
        assert world.offsets() == everywhere(offset)


def test_a_coordinator_that_resigned_writes_nothing_though_the_partition_is_back(
    world: World,
) -> None:
    world.commit(1)
    before = world.shard()
    world.move()
    world.move()
    assert world.offsets() == everywhere(1)
    end_offset = before.partition.log.next_offset
    with pytest.raises(KafkaError) as refused:
        world.broker.offsets.remove(before, GROUPS[0], [(TOPIC, 0)])
    assert refused.value.code == ErrorCode.NOT_COORDINATOR
    assert before.partition.log.next_offset == end_offset


def test_a_load_that_is_under_way_ends_before_the_partition_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(1)
    world.move()
    read = Held(monkeypatch, FileSlice, "read")
    world.move()
    world.turning.turn_until(read.begun.is_set)
    assert world.runtime.is_loading
    done = world.begin_to_move()
    world.turning.turn(20)
    assert not done, "a thread reads it"
    read.go_on.set()
    world.turning.turn_until(lambda: bool(done))
    assert not world.shard().loaded
    world.move()
    assert world.offsets() == everywhere(1)


def test_a_snapshot_that_is_being_read_is_kept_when_the_partition_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InProcessBroker(tmp_path, offsets_topic_num_partitions="1") as broker:
        World(broker).commit(1)
    (snapshot,) = tmp_path.glob(f"{OFFSETS}-0/*.checkpoint")
    held = Held(monkeypatch, ShardSnapshots, "read")
    with InProcessBroker(tmp_path, offsets_topic_num_partitions="1") as broker:
        world = World(broker)
        broker.turn_until(held.begun.is_set)
        done = world.begin_to_move()
        held.go_on.set()
        broker.turn_until(lambda: bool(done))
        assert snapshot.exists()
        world.move()
        assert world.offsets() == everywhere(1)
        assert world.groups.loads.restored == len(GROUPS)


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shard with anything new is due at once."""
    monkeypatch.setattr(snapshotting, "LEAST_BYTES", 1)


OFTEN = {"metadata_log_max_record_bytes_between_snapshots": "1"}


@pytest.mark.usefixtures("due")
def test_a_snapshot_that_is_being_written_is_whole_before_the_partition_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InProcessBroker(tmp_path, offsets_topic_num_partitions="1", **OFTEN) as broker:
        world = World(broker)
        world.commit(1)
        held = Held(monkeypatch, SnapshotWriter, "finish")
        world.groups.snapshotting.look()
        broker.turn_until(held.begun.is_set)
        done = world.begin_to_move()
        broker.turn(20)
        assert not done, "a thread writes into its folder"
        held.go_on.set()
        broker.turn_until(lambda: bool(done))
        assert len(list(tmp_path.glob(f"{OFFSETS}-0/*.checkpoint"))) == 1
        assert list(tmp_path.glob(f"{OFFSETS}-0/*.part")) == []
        world.move()
        assert world.offsets() == everywhere(1)
        assert world.groups.loads.restored == len(GROUPS)


@pytest.mark.usefixtures("due")
def test_snapshots_are_written_though_other_partitions_are_led_elsewhere(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, offsets_topic_num_partitions="2", **OFTEN) as broker:
        world = World(broker)
        world.commit(1)
        world.move(0)
        world.groups.snapshotting.look()
        broker.turn_until(lambda: world.groups.snapshotting.written == 1)
        assert len(list(tmp_path.glob(f"{OFFSETS}-1/*.checkpoint"))) == 1
        world.move(0)
        assert world.offsets() == everywhere(1)


def test_offsets_of_a_topic_that_was_deleted_while_they_were_on_their_way_are_removed(
    world: World,
) -> None:
    world.broker.offsets.elsewhere = lambda *_: None  # as where there are several processes
    world.commit(1)
    world.move()
    run_here(world.broker.topics.delete(world.broker.topics.by_name[TOPIC]))
    world.turning.turn(20)
    world.move()
    world.turning.turn_until(lambda: not world.offsets())


def test_no_time_passes_for_the_groups_of_a_coordinator_that_resigned(world: World) -> None:
    shard = world.runtime.shard(GROUPS[0])
    group = ClassicGroup(GROUPS[0], world.runtime.rules, lambda prefix: prefix)
    shard.state.groups[GROUPS[0]] = group
    group._watch(world.runtime.now_ms() + 50)
    world.runtime.look_again(shard, group)
    assert GROUPS[0] in world.runtime._timers
    world.move()
    assert world.runtime._timers == {}


def test_all_groups_are_more_than_is_loaded_at_once(world: World) -> None:
    world.commit(1)
    log = world.shard().partition.log
    assert sum(segment.byte_size() for segment in log.segments) > AT_ONCE_BYTES
