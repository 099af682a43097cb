"""The progress of a job: rates, what is left, and its display on a terminal, in a log, as JSON."""

from __future__ import annotations

import io
import json

from client.cluster import TopicPartition
from pipeline.console.progress import (
    SAMPLES,
    JsonLines,
    Lines,
    Progress,
    Silence,
    Status,
    TerminalLine,
    duration,
    in_width,
    parts,
    with_bar,
)
from pipeline.left_out import LeftOut
from pipeline.outcome import BatchDone, Outcome, Tally

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class GoneReader(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


class LastStatus(Silence):
    status = Status("", 0.0)

    def show(self, status: Status, done: BatchDone | None) -> None:
        self.status = status


def done(number: int = 0, records: int = 100, **more: object) -> BatchDone:
    defaults: dict[str, object] = {"bytes": records * 10, "seconds": 0.5, "offsets": records}
    return BatchDone(number, records, **{**defaults, **more})  # type: ignore[arg-type]


def test_a_bounded_run_tells_percent_and_time_left_at_the_present_rate() -> None:
    clock, view = Clock(), LastStatus()
    progress = Progress("mirror", view, clock=clock)
    progress.started()
    progress.total(1000)
    clock.now += 2
    progress.batch(done(0, 100))
    clock.now += 2
    progress.batch(done(1, 300))
    assert view.status.percent == 40.0
    assert view.status.records_per_s == 100.0
    assert view.status.seconds_left == 6.0
    assert view.status.lag == 600


def test_a_micro_batch_that_is_no_longer_than_others_lowers_no_rate_and_its_time_is_taken_off() -> (
    None
):
    clock, view = Clock(), LastStatus()
    progress = Progress("archive", view, clock=clock)
    progress.started()
    progress.total(4000)
    for number in range(2):
        clock.now += 20
        progress.batch(done(number, 1000))
    told = []
    for _ in range(3):
        clock.now += 10
        progress.tick()
        told.append((round(view.status.records_per_s), round(view.status.seconds_left or 0)))
    assert told == [(50, 30), (50, 20), (33, 40)]


def test_a_rate_falls_at_once_where_nothing_is_left_to_do() -> None:
    clock, view = Clock(), LastStatus()
    progress = Progress("archive", view, clock=clock, lag_of=lambda ends: 0)
    progress.started()
    clock.now += 20
    progress.batch(done(0, 1000, end_offsets={ORDERS_0: 1000}))
    clock.now += 20
    progress.tick()
    assert view.status.records_per_s == 25.0


def test_the_tasks_of_a_long_micro_batch_are_told_while_it_runs() -> None:
    clock, view = Clock(), LastStatus()
    progress = Progress("archive", view, clock=clock)
    found: list[tuple[int, int] | None] = [(3, 8), None]
    progress.started(lambda: found.pop(0))
    clock.now += 3
    progress.tick()
    assert parts(view.status) == ["archive", "working, 3 s", "3 of 8 tasks"]
    progress.tick()
    assert parts(view.status) == ["archive", "working, 3 s"]


def test_offsets_and_not_records_tell_how_far_a_compacted_topic_is() -> None:
    clock, view = Clock(), LastStatus()
    progress = Progress("mirror", view, clock=clock)
    progress.total(1000)
    clock.now += 1
    progress.batch(done(0, 10, offsets=500))
    assert (view.status.percent, view.status.seconds_left) == (50.0, 1.0)


def test_a_rate_is_of_the_last_seconds_and_falls_while_nothing_comes() -> None:
    clock, view = Clock(), LastStatus()
    progress = Progress("archive", view, clock=clock)
    progress.started()
    for number in range(30):
        clock.now += 1
        progress.batch(done(number, 1000 if number < 10 else 10))
    assert view.status.records_per_s == 10.0
    clock.now += 9
    progress.tick()
    assert 1 < view.status.records_per_s < 3


def test_the_start_of_spark_is_not_time_of_the_job() -> None:
    clock, view = Clock(), LastStatus()
    progress = Progress("archive", view, clock=clock)
    clock.now += 5
    progress.tick()
    assert parts(view.status) == ["archive", "starting Spark, 5 s"]
    progress.started()
    clock.now += 3
    progress.tick()
    assert parts(view.status) == ["archive", "working, 3 s"]


def test_a_run_without_end_is_told_how_far_it_is_behind_all_partitions() -> None:
    asked: list[dict[TopicPartition, int]] = []

    def lag_of(ends: object) -> int:
        asked.append(dict(ends))  # type: ignore[call-overload]
        return 7

    view = LastStatus()
    progress = Progress("archive", view, clock=Clock(), lag_of=lag_of)
    progress.started()
    progress.total(None)
    progress.batch(done(0, end_offsets={ORDERS_0: 5}))
    progress.batch(done(1, end_offsets={ORDERS_1: 9}))
    assert asked == [{ORDERS_0: 5}, {ORDERS_0: 5, ORDERS_1: 9}]
    assert view.status.lag == 7
    assert "lag 7" in parts(view.status)


def test_a_terminal_gets_one_line_within_its_width_four_times_a_second_at_most() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = Progress("mirror", TerminalLine(stream, lambda: 40, clock), clock=clock)
    progress.started()
    progress.total(1000)
    for number in range(100):
        clock.now += 0.05
        progress.batch(done(number, 1))
    drawn = stream.getvalue().split("\r\x1b[2K")[1:]
    assert 15 <= len(drawn) <= 21
    assert all(len(line) < 40 and "\n" not in line for line in drawn)
    assert drawn[-1].startswith("mirror  10%  45 s left  20 records/s")
    progress.close(None)
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_a_log_gets_a_line_for_the_first_micro_batch_and_then_every_five_seconds() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = Progress("mirror", Lines(stream, clock), clock=clock)
    for number in range(11):
        progress.batch(done(number))
        progress.tick()
        clock.now += 1
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("mirror  ") and "\x1b" not in line for line in lines)


def test_a_machine_gets_every_micro_batch_and_the_outcome_last() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = Progress("mirror", JsonLines(stream), clock=clock)
    progress.total(200)
    loss = LeftOut(offsets_missing=3, examples=["orders-0: offsets 5-7 were deleted"])
    for number in range(2):
        clock.now += 1
        progress.batch(done(number, end_offsets={ORDERS_0: 100 + number}, left_out=loss))
        progress.tick()
    progress.close(progress.outcome())
    first, second, last = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["batch"], first["end_offsets"]) == (
        "progress",
        0,
        {"orders-0": 100},
    )
    assert second["run"]["percent"] == 100.0
    assert second["left_out"]["examples"] == ["orders-0: offsets 5-7 were deleted"]
    assert (last["event"], last["records"], last["seconds"]) == ("done", 200, 2.0)
    assert last["left_out"]["offsets_missing"] == 6


def test_a_job_goes_on_when_whoever_reads_its_progress_has_gone() -> None:
    for view in (
        JsonLines(GoneReader()),
        Lines(GoneReader()),
        TerminalLine(GoneReader(), lambda: 9),
    ):
        progress = Progress("mirror", view, clock=Clock())
        progress.batch(done())
        assert progress.outcome().batches == 1


def test_a_report_of_a_run_of_weeks_keeps_a_bounded_number_of_samples_and_loses_no_record() -> None:
    clock = Clock()
    progress = Progress("archive", Silence(), clock=clock)
    for number in range(3 * SAMPLES + 1):
        clock.now += 1
        progress.batch(done(number, 2))
    assert len(progress.samples) <= SAMPLES
    assert sum(sample.records for sample in progress.samples) == 2 * (3 * SAMPLES + 1)
    times = [sample.at_s for sample in progress.samples]
    assert times == sorted(times)
    assert progress.samples[-1].batch_id == 3 * SAMPLES


def test_an_outcome_adds_up_what_was_told_and_names_what_was_left_out() -> None:
    clock = Clock()
    tally = Tally("archive", clock=clock)
    tally.batch(done(0, 1500, details={"files": 2}))
    tally.batch(done(1, 500, details={"files": 1}, left_out=LeftOut(2, 1, 10, ["orders-0: why"])))
    clock.now += 4
    assert tally.outcome().line() == (
        "archive: 2,000 records, 0.0 MB in 2 micro-batches, 4.0 s (500 records/s, 0.0 MB/s); "
        "3 files; left out: 2 missing offsets and 1 corrupt batches (10 offsets), "
        "the first: orders-0: why"
    )


def test_an_outcome_of_nothing_says_so() -> None:
    assert Outcome("mirror", seconds=1.23).lines() == ["mirror: nothing to do (1.2 s)"]


def test_a_narrow_terminal_gets_the_most_important_parts() -> None:
    said = ["mirror", "10%", "45 s left"]
    assert in_width(said, 100) == "mirror  10%  45 s left"
    assert in_width(said, 21) == "mirror  10%"
    assert in_width(said, 3) == "mir"
    assert in_width(said, -1) == ""


def test_durations_are_written_for_people() -> None:
    assert [duration(seconds) for seconds in (0.4, 59.6, 185, 7620)] == [
        "0 s",
        "1 min 00 s",
        "3 min 05 s",
        "2 h 07 min",
    ]


def test_a_wide_terminal_gets_a_bar_that_grows_with_the_percentage() -> None:
    def status(offsets: int, total: int | None = 200) -> Status:
        return Status("mirror", 9.0, offsets=offsets, total=total)

    assert with_bar(status(50), 80) == f"mirror  25%  [{'#' * 8}{'.' * 24}]  working, 9 s"
    assert with_bar(status(200), 80) == f"mirror  100%  [{'#' * 32}]  working, 9 s"
    # What is told in words goes before; a bar takes the room that is left.
    line = with_bar(status(50), 40)
    assert line == "mirror  25%  [##.........]  working, 9 s"
    assert len(line) == 40
    assert with_bar(status(50), 30) == "mirror  25%  working, 9 s"
    assert with_bar(status(50, total=None), 80) == "mirror  working, 9 s"
