"""Groups of a broker that stops, is killed and starts again with snapshots of them."""

from __future__ import annotations

import errno
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest

from broker import logs
from broker.coordinator.loading import snapshotting
from broker.coordinator.loading.loads import Loading
from broker.coordinator.loading.snapshots import ShardSnapshots
from storage.disk import DiskFilesystem
from storage.inspection.directory_check import check
from storage.metadata.snapshots import SnapshotWriter
from storage.steps import run_here
from tests.support.broker_process import BrokerProcess
from tests.support.compacted import wait_until
from tests.support.fake_connection import InProcessBroker
from tests.support.group_caller import GroupCaller, Member, rebalance

if TYPE_CHECKING:
    from pathlib import Path

    from broker.assembly import Broker
    from broker.coordinator.group_coordinator import GroupCoordinator
    from tests.support.group_caller import Found, Place

TOPIC = "t"
SETTINGS = {"offsets.topic.num.partitions": "2"}
GROUPS = [f"group-{number}" for number in range(120)]
LONG = "what it is " * 360
"""Metadata that makes a commit 4 KB, of which some dozen are worth a snapshot."""


def commit_all(caller: GroupCaller, offset: int) -> None:
    for number, group in enumerate(GROUPS):
        text = LONG if number % 4 else None
        assert set(caller.commit(group, {(TOPIC, 0): (offset + number, text)}).values()) == {0}


def all_committed(caller: GroupCaller) -> dict[str, dict[Place, Found]]:
    return {group: caller.committed(group, None) for group in GROUPS}


def restored(broker: BrokerProcess) -> int:
    """How many offsets its last start has from snapshots."""
    (line,) = [line for line in broker.output().splitlines() if "groups loaded" in line]
    return int(line.split("offsets_of_snapshots=")[1].split()[0])


def found_snapshots(data: Path) -> list[Path]:
    return sorted(data.glob("__consumer_offsets-*/*.checkpoint*"))


def test_after_a_stop_groups_are_loaded_from_snapshots(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        caller = GroupCaller(broker.host, broker.port)
        caller.create_topic(TOPIC, 4)
        commit_all(caller, 0)
        members = [Member.connect(broker, GROUPS[0]) for _ in range(2)]
        leader = rebalance(*members)
        before = all_committed(caller)
        for member in members:
            member.close()
        broker.stop()
        assert len(found_snapshots(broker.data)) == 2
        broker.start()
        caller = GroupCaller(broker.host, broker.port)
        wait_until(lambda: "groups loaded" in broker.output(), "the load")
        assert restored(broker) == len(GROUPS)
        assert all_committed(caller) == before
        assert leader.generation > 0
        code = caller.heartbeat_code(GROUPS[0], leader.generation, leader.member_id)
        assert code == 0


def test_a_broker_writes_snapshots_while_it_runs_and_a_start_after_a_kill_uses_them(
    tmp_path: Path,
) -> None:
    often = {**SETTINGS, "metadata.log.max.snapshot.interval.ms": "1"}
    with BrokerProcess(tmp_path / "data", settings=often) as broker:
        caller = GroupCaller(broker.host, broker.port)
        caller.create_topic(TOPIC, 4)
        commit_all(caller, 0)
        wait_until(lambda: len(found_snapshots(broker.data)) == 2, "snapshots", within_s=15)
        caller.commit(GROUPS[7], {(TOPIC, 1): 77})
        before = all_committed(caller)
        broker.kill()
        broker.start()
        caller = GroupCaller(broker.host, broker.port)
        wait_until(lambda: "groups loaded" in broker.output(), "the load")
        assert restored(broker) >= len(GROUPS)
        assert all_committed(caller) == before


def test_a_check_of_a_directory_with_snapshots_finds_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        caller = GroupCaller(broker.host, broker.port)
        caller.create_topic(TOPIC, 4)
        commit_all(caller, 0)
        broker.stop()
        assert found_snapshots(broker.data)
        findings = list(check(DiskFilesystem(), str(broker.data), deep=True))
        assert [(found.partition, found.file, found.reason) for found in findings] == []


# In this process, where a disk can be made to fail


class Groups:
    """Commits to a broker on a loop that the test turns."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._broker = broker
        self.broker: Broker = broker.running.broker
        run_here(self.broker.topics.create(TOPIC, 4, {}))
        self.coordinator = self.broker.groups
        need = self.coordinator.runtime.state_topic.need
        run_here(need.met(self.coordinator.runtime.require_topic))

    def commit(self, count: int = 40, offset: int = 5) -> None:
        for number in range(count):
            group = f"group-{number}"
            shard = self.coordinator.runtime.shard(group)
            entries: Any = [(TOPIC, 0, offset, 3, LONG, -1)]
            self.broker.offsets.commit(shard, group, entries, now_ms=1_700_000_000_000)

    def offsets(self) -> dict[str, int]:
        return offsets_of(self.coordinator)


def offsets_of(coordinator: GroupCoordinator) -> dict[str, int]:
    return {
        group: committed.offset
        for shard in coordinator.runtime.shards
        for group in shard.state.offsets.groups()
        for _, _, committed in shard.state.offsets.entries(group)
    }


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shard with anything new is due at once."""
    monkeypatch.setattr(snapshotting, "LEAST_BYTES", 1)
    monkeypatch.setattr(snapshotting, "RETRY_MS", 50)


ONE = {"offsets_topic_num_partitions": "1"}
OFTEN = {**ONE, "metadata_log_max_record_bytes_between_snapshots": "1"}


@pytest.mark.usefixtures("due")
def test_a_snapshot_that_cannot_be_written_is_told_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, str]] = []
    monkeypatch.setattr(
        logs, "error_once_a_minute", lambda event, why, log: said.append((why, log))
    )
    works = SnapshotWriter.finish
    with InProcessBroker(tmp_path, **OFTEN) as broker:
        groups = Groups(broker)
        groups.commit()
        snapshots = groups.coordinator.snapshotting
        now_ms = groups.coordinator.now_ms()
        monkeypatch.setattr(snapshots, "_now_ms", lambda: now_ms)

        def fails(self: SnapshotWriter) -> None:
            raise OSError(errno.EIO, "the disk does not answer")

        monkeypatch.setattr(SnapshotWriter, "finish", fails)
        snapshots.look()
        broker.turn_until(lambda: bool(said))
        assert said == [("[Errno 5] the disk does not answer", "__consumer_offsets-0")]
        assert found_snapshots(tmp_path) == []
        snapshots.look()
        assert not snapshots._busy, "it waits for a while"
        monkeypatch.setattr(SnapshotWriter, "finish", works)
        now_ms += 100
        snapshots.look()
        broker.turn_until(lambda: not snapshots._busy)
        assert snapshots.written == 1


@pytest.mark.usefixtures("due")
def test_what_is_committed_while_a_snapshot_is_written_is_there_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Loading] = []
    done = Loading.restored
    with InProcessBroker(tmp_path / "data", **OFTEN) as broker:
        groups = Groups(broker)
        snapshots = groups.coordinator.snapshotting
        for offset in range(20):
            groups.commit(30, offset)
            snapshots.look()
            groups.commit(15, offset + 100)
            broker.turn(3)
        broker.turn_until(lambda: not snapshots._busy)
        assert snapshots.written > 1
        assert len(found_snapshots(tmp_path / "data")) == 1
        expected = groups.offsets()
        copy = tmp_path / "killed"
        shutil.copytree(tmp_path / "data", copy, ignore=shutil.ignore_patterns(".lock", ".kafka*"))

    def restored(self: Loading, reason: str | None) -> None:
        assert reason is None
        loads.append(self)
        done(self, reason)

    monkeypatch.setattr(Loading, "restored", restored)
    with InProcessBroker(copy, **OFTEN) as broker:
        coordinator = broker.running.broker.groups
        broker.turn_until(lambda: not coordinator.is_loading)
        assert len(loads) == 1
        assert offsets_of(coordinator) == expected


def test_a_shard_is_due_by_bytes_by_time_and_when_compaction_has_passed_its_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InProcessBroker(tmp_path, **ONE) as broker:
        groups = Groups(broker)
        snapshots = groups.coordinator.snapshotting
        (shard,) = groups.coordinator.runtime.shards

        def is_written_at_once() -> bool:
            before = snapshots.written
            snapshots.look()
            broker.turn_until(lambda: not snapshots._busy)
            return snapshots.written > before

        groups.commit(40)
        assert not is_written_at_once()
        shard.snapshots.bytes_since += groups.broker.settings.current.KEYS[
            "metadata.log.max.record.bytes.between.snapshots"
        ].default
        assert is_written_at_once()
        groups.commit(2)
        assert not is_written_at_once()
        shard.partition.log.cleaned_to = shard.partition.log.written_offset
        assert is_written_at_once()
        assert not is_written_at_once()
        groups.commit(2)
        now_ms = groups.coordinator.now_ms() + 3_600_000
        monkeypatch.setattr(snapshots, "_now_ms", lambda: now_ms)
        assert is_written_at_once()
        shard.snapshots.bytes_since = 1 << 30
        assert not is_written_at_once(), "nothing is new"


def test_a_stop_amid_the_load_of_a_snapshot_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InProcessBroker(tmp_path, **ONE) as broker:
        Groups(broker).commit(100)
    (snapshot,) = found_snapshots(tmp_path)
    before = snapshot.read_bytes()
    begun, go_on = threading.Event(), threading.Event()
    read = ShardSnapshots.read

    def slowly(self: ShardSnapshots, *arguments: Any, **more: Any) -> str | None:
        begun.set()
        go_on.wait(5)
        return read(self, *arguments, **more)

    monkeypatch.setattr(ShardSnapshots, "read", slowly)
    with InProcessBroker(tmp_path, **ONE) as broker:
        coordinator = broker.running.broker.groups
        broker.turn_until(begun.is_set)
        assert coordinator.is_loading
        broker.loop.call_later(0.05, go_on.set)
        threading.Timer(0.05, go_on.set).start()
    assert [path.read_bytes() for path in found_snapshots(tmp_path)] == [before]
    monkeypatch.setattr(ShardSnapshots, "read", read)
    with InProcessBroker(tmp_path, **ONE) as broker:
        coordinator = broker.running.broker.groups
        broker.turn_until(lambda: not coordinator.is_loading)
        assert coordinator.loads.restored == 100


def test_a_stop_with_little_that_is_new_writes_no_snapshot(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, **ONE) as broker:
        Groups(broker).commit(10)
    assert found_snapshots(tmp_path) == []


def test_snapshots_go_with_a_partition_that_is_deleted(tmp_path: Path) -> None:
    """Kafka's tools may delete the topic while we do not run; then the folder goes as a whole."""
    with InProcessBroker(tmp_path, **ONE) as broker:
        Groups(broker).commit(100)
    (snapshot,) = found_snapshots(tmp_path)
    data = snapshot.read_bytes()
    folder = snapshot.parent
    with InProcessBroker(tmp_path, **ONE) as broker:
        running = broker.running.broker
        broker.turn_until(lambda: not running.groups.is_loading)
        run_here(running.topics.delete(running.topics.by_name["__consumer_offsets"]))
        assert not folder.exists()
        topic = run_here(running.topics.create("__consumer_offsets", 1, {}))
        assert list(folder.glob("*.checkpoint")) == []
        snapshot.write_bytes(data)  # brought back by somebody
        topic.partitions[0].log.sync()
    with InProcessBroker(tmp_path, **ONE) as broker:
        coordinator = broker.running.broker.groups
        broker.turn_until(lambda: not coordinator.is_loading)
        assert coordinator.loads.restored == 0
        assert found_snapshots(tmp_path) == []
