"""Archives whose runs are cut off anywhere: `work` and `commit` are called as Spark calls them."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import errors
from pipeline.archiving.archive_files import OWNER, list_files, name_of
from pipeline.archiving.parquet_writer import Compression
from pipeline.archiving.publication import Publication
from pipeline.archiving.staged import StagedFile
from pipeline.filesystem import Location, locate
from pipeline.reading.plan import Range
from tests.pipeline.archive_runs import Runs, Topic, archive_of, archived, files, inside, made
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[Caller]:
    with Caller(broker.host, broker.port) as connected:
        yield connected


@pytest.fixture
def topic(caller: Caller) -> Topic:
    return made(caller)


class Crash(Exception):
    """The machine goes down."""


@pytest.mark.parametrize("moves", [0, 1, 2, 3])
def test_a_crash_at_any_point_leaves_each_record_once(
    moves: int,
    broker: BrokerProcess,
    topic: Topic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end = topic.write(10)
    runs = Runs(archive_of(broker, tmp_path / "a", topic))
    runs.micro_batch(0, Range(topic.name, 0, 0, 50))
    ranges = [Range(topic.name, 0, 50, 100), Range(topic.name, 0, 100, 150)]
    move = Publication._move
    done: list[object] = []

    def crashing(self: Publication, staged: Any, final: Any) -> None:
        if len(done) == moves:
            raise Crash
        move(self, staged, final)
        done.append(final)

    job = runs.start()
    results = runs.work(job, 1, ranges)
    with monkeypatch.context() as patch:
        patch.setattr(Publication, "_move", crashing)
        if moves < 2:
            with pytest.raises(Crash):
                job.commit(1, results)
        else:
            job.commit(1, results)
    if moves == 3:
        # Spark may also have cut the same offsets in another way, with more cores than before.
        ranges = [Range(topic.name, 0, 50, 80), Range(topic.name, 0, 80, 150)]
    # All of it is part of the archive from the moment it was noted: nothing is read again.
    topic.caller.delete_records(topic.name, 150)
    again = runs.micro_batch(1, *ranges)
    assert [facts["records"] for facts in again] == [0, 0]
    rest = Range(topic.name, 0, 150, end)
    runs.micro_batch(2, rest)
    assert [row[1] for row in archived(tmp_path / "a")] == list(range(end))
    assert len(files(tmp_path / "a")) == 4
    assert not (tmp_path / "a" / "_staging").exists() or not inside(tmp_path / "a" / "_staging")


def test_a_crash_before_the_commit_leaves_nothing_but_what_the_next_run_clears(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = topic.write(4)
    runs = Runs(archive_of(broker, tmp_path / "a", topic))
    half = [Range(topic.name, 0, 0, 40), Range(topic.name, 0, 40, end)]
    runs.work(runs.start(), 0, half)
    assert len(inside(tmp_path / "a" / "_staging")) == 2
    assert files(tmp_path / "a") == []
    # Again, and with other ranges for the same offsets.
    runs.micro_batch(0, Range(topic.name, 0, 0, end))
    assert files(tmp_path / "a") == [name_of(topic.name, 0, 0, end)]
    assert not (tmp_path / "a" / "_staging" / "0").exists()
    assert archived(tmp_path / "a") == topic.rows()


def test_a_folder_that_was_cut_off_as_it_became_an_archive_becomes_one(
    broker: BrokerProcess, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = topic.write(2)
    runs = Runs(archive_of(broker, tmp_path / "a", topic))

    def crashing(source: Location, target: Location) -> bool:
        assert target.path.endswith(OWNER)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.filesystem._linked", crashing)
        with pytest.raises(Crash):
            runs.start()
    runs.micro_batch(0, Range(topic.name, 0, 0, end))
    assert archived(tmp_path / "a") == topic.rows()


def test_a_file_that_does_not_fit_is_told_in_the_systems_words_alone(tmp_path: Path) -> None:
    """A limit on the size of files is met in the same place as a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with (
            pytest.raises(errors.Refused, match=r"^cannot write .*/staged: File too large$"),
            StagedFile(locate(str(tmp_path)), "staged", "records", Compression()) as file,
        ):
            file.finish({})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not inside(tmp_path)


def test_a_commit_that_is_repeated_changes_nothing(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = topic.write(2)
    runs = Runs(archive_of(broker, tmp_path / "a", topic))
    job = runs.start()
    ranges = [Range(topic.name, 0, 0, end)]
    job.commit(0, runs.work(job, 0, ranges))
    (before,) = (path.stat() for path in (tmp_path / "a").glob("*.parquet"))
    job.commit(0, runs.work(job, 0, ranges))
    (after,) = (path.stat() for path in (tmp_path / "a").glob("*.parquet"))
    assert before == after
    assert archived(tmp_path / "a") == topic.rows()


def test_files_that_were_noted_and_then_lost_are_missed(
    broker: BrokerProcess, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = topic.write(2)
    runs = Runs(archive_of(broker, tmp_path / "a", topic))
    job = runs.start()
    results = runs.work(job, 0, [Range(topic.name, 0, 0, end)])

    def crashing(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Publication, "_move", crashing)
        with pytest.raises(Crash):
            job.commit(0, results)
    for path in inside(tmp_path / "a" / "_staging"):
        path.unlink()
    with pytest.raises(errors.ForeignState, match="the archive is not whole"):
        runs.start()


def test_files_on_the_disk_of_another_machine_are_not_published(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = topic.write(2)
    runs = Runs(archive_of(broker, tmp_path / "a", topic))
    job = runs.start()
    results = runs.work(job, 0, [Range(topic.name, 0, 0, end)])
    for path in inside(tmp_path / "a" / "_staging"):
        path.unlink()
    with pytest.raises(errors.Refused, match="all executors and the driver share"):
        job.commit(0, results)
    runs.micro_batch(0, Range(topic.name, 0, 0, end))
    assert archived(tmp_path / "a") == topic.rows()


# Gaps and damage


def test_offsets_deleted_in_between_fail_or_are_counted_and_the_name_stays(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = topic.write(5)
    topic.caller.delete_records(topic.name, 30)
    range_ = Range(topic.name, 0, 0, end)
    runs = Runs(archive_of(broker, tmp_path / "a", topic))
    with pytest.raises(errors.OffsetsGone, match=f"{topic.name}-0: offsets 0 to 29 were deleted"):
        runs.micro_batch(0, range_)
    assert inside(tmp_path / "a" / "_staging") == []
    skipping = Runs(archive_of(broker, tmp_path / "a", topic, on_gap="skip"))
    (facts,) = skipping.micro_batch(0, range_)
    assert (facts["records"], facts["offsets_missing"]) == (end - 30, 30)
    (found,) = list_files(str(tmp_path / "a"))
    assert (found.start, found.end, found.rows, found.missing) == (0, end, end - 30, 30)


def test_a_topic_that_was_made_anew_does_not_replace_what_was_archived(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = topic.write(2)
    runs = Runs(archive_of(broker, tmp_path / "a", topic))
    runs.micro_batch(0, Range(topic.name, 0, 0, end))
    first = topic.rows()
    topic.write(1)
    # The same offsets, or others that what is there covers.
    for range_ in (Range(topic.name, 0, 0, end), Range(topic.name, 0, end - 1, end + 5)):
        with pytest.raises(errors.Refused, match=f"{topic.name}-0 up to offset {end - 1} already"):
            runs.micro_batch(1, range_)
    assert archived(tmp_path / "a") == first
