"""Archives whose files lie by date, hour or a column, in sizes and orders, seen and read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pipeline import errors
from pipeline.archiving import parquet_writer, staged
from pipeline.archiving.layout import Layout
from pipeline.archiving.reading import contents
from pipeline.reading.plan import Range
from pipeline.schemas import RECORDS_AND_HEADERS
from protocol.records.builder import build_batch
from tests.pipeline.archive_runs import Runs, Topic, archive_of, made, replaced
from tests.pipeline.test_maintained_tables import catalog_of, compact, opened, read_back, runs_of
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

KINDS = ("parquet", "delta", "iceberg")
HOUR_MS = 3_600_000
EVE_MS = 1_700_002_800_000 - 3 * HOUR_MS
"""2023-11-14T20:00Z"""


@pytest.fixture
def topic(broker: BrokerProcess) -> Iterator[Topic]:
    with Caller(broker.host, broker.port) as caller:
        yield made(caller, partitions=2)


def write_hours(topic: Topic, hours: int = 6, each: int = 20) -> int:
    """Records whose times go back and forth over midnight."""
    end = 0
    for number in range(hours * 2):
        hour = number % 5 if number % 2 == 0 else hours - number
        records = [
            (EVE_MS + hour * HOUR_MS + index * 1000, b"%d" % (index % 3), b"%d" % index, ())
            for index in range(each)
        ]
        appended = topic.caller.produce(topic.name, build_batch(records, codec=3))
        end = appended.base_offset + each
    return end


def folders(lake: Path) -> set[str]:
    return {
        "/".join(path.relative_to(lake).parts[:-1]).removeprefix("data/")
        for path in lake.rglob("*.parquet")
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["date", "hour", "partition", "topic"])
def test_a_layout_is_seen_by_its_readers_and_read_back_row_by_row(
    kind: str, by: str, broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    runs = runs_of(kind, broker, tmp_path, topic, partition_by=by)
    end = write_hours(topic)
    more = topic.write(2, partition=1)
    runs.micro_batch(0, Range(topic.name, 0, 0, 100), Range(topic.name, 1, 0, more))
    runs.micro_batch(1, Range(topic.name, 0, 100, end))
    lake = tmp_path / "lake"
    assert read_back(lake) == topic.rows()
    wanted = {
        "date": {"date=2023-11-14", "date=2023-11-15"},
        "hour": {f"date=2023-11-15/hour={hour}" for hour in range(1)},
        "partition": {"partition=0", "partition=1"},
        "topic": {f"topic={topic.name}"},
    }[by]
    found = folders(lake)
    assert found >= wanted
    assert by == "hour" or found == wanted
    assert counted(kind, by, tmp_path) == end + more
    # PyIceberg writes no days and hours without one more package.
    if kind == "delta" or (kind == "iceberg" and by in ("partition", "topic")):
        compact(kind, tmp_path)
        assert read_back(lake) == topic.rows()


def counted(kind: str, by: str, tmp_path: Path) -> int:
    """Rows that a reader finds who asks for all but those of a value that is not there."""
    lake = tmp_path / "lake"
    if kind == "parquet":
        found = ds.dataset(lake, partitioning="hive")
        assert {"date", "hour"} & set(found.schema.names) == {
            "date": {"date"},
            "hour": {"date", "hour"},
        }.get(by, set())
        return int(found.count_rows())
    table = opened(kind, tmp_path)
    if kind == "delta":
        columns = {"date": ["date"], "hour": ["date", "hour"]}.get(by, [by])
        assert table.metadata().partition_columns == columns
        if by == "date":
            some = pa.RecordBatchReader.from_stream(table.scan(predicate="date = '2023-11-15'"))
            times = some.read_all()["timestamp"].to_pylist()
            assert {str(time)[:10] for time in times} == {"2023-11-15"}
        return int(table.count())
    (field,) = table.spec().fields
    assert str(field.transform) == {"date": "day", "hour": "hour"}.get(by, "identity")
    return int(table.scan().count())


@pytest.mark.parametrize("kind", KINDS)
def test_batches_lie_by_their_greatest_time(
    kind: str, broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    runs = runs_of(kind, broker, tmp_path, topic, partition_by="date", shape="batches")
    runs.micro_batch(0, Range(topic.name, 0, 0, write_hours(topic)))
    assert folders(tmp_path / "lake") == {"date=2023-11-14", "date=2023-11-15"}
    (file,) = contents(str(tmp_path / "lake"))
    assert file.table is not None


def test_rows_are_sorted_within_files_that_are_ended_at_their_size(
    broker: BrokerProcess, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_writer, "ROW_GROUP_ROWS", 50)
    runs = Runs(
        archive_of(broker, tmp_path / "lake", topic, sort_by=("key", "offset"), file_bytes=1)
    )
    end = write_hours(topic)
    job = runs.start()
    task = replaced(job.task, source=replaced(job.task.source, fetch_bytes=1024))
    results = [task.work(Range(topic.name, 0, 0, end), 0)]
    job.commit(0, results)
    files = sorted((tmp_path / "lake").glob("*.parquet"))
    assert len(files) > 2
    keys = pq.read_table(files[0], schema=RECORDS_AND_HEADERS)["key"].to_pylist()
    assert keys == sorted(keys)
    assert len(set(keys)) > 1
    assert read_back(tmp_path / "lake") == topic.rows()


def test_no_more_files_are_open_than_that_and_what_waits_is_bounded(
    broker: BrokerProcess, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged, "OPEN_FILES", 2)
    monkeypatch.setattr(staged, "ROW_GROUP_BYTES", 2000)
    runs = Runs(archive_of(broker, tmp_path / "lake", topic, partition_by="hour"))
    end = write_hours(topic)
    job = runs.start()
    task = replaced(job.task, source=replaced(job.task.source, fetch_bytes=1024))
    facts = task.work(Range(topic.name, 0, 0, end), 0)
    job.commit(0, [facts])
    assert len(facts["files"]) > len(folders(tmp_path / "lake"))
    assert read_back(tmp_path / "lake") == topic.rows()
    assert not list((tmp_path / "lake").glob("_staging/*/*"))


def test_an_archive_keeps_its_layout(broker: BrokerProcess, topic: Topic, tmp_path: Path) -> None:
    runs = Runs(archive_of(broker, tmp_path / "lake", topic, partition_by="date"))
    runs.micro_batch(0, Range(topic.name, 0, 0, write_hours(topic)))
    for fields, told in (
        ({"partition_by": "hour"}, "is partitioned by date, not by hour: add to it as before"),
        ({"partition_by": None}, "is partitioned by date, not by nothing"),
    ):
        with pytest.raises(errors.ForeignState, match=told):
            replaced(runs.archive, **fields).check()
    plain = Runs(archive_of(broker, tmp_path / "plain", topic))
    plain.micro_batch(0, Range(topic.name, 0, 0, 10))
    with pytest.raises(errors.ForeignState, match="was begun without sorting or a size of files"):
        replaced(plain.archive, sort_by=("key",)).check()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"by": "value"}, r"not partitioned by 'value'; known are date, hour, topic, partition"),
        ({"sort_by": ("headers",)}, "cannot be sorted by 'headers': known are key, value, topic"),
    ],
)
def test_a_layout_that_cannot_be_is_one_line(given: dict[str, Any], told: str) -> None:
    with pytest.raises(errors.WrongUse, match=told):
        Layout("records", **given).check()


def test_a_catalog_keeps_no_credentials(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    catalog = catalog_of(tmp_path)
    options = {**catalog.options, "token": "secret", "s3.secret-access-key": "secret"}
    archive = archive_of(
        broker,
        tmp_path / "lake",
        topic,
        table="iceberg",
        catalog=replaced(catalog, options=options),
    )
    Runs(archive).micro_batch(0, Range(topic.name, 0, 0, topic.write(1)))
    assert "secret" not in (tmp_path / "lake" / "_archive.json").read_text()
    assert read_back(tmp_path / "lake") == topic.rows()
