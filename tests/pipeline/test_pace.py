"""A replay at the pace of its records' times, by a clock of the test's own."""

from __future__ import annotations

import json
import threading
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from client.cluster import TopicPartition
from pipeline.delivering.pace import (
    LEAD_MS,
    ROUND_MS,
    SLEEP_MAX_MS,
    Clock,
    Pace,
    Paced,
    Schedule,
)
from pipeline.delivering.record_sets import RecordSet, set_of_batch
from pipeline.delivering.remade import Selection
from pipeline.delivering.replay_task import ReplayTask, close_in_time
from pipeline.errors import ForeignState, WrongUse
from pipeline.jobs.archive import Archive
from pipeline.jobs.replay import Replay
from pipeline.jobs.replay_turns import worked
from pipeline.outcome import BatchDone
from pipeline.reading.plan import Range
from pipeline.schemas import TIMESTAMP
from protocol.records.builder import build_batch
from tests.pipeline.archive_runs import Runs
from tests.pipeline.mirroring import archive, records, stored
from tests.pipeline.test_replay import Killed, fill, without_spark

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess


class Time:
    """A clock that moves when somebody sleeps, and may be set."""

    def __init__(self, now_ms: int = 5_000_000) -> None:
        self.now_ms = now_ms
        self.steady_ms = 0
        self.slept: list[float] = []
        self._lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.now_ms += round(seconds * 1000)
            self.steady_ms += round(seconds * 1000)
            self.slept.append(seconds)

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_ms, self.sleep, lambda: self.steady_ms)


class Told:
    def __init__(self) -> None:
        self.done: list[BatchDone] = []

    def total(self, offsets: int | None) -> None:
        self.offsets = offsets

    def batch(self, done: BatchDone) -> None:
        self.done.append(done)


def sets_at(*times: int, last: Sequence[int] | None = None) -> list[RecordSet]:
    ends = last or range(len(times))
    return [
        set_of_batch(build_batch([(time_ms, None, b"v", ())]), end)
        for time_ms, end in zip(times, ends, strict=True)
    ]


def sent(paced: Paced, sets: Sequence[RecordSet], time: Time) -> list[tuple[int, int]]:
    """The last offset of each, and when it was sent."""
    return [(one.last, time.now_ms) for one in paced.sets(sets)]


def test_a_set_is_sent_when_it_is_due_and_what_is_late_at_once() -> None:
    time = Time(1000)
    paced = Paced(Pace(2.0, 70_000, 1000, 11_000), 0, time.clock)
    sets = sets_at(70_000, 74_000, 72_000, 90_000)
    assert sent(paced, sets, time) == [(0, 1000), (1, 3000), (2, 3000), (3, 11_000)]
    assert (paced.reached, paced.next_ms, paced.behind_ms) == (None, None, 0)

    time = Time(9000)
    paced = Paced(Pace(2.0, 70_000, 1000, 11_000), 0, time.clock)
    assert sent(paced, sets[:2], time) == [(0, 9000), (1, 9000)]
    assert paced.behind_ms == 6000


def test_what_is_due_after_the_round_is_left_for_later_with_all_behind_it() -> None:
    time = Time(1000)
    paced = Paced(Pace(1.0, 70_000, 1000, 11_000), 5, time.clock)
    sets = sets_at(70_000, 80_001, 70_000, last=(5, 8, 9))
    assert sent(paced, sets, time) == [(5, 1000)]
    assert (paced.reached, paced.next_ms) == (6, 80_001)


def test_sets_that_end_at_one_offset_stay_together() -> None:
    time = Time(1000)
    paced = Paced(Pace(1.0, 70_000, 1000, 11_000), 5, time.clock)
    sets = sets_at(70_000, 99_000, last=(7, 7))
    assert [last for last, _ in sent(paced, sets, time)] == [7, 7]
    assert paced.reached is None


def test_records_without_a_time_wait_for_nothing() -> None:
    time = Time(1000)
    paced = Paced(Pace(1.0, None, 0, 11_000), 0, time.clock)
    assert sent(paced, sets_at(-1, 70_000), time) == [(0, 1000)]
    assert (paced.reached, paced.next_ms) == (1, 70_000)


def test_the_first_round_only_finds_when_the_clock_begins() -> None:
    time = Time(1000)
    schedule = Schedule(10.0, clock=time.clock)
    first = schedule.pace()
    assert first.due_ms(0) > first.until_ms
    schedule.wait_for([90_000, 70_000])
    assert time.slept == []
    pace = schedule.pace()
    assert (pace.due_ms(70_000), pace.due_ms(90_000)) == (1000, 3000)
    assert pace.until_ms == 11_000


def test_a_pause_of_all_is_slept_through_and_a_long_one_cut_where_that_was_asked_for() -> None:
    time = Time(1000)
    schedule = Schedule(1.0, clock=time.clock)
    schedule.wait_for([70_000])
    schedule.wait_for([190_000, 250_000])
    assert time.slept == [(120_000 - LEAD_MS) / 1000]
    schedule.wait_for([86_400_000])
    assert time.slept[1:] == [SLEEP_MAX_MS / 1000]

    time = Time(1000)
    schedule = Schedule(1.0, longest_wait_ms=5000, clock=time.clock)
    schedule.wait_for([70_000])
    schedule.wait_for([190_000])
    assert time.slept == [(5000 - LEAD_MS) / 1000]
    pace = schedule.pace()
    assert pace.due_ms(190_000) == 6000
    assert pace.until_ms == time.now_ms + 5000


HOUR_MS = 3_600_000


@pytest.mark.parametrize("jump_ms", [-HOUR_MS, HOUR_MS])
def test_a_clock_that_is_set_disturbs_the_round_that_it_is_set_in_and_no_other(
    jump_ms: int,
) -> None:
    time = Time(2 * HOUR_MS)
    schedule = Schedule(1.0, clock=time.clock)
    schedule.wait_for([70_000])
    paced = Paced(schedule.pace(), 0, time.clock)
    time.now_ms += jump_ms
    assert len(sent(paced, sets_at(72_000), time)) == 1
    # Ten seconds of waiting, a round, where it was set back, or none: either has the record once.
    assert time.steady_ms == (ROUND_MS if jump_ms < 0 else 0)
    pace = schedule.pace()
    assert pace.due_ms(90_000) == time.now_ms + 20_000 - time.steady_ms
    schedule.wait_for([190_000])
    assert time.steady_ms == 120_000 - LEAD_MS


def test_rows_are_cut_where_a_tenth_of_a_second_ends() -> None:
    times = [None, 10, 99, None, 100, 150, 90, 1000]
    rows = pa.RecordBatch.from_arrays(
        [pa.array([at and at * 1000 for at in times], pa.int64()).cast(TIMESTAMP)], ["timestamp"]
    )
    pieces = [piece.num_rows for piece in close_in_time(rows)]
    assert pieces == [1, 3, 2, 1, 1]
    assert sum(pieces) == len(times)
    assert [piece.num_rows for piece in close_in_time(rows.slice(0, 0))] == [0]


def same(broker: BrokerProcess, topic: str, copy: str) -> None:
    for partition in range(2):
        before, after = (
            [
                (one.timestamp_ms, one.key, one.value, list(one.headers))
                for one in records(stored(broker.bootstrap, name, partition))
            ]
            for name in (topic, copy)
        )
        assert after == before


@pytest.mark.parametrize("shape", ["batches", "records"])
@pytest.mark.parametrize("prefix", [None, "paced"])
def test_all_records_come_once_and_take_as_long_as_their_times_say(
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: str,
    prefix: str | None,
) -> None:
    topic = f"paced-{shape}-{prefix}"
    fill(broker.bootstrap, topic)
    without_spark(monkeypatch)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape=shape)
    time, told = Time(), Told()
    begin_ms = time.now_ms

    job = Replay(folder, broker.bootstrap, rename="{topic}-copy", speed=2, transactional_id=prefix)
    job.check()
    outcome = job.run(None, told, clock=time.clock)  # type: ignore[arg-type]

    same(broker, topic, f"{topic}-copy")
    # From the first set's last record to the last one's; of batches of three the first set ends
    # two seconds after it began.
    seconds = 71 - (2 if shape == "batches" else 0)
    assert time.now_ms - begin_ms == seconds * 1000 / 2
    assert (outcome.records, outcome.offsets) == (72, 72)
    assert told.offsets == 72
    assert len(told.done) > 3
    assert all(done.behind_s is not None for done in told.done)


@pytest.mark.parametrize("killed_after", [1, 5])
@pytest.mark.parametrize("shape", ["batches", "records"])
def test_a_paced_replay_that_was_killed_goes_on_where_it_was_at_any_speed(
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: str,
    killed_after: int,
) -> None:
    topic = f"paced-killed-{shape}-{killed_after}"
    fill(broker.bootstrap, topic)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape=shape)
    job = partial(Replay, folder, broker.bootstrap, rename="{topic}-copy")
    without_spark(monkeypatch, killed_after=killed_after)
    with pytest.raises(Killed):
        job(speed=1).run(None, clock=Time().clock)  # type: ignore[arg-type]

    without_spark(monkeypatch)
    with pytest.raises(ForeignState, match="begun with --speed"):
        job().run(None)  # type: ignore[arg-type]
    job(speed=3).run(None, clock=Time().clock)  # type: ignore[arg-type]
    same(broker, topic, f"{topic}-copy")
    done = job(speed=3).run(None, clock=Time().clock)  # type: ignore[arg-type]
    assert done.records == 0


def test_a_table_is_replayed_at_a_pace_also_after_a_kill(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "paced-table"
    fill(broker.bootstrap, topic)
    lake = Archive(
        to=str(tmp_path / "lake"), servers=broker.bootstrap, topics=(topic,), table="delta"
    )
    Runs(lake).micro_batch(0, Range(topic, 0, 0, 36), Range(topic, 1, 0, 36))
    job = Replay(lake.to, broker.bootstrap, rename="{topic}-copy", speed=1)
    without_spark(monkeypatch, killed_after=5)
    with pytest.raises(Killed):
        job.run(None, clock=Time().clock)  # type: ignore[arg-type]
    without_spark(monkeypatch)
    job.run(None, clock=Time().clock)  # type: ignore[arg-type]
    same(broker, topic, f"{topic}-copy")


def test_a_note_of_another_version_is_one_line_and_nothing_is_written(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "paced-other-version"
    fill(broker.bootstrap, topic)
    ran = without_spark(monkeypatch)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape="records")
    state = tmp_path / "state"
    job = Replay(folder, broker.bootstrap, rename="{topic}-copy", state=str(state))
    job.run(None)  # type: ignore[arg-type]
    ran.clear()
    for noted in ({"orders": 5}, [["orders", 0, 5]], 7):
        (state / "written.json").write_text(json.dumps(noted))
        with pytest.raises(ForeignState, match="does not tell how far a replay came") as told:
            job.run(None)  # type: ignore[arg-type]
        assert "\n" not in str(told.value)
    assert ran == []


def test_too_many_partitions_for_one_pace_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ReplayTask(
        to="127.0.0.1:1",
        place=TopicPartition("t", 0),
        files=(),
        begin=0,
        aborted=(),
        wanted=Selection(),
        codec=0,
        keep_producers=False,
        landing=0,
        doubtful=False,
        pace=Pace(1.0, None, 0, 0),
    )
    monkeypatch.setattr("pipeline.jobs.replay_turns.cores", lambda spark: 2)
    with pytest.raises(WrongUse, match="65 partitions are too many for one pace: 32 at most"):
        list(worked(None, [task] * 65))  # type: ignore[arg-type]


def test_a_pause_between_all_records_is_cut_and_the_rest_keeps_its_pace(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "paced-pause"
    fill(broker.bootstrap, topic)
    without_spark(monkeypatch)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape="records")
    time = Time()
    begin_ms = time.now_ms
    pace = {"speed": 0.1, "longest_wait_ms": 2000}
    job = Replay(folder, broker.bootstrap, rename="{topic}-copy", to_offset=12, **pace)  # type: ignore[arg-type]
    job.run(None, clock=time.clock)  # type: ignore[arg-type]
    # A second is ten at this speed, and no wait is longer than two.
    copied = [records(stored(broker.bootstrap, f"{topic}-copy", one)) for one in range(2)]
    assert [len(some) for some in copied] == [12, 12]
    assert time.now_ms - begin_ms == 23 * 2000


@pytest.mark.long
def test_on_spark_tasks_wait_beside_each_other(
    broker: BrokerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    topic = "paced-on-spark"
    fill(broker.bootstrap, topic)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape="records")
    job = Replay(folder, broker.bootstrap, rename="{topic}-copy", speed=20)
    outcome = job.run(spark)
    assert outcome.records == 72
    same(broker, topic, f"{topic}-copy")
