"""Windows of event time, from a topic to files and a topic, as the example job counts them."""

from __future__ import annotations

import dataclasses
import itertools
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from pipeline import errors
from pipeline.jobs import stream as job
from pipeline.jobs.stream import Stream, stream
from pipeline.outcome import BatchDone
from protocol.records.builder import build_batch
from tests.support.caller import NOW_MS, Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.support.broker_process import BrokerProcess

MINUTE = 60_000
START = NOW_MS // MINUTE * MINUTE
names = (f"windows-{number}" for number in itertools.count())


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[Caller]:
    with Caller(broker.host, broker.port) as connected:
        yield connected


def two_topics(caller: Caller) -> tuple[str, str]:
    source, sink = next(names), next(names)
    caller.create_topic(source)
    caller.create_topic(sink)
    return source, sink


def write(caller: Caller, topic: str, *records: tuple[int, bytes | None, bytes]) -> None:
    """(ms after START, key, value) each."""
    fields = [(START + after, key, value, ()) for after, key, value in records]
    caller.produce(topic, build_batch(fields))


@pytest.mark.long
def test_windows_are_counted_once_by_event_time_and_late_records_are_left_out(
    spark: SparkSession,
    broker: BrokerProcess,
    caller: Caller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, sink = two_topics(caller)
    job_of = Stream(broker.bootstrap, (source,), str(tmp_path / "counts"), sink)
    write(
        caller,
        source,
        (0, b"a", b"12345"),
        (2 * MINUTE, b"a", b"1"),
        # Out of order, but within the delay of the watermark, which is a micro-batch behind.
        (59_999, b"a", b"123"),
        (1_000, None, b"12"),
    )
    messages = job.write_messages

    def failing(closed: DataFrame, *arguments: Any) -> None:
        messages(closed, *arguments)
        raise errors.Refused("no more")

    with monkeypatch.context() as patch:
        patch.setattr(job, "write_messages", failing)
        with pytest.raises(Exception, match="no more"):
            run(job_of, spark)

    # The first window is closed: a record that comes for it now is left out.
    write(caller, source, (3, b"a", b"late"), (5 * MINUTE, b"b", b"12"))
    told = Told()
    outcome = run(job_of, spark, told)
    assert (outcome.records, outcome.details["late rows"]) == (2, 1)
    # The first micro-batch of the failed run is done again: it was not finished.
    assert (told.offsets, told.done) == (2, 2)
    counts = [(0, b"a", 2, 10), (0, None, 1, 2), (2 * MINUTE, b"a", 1, 2)]
    assert sorted_counts(tmp_path / "counts") == sorted_rows(counts)

    # At least once: what was written before the failure is there twice.
    found = [json.loads(value or b"") for value in caller.values(sink)]
    assert sorted((one["records"], one["bytes"]) for one in found[:-1]) == [
        (1, 2),
        (1, 2),
        (2, 10),
        (2, 10),
    ]
    assert (found[-1]["records"], found[-1]["bytes"]) == (1, 2)
    begin = datetime.fromisoformat(found[-1]["start"])
    assert begin.timestamp() * 1000 == START + 2 * MINUTE


class Told:
    """A watch that adds up its reports."""

    def __init__(self) -> None:
        self.offsets: int | None = None
        self.done = 0

    def total(self, offsets: int | None) -> None:
        self.offsets = offsets

    def batch(self, done: BatchDone) -> None:
        self.done += done.offsets


def run(made: Stream, spark: SparkSession, watch: Told | None = None) -> Any:
    fields = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    return stream(**fields, spark=spark, watch=watch)


def sorted_counts(folder: Path) -> list[tuple[Any, ...]]:
    return sorted_rows(
        [
            (milliseconds(row["start"]) - START, row["key"], row["records"], row["bytes"])
            for row in pq.read_table(folder).to_pylist()
        ]
    )


def milliseconds(moment: datetime) -> int:
    """Spark's files have times without a zone, in UTC."""
    return round(moment.replace(tzinfo=UTC).timestamp() * 1000)


def sorted_rows(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: (row[0], row[1] or b""))


def test_what_cannot_work_is_said_before_a_jvm_starts(
    broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    source, sink = two_topics(caller)
    made = Stream(broker.bootstrap, (source,), str(tmp_path / "a"), sink)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "batch=0").mkdir()
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"to_topic": source}, errors.WrongUse, "is read and written"),
        ({"to_topic": sink + "x"}, errors.NoSuchTopic, f"mean '{sink}'"),
        ({"topics": (source + "x",)}, errors.NoSuchTopic, f"mean '{source}'"),
        ({"window_s": 0.0}, errors.WrongUse, "window_s is 0.0: give at least 0.001 s"),
        ({"to": str(tmp_path / "full")}, errors.ForeignState, r"has other files in it \(batch=0\)"),
    ]
    for fields, kind, told in wrong:
        with pytest.raises(kind, match=told):
            dataclasses.replace(made, **fields).check()
    assert not (tmp_path / "a").exists()
    made.check()
