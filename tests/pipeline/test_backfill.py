"""Older stretches into an archive that has later ones, exactly once."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import errors
from pipeline.jobs.archive import Archive
from pipeline.jobs.backfill import gaps
from pipeline.outcome import Outcome
from pipeline.reading.plan import Range
from pipeline.spark.micro_batches import MicroBatch
from pipeline.state import State
from pipeline.values.values_job import ValuesJob
from protocol.partitions import TopicPartition
from tests.pipeline.archive_runs import Topic, archive_of, archived, files, made
from tests.pipeline.test_replay import Killed, without_spark
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

T = TopicPartition("t", 0)


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[Caller]:
    with Caller(broker.host, broker.port) as connected:
        yield connected


@pytest.fixture
def topic(caller: Caller) -> Topic:
    """200 records, in batches of 20."""
    made_ = made(caller)
    made_.write()
    return made_


@given(
    pieces=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=6),
    start=st.integers(0, 50),
    end=st.integers(0, 80),
)
def test_gaps_and_what_is_there_are_all_of_it_and_never_overlap(
    pieces: list[tuple[int, int]], start: int, end: int
) -> None:
    there = [(first, first + size) for first, size in pieces]
    found = list(gaps({T: there}, {T: start}, {T: end}))
    covered = {offset for first, after in there for offset in range(first, after)}
    filled = [offset for gap in found for offset in range(gap.start, gap.end)]
    assert filled == sorted(set(range(start, end)) - covered)


def begun(archive: Archive, *ranges: Range, reached: int) -> None:
    """As runs of archive would leave it that had these ranges and go on from `reached`."""
    archive.check()
    with contextlib.closing(archive.parsed().source()) as source:
        identity = archive.identity(source)
    with contextlib.closing(State.open(archive._state_path, identity)) as state:
        end = {ranges[0].topic: {"0": reached}}
        MicroBatch(0, end, end, True, "", "").write(state)
        job = archive.job(state, "cluster-1")
        assert not isinstance(job, ValuesJob)
        job.commit(0, [job.work(range_, 0) for range_ in ranges])


def run(archive: Archive) -> Outcome:
    archive.check()
    nothing: Any = None
    return archive.run(nothing)


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.jobs.archive.cores", lambda _: 1)


def test_what_lies_before_and_between_is_filled_and_nothing_is_there_twice(
    broker: BrokerProcess, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_of(broker, tmp_path / "lake", topic, file_offsets=30)
    name = topic.name
    begun(archive, Range(name, 0, 50, 75), Range(name, 0, 110, 150), reached=150)
    without_spark(monkeypatch)
    filling = archive_of(broker, tmp_path / "lake", topic, file_offsets=30, backfill=True)

    outcome = run(filling)

    assert outcome.records == 50 + 35
    assert archived(tmp_path / "lake") == [row for row in topic.rows() if row[1] < 150]
    before = files(tmp_path / "lake")
    assert run(filling).records == 0
    assert files(tmp_path / "lake") == before


def test_a_backfill_that_is_killed_goes_on_and_nothing_is_there_twice(
    broker: BrokerProcess, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_of(broker, tmp_path / "lake", topic)
    begun(archive, Range(topic.name, 0, 150, 200), reached=200)
    filling = archive_of(broker, tmp_path / "lake", topic, file_offsets=20, backfill=True)
    for killed_after in (0, 2):
        without_spark(monkeypatch, killed_after=killed_after)
        with pytest.raises(Killed):
            run(filling)
    without_spark(monkeypatch)
    run(filling)
    assert archived(tmp_path / "lake") == topic.rows()


def test_only_a_stretch_of_time_is_filled_and_what_retention_has_dropped_is_not_looked_for(
    broker: BrokerProcess, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_of(broker, tmp_path / "lake", topic)
    begun(archive, Range(topic.name, 0, 150, 200), reached=200)
    until_ms = topic.rows()[100][2]
    topic.caller.delete_records(topic.name, 30)
    without_spark(monkeypatch)
    filling = archive_of(broker, tmp_path / "lake", topic, backfill=True, until_ms=until_ms)

    run(filling)

    assert [row[1] for row in archived(tmp_path / "lake")] == [*range(30, 100), *range(150, 200)]


def test_a_topic_that_was_made_anew_is_not_filled_from(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    archive = archive_of(broker, tmp_path / "lake", topic)
    begun(archive, Range(topic.name, 0, 100, 200), reached=500)
    with pytest.raises(errors.OffsetsGone, match="made anew"):
        run(archive_of(broker, tmp_path / "lake", topic, backfill=True))


def test_what_a_backfill_is_not_for_is_refused(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    for more, text in (
        ({"shape": "batches"}, "folder of its own"),
        ({"table": "delta"}, "folder of its own"),
        ({"every_s": 5.0}, "neither"),
        ({"group": "archive"}, "commits nothing"),
    ):
        told: dict[str, Any] = dict(more)
        with pytest.raises((errors.WrongUse, errors.NotInstalled), match=text):
            archive_of(broker, tmp_path / "lake", topic, backfill=True, **told).check()
    with pytest.raises(errors.WrongUse, match="archive first"):
        run(archive_of(broker, tmp_path / "new", topic, backfill=True))
