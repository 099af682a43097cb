"""The client's own loop of micro-batches, as Spark Connect needs it, without Spark: power cuts."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

from client.cluster import TopicPartition
from pipeline.dataframes.stream_source import StreamReader
from pipeline.errors import ForeignState
from pipeline.filesystem import locate
from pipeline.jobs.range_runs import backlog
from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import Range
from pipeline.spark.connect_tasks import KEPT_S, ConnectTasks
from pipeline.spark.micro_batches import MicroBatch, check_way, planned, reached
from pipeline.spark.range_loop import run_loop
from pipeline.state import State
from tests.support.fake_source import FakeSource

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.dataframes.stream_source import StreamOffset
    from pipeline.reading.sharing import Share

CUTS_MAX = 100


class Cut(Exception):
    """The machine of the client loses its power."""


class Power:
    """Fails at the step of this number, if there are so many."""

    def __init__(self, cut_at: int | None = None) -> None:
        self.cut_at = cut_at
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.cut_at:
            raise Cut


class Disk(State):
    """A state whose notes outlive power cuts, which come before a note or after it."""

    def __init__(self) -> None:
        super().__init__(locate("/nowhere"))
        self.notes: dict[str, str] = {}
        self.power = Power()

    def read(self, name: str) -> Any | None:
        return json.loads(self.notes[name]) if name in self.notes else None

    def write(self, name: str, value: object) -> None:
        self.power.step()
        self.notes[name] = json.dumps(value)
        self.power.step()


class Reader(StreamReader):
    """The real one, on logs that the test fills."""

    def __init__(self, options: SourceOptions, world: ConnectWorld) -> None:
        super().__init__(options)
        self.world = world

    def commit(self, end: StreamOffset) -> None:
        self.world.disk.power.step()
        self.world.group.append(end)


class Job:
    """A job that notes its ranges. A micro-batch that is repeated must have the same ones."""

    def __init__(self, world: ConnectWorld) -> None:
        self.world = world

    def work(self, range_: Range, batch_id: int, connections: object = None) -> dict[str, Any]:
        return {"range": list(range_), "number": batch_id}

    def commit(self, batch_id: int, results: list[dict[str, Any]]) -> None:
        self.world.disk.power.step()
        ranges = [Range(*facts["range"]) for facts in results]
        assert [facts["number"] for facts in results] == [batch_id] * len(ranges)
        assert self.world.committed.setdefault(batch_id, ranges) == ranges
        self.world.disk.power.step()


class Tasks:
    """A server, where tasks go on when their client is gone."""

    def __init__(self, world: ConnectWorld) -> None:
        self.world = world
        self.session = f"session-{next(world.numbers)}"
        self.tag = f"tag of {self.session}"

    def do(self, job: Any, shares: Sequence[Share], number: int) -> list[dict[str, Any]]:
        world = self.world
        assert world.running is None
        world.running = (self.session, self.tag)
        world.disk.power.step()
        world.now += world.task_s
        results = [job.work(range_, number) for share in shares for range_ in share]
        world.disk.power.step()
        world.running = None
        return results

    def end(self, session: str, tag: str) -> None:
        self.world.disk.power.step()
        if self.world.running == (session, tag):
            self.world.running = None

    def wait(self, seconds: float) -> None:
        self.world.waited(seconds)


class ConnectWorld:
    """The things that outlive the client: topic, state, server and destination."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
        self.source = FakeSource()
        monkeypatch.setattr(SourceOptions, "source", lambda *_, **__: self.source)
        self.options = options
        self.disk = Disk()
        self.committed: dict[int, list[Range]] = {}
        self.running: tuple[str, str] | None = None
        self.group: list[StreamOffset] = []
        self.told: list[tuple[int, float]] = []
        self.waits: list[float] = []
        self.stop_after = 0
        self.now = 0.0
        self.task_s = 1.0
        self.numbers = iter(range(1_000_000))

    def write(self, partition: int, records: int) -> None:
        self.source.log("t", partition).append(*[b"v"] * records)

    def parsed(self) -> SourceOptions:
        given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "shape": "ranges"}
        given["startingOffsets"] = "earliest"
        return SourceOptions.parse({**given, **self.options}, streaming=True)

    def run(self, cut_at: int | None = None, every_s: float | None = None) -> bool:
        """A new client; whether it came to its end."""
        self.disk.power = Power(cut_at)
        tasks = Tasks(self)
        try:
            run_loop(
                Reader(self.parsed(), self),
                Job(self),
                tasks,
                state=self.disk,
                every_s=every_s,
                committed=lambda number, _, seconds: self.told.append((number, seconds)),
                clock=lambda: self.now,
            )
        except Cut:
            return False
        return True

    def waited(self, seconds: float) -> None:
        self.waits.append(seconds)
        if len(self.waits) == self.stop_after:
            raise KeyboardInterrupt
        self.now += max(0.0, seconds)
        self.write(0, 1)

    def arrived(self) -> Counter[tuple[int, int]]:
        """How often each offset of each partition is in a micro-batch that was committed."""
        return Counter(
            (range_.partition, offset)
            for ranges in self.committed.values()
            for range_ in ranges
            for offset in range(range_.start, range_.end)
        )

    def all_once(self) -> Counter[tuple[int, int]]:
        return Counter(
            (partition.partition, offset)
            for partition, log in self.source.logs.items()
            for offset in range(log.end)
        )


def test_a_power_cut_at_any_step_and_another_one_after_it_leave_each_record_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for first in range(1, CUTS_MAX):
        for second in range(1, CUTS_MAX):
            world = ConnectWorld(monkeypatch, maxOffsetsPerTrigger="4")
            world.write(0, 5)
            world.write(1, 1)
            whole = world.run(cut_at=first)
            world.write(1, 2)
            recovered = whole or world.run(cut_at=second)
            world.write(0, 1)
            assert world.run()
            assert world.arrived() == world.all_once()
            assert world.running is None
            assert list(world.committed) == list(range(len(world.committed)))
            assert world.group[-1] == {"t": {"0": 6, "1": 3}}
            if recovered:
                break
        if whole:
            break
    assert whole
    assert first > 10


def test_a_bounded_run_ends_with_what_was_there_when_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConnectWorld(monkeypatch, maxOffsetsPerTrigger="3")
    world.write(0, 5)
    commit = Job.commit

    def growing(job: Job, number: int, results: list[dict[str, Any]]) -> None:
        commit(job, number, results)
        if number < 2:
            world.write(0, 1)

    monkeypatch.setattr(Job, "commit", growing)
    assert world.run()
    assert world.committed == {0: [Range("t", 0, 0, 3)], 1: [Range("t", 0, 3, 5)]}
    assert world.source.log("t", 0).end == 7
    assert world.told == [(0, 1.0), (1, 1.0)]
    # Spark's own query never tells the group of the last micro-batch.
    assert world.group == [{"t": {"0": 3}}, {"t": {"0": 5}}]
    assert world.waits == []


def test_a_run_with_nothing_to_do_tells_the_group_what_a_power_cut_kept_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConnectWorld(monkeypatch)
    world.source.log("t", 0)
    assert world.run()
    assert world.group == []
    world.write(0, 5)
    # A note, the tasks, a commit, a note: two steps each. Then it is the group's turn.
    assert not world.run(cut_at=9)
    assert world.group == []
    assert world.run()
    assert world.group == [{"t": {"0": 5}}]
    assert len(world.committed) == 1


def test_with_an_interval_it_looks_again_so_long_after_it_last_looked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConnectWorld(monkeypatch)
    world.write(0, 1)
    world.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        world.run(every_s=5.0)
    assert world.waits == [4.0, 4.0, 4.0]
    world.waits, world.task_s = [], 7.0
    with pytest.raises(KeyboardInterrupt):
        world.run(every_s=5.0)
    # Nothing new at first; then it is late, and looks at once.
    assert world.waits == [5.0, -2.0, -2.0]
    assert list(world.committed) == [0, 1, 2, 3, 4]
    assert world.arrived() == world.all_once()


def test_what_is_latest_is_that_of_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ConnectWorld(monkeypatch, startingOffsets="latest")
    world.write(0, 2)
    assert world.run()
    assert world.committed == {}
    world.write(0, 3)
    assert world.run()
    assert world.committed == {0: [Range("t", 0, 2, 5)]}


def test_a_state_knows_the_micro_batches_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ConnectWorld(monkeypatch, maxOffsetsPerTrigger="3")
    world.write(0, 5)
    assert backlog(world.source, world.parsed(), world.disk) == 5
    assert world.run(cut_at=5) is False
    assert planned(world.disk, 0)
    assert not planned(world.disk, 1)
    assert reached(world.disk) == {TopicPartition("t", 0): 0}
    assert world.run()
    assert planned(world.disk, 1)
    assert reached(world.disk) == {TopicPartition("t", 0): 5}
    world.write(0, 1)
    world.write(1, 4)
    assert backlog(world.source, world.parsed(), world.disk) == 5


def test_a_state_is_not_gone_on_with_in_the_other_way(tmp_path: Path) -> None:
    looped, queried = State(locate(str(tmp_path / "a"))), State(locate(str(tmp_path / "b")))
    for state in (looped, queried):
        state.location.make()
        check_way(state, in_loop=True)
        check_way(state, in_loop=False)
    MicroBatch(0, {}, {}, True, "session", "tag").write(looped)
    queried.location.under("checkpoint").make()
    check_way(looped, in_loop=True)
    check_way(queried, in_loop=False)
    with pytest.raises(ForeignState, match=r"a was begun through Spark Connect: go on through it"):
        check_way(looped, in_loop=False)
    with pytest.raises(ForeignState, match=r"b has a checkpoint .*: run this without it"):
        check_way(queried, in_loop=True)
    looped.write("micro_batch", {"number": 0})
    with pytest.raises(ForeignState, match=r"a/micro_batch\.json is no micro-batch"):
        MicroBatch.read(looped)


def test_a_long_wait_keeps_the_session() -> None:
    done: list[float | str] = []

    class Spark:
        session_id = "s"

        class conf:
            @staticmethod
            def get(name: str, default: str) -> str:
                done.append("asked")
                return default

    tasks = ConnectTasks(Spark(), sleep=done.append)  # type: ignore[arg-type]
    tasks.wait(-1.0)
    assert done == []
    tasks.wait(KEPT_S + 1)
    assert done == ["asked", KEPT_S, "asked", 1.0]
