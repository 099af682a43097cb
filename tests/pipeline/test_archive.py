"""Topics to Parquet without Spark: what is in the files, and what is refused beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from pipeline import errors
from pipeline.archiving import archive_files, parquet_writer
from pipeline.archiving.archive_files import describe, list_files, name_of, parse_name
from pipeline.archiving.archive_job import ArchiveJob
from pipeline.archiving.publication import Publication
from pipeline.archiving.reading import contents
from pipeline.filesystem import Location, locate
from pipeline.jobs.archive import Archive
from pipeline.reading.plan import Range
from pipeline.schemas import BATCHES, RECORDS_AND_HEADERS
from pipeline.state import State
from tests.pipeline.archive_runs import (
    Runs,
    Topic,
    archive_of,
    archived,
    files,
    inside,
    made,
    replaced,
)
from tests.support.broker_process import BrokerProcess
from tests.support.caller import NOW_MS, Caller

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[Caller]:
    with Caller(broker.host, broker.port) as connected:
        yield connected


@pytest.fixture
def topic(caller: Caller) -> Topic:
    return made(caller)


# Names


@pytest.mark.parametrize(
    "topic", ["orders", "a-1-2", "a.b_c-", "_hidden", ".hidden", "x" * 180, "-"]
)
def test_a_name_tells_what_was_planned_and_is_seen_by_readers(topic: str) -> None:
    name = name_of(topic, 2**31 - 1, 0, 2**63 - 1)
    assert parse_name(name) == (topic, 2**31 - 1, 0, 2**63 - 1)
    assert not name.startswith(("_", "."))


def test_the_longest_names_of_topics_fit_a_file_system_and_stay_apart() -> None:
    first, second = (name_of("_" + "x" * 247 + end, 2**31 - 1, 0, 2**63 - 1) for end in "ab")
    assert first != second
    assert len(first) + len(".12345678") <= 255
    assert parse_name(first) == (None, 2**31 - 1, 0, 2**63 - 1)


def test_other_names_are_none_of_an_archives() -> None:
    for name in ("part-00000.snappy.parquet", "orders-0-1-2.parquet", name_of("a", 0, 0, 1) + ".x"):
        assert parse_name(name) is None
    with pytest.raises(ValueError, match="orders-0: no offsets from 5 to 5"):
        name_of("orders", 0, 5, 5)


def test_a_topic_of_249_characters_is_archived_under_its_whole_name(
    broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    long = made(caller, "_" + "t.-_" * 62)
    assert len(long.name) == 249
    end = long.write(1)
    Runs(archive_of(broker, tmp_path / "a", long)).micro_batch(0, Range(long.name, 0, 0, end))
    assert [(one.topic, one.start, one.end) for one in list_files(str(tmp_path / "a"))] == [
        (long.name, 0, end)
    ]
    assert archived(tmp_path / "a") == long.rows()
    assert list_files(str(tmp_path / "a"), topics=["other"]) == []


# What is in the files


def test_records_are_those_that_the_plain_reader_finds(
    broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    topic = made(caller, partitions=2)
    ends = [topic.write(5, partition=0), topic.write(3, partition=1, codec=0)]
    runs = Runs(archive_of(broker, tmp_path / "lake", topic))
    ranges = [Range(topic.name, 0, 0, 33), Range(topic.name, 0, 33, ends[0])]
    results = runs.micro_batch(0, *ranges, Range(topic.name, 1, 0, ends[1]))
    assert archived(tmp_path / "lake") == topic.rows()
    assert [facts["records"] for facts in results] == [33, 67, 60]
    assert all(facts["bytes"] > 0 for facts in results)
    first, second, third = list_files(str(tmp_path / "lake"))
    assert first[1:9] == ("records", topic.name, 0, 0, 33, "cluster-1", 0, 0)
    assert (second.start, second.end, second.rows) == (33, 100, 67)
    assert (third.earliest_ms, third.latest_ms) == (NOW_MS, NOW_MS + 2019)
    assert third.size == Path(third.location.path).stat().st_size
    assert files(tmp_path / "lake") == [
        Path(one.location.path).name for one in (first, second, third)
    ]


def test_batches_are_the_bytes_of_the_log_and_are_not_compressed_twice(
    broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    compressed, plain = made(caller), made(caller)
    end = compressed.write(4)
    plain.write(4, codec=0)
    archive = archive_of(broker, tmp_path / "raw", compressed, plain, shape="batches")
    ranges = [Range(topic.name, 0, 0, end) for topic in (compressed, plain)]
    results = Runs(archive).micro_batch(0, *ranges)
    assert [facts["records"] for facts in results] == [80, 80]
    for topic, codec in ((compressed, "UNCOMPRESSED"), (plain, "ZSTD")):
        path = tmp_path / "raw" / name_of(topic.name, 0, 0, end)
        table = pq.read_table(path, schema=BATCHES)
        assert table["batch"].to_pylist() == topic.stored()
        assert table["last_offset"].to_pylist() == [19, 39, 59, 79]
        group = pq.read_metadata(path).row_group(0)
        assert group.column(group.num_columns - 1).path_in_schema == "batch"
        assert group.column(group.num_columns - 1).compression == codec
        assert group.column(0).compression == "ZSTD"
    found = list_files(str(tmp_path / "raw"), topics=[plain.name])
    # A batch tells the time of its first record, not the least.
    assert [(one.earliest_ms, one.latest_ms) for one in found] == [(None, NOW_MS + 3019)]


def test_row_groups_are_bounded_and_tell_their_offsets_and_times(
    broker: BrokerProcess, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = topic.write(10)
    monkeypatch.setattr(parquet_writer, "ROW_GROUP_ROWS", 50)
    archive = archive_of(broker, tmp_path / "a", topic)
    # Fetches of a few batches, so that there is more than one to write.
    task = Runs(archive).start().task
    source = replaced(task.source, fetch_bytes=1024)
    facts = replaced(task, source=source).work(Range(topic.name, 0, 0, end), 0)
    path = tmp_path / "a" / "_staging" / "0" / next(iter(facts["files"].values()))
    footer = pq.read_metadata(path)
    assert footer.num_row_groups > 1
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    assert all(group.num_rows <= 200 for group in groups)
    columns = [groups[1].column(index) for index in range(groups[1].num_columns)]
    told = {one.path_in_schema: one.statistics for one in columns if one.is_stats_set}
    assert set(told) == {"topic", "partition", "offset", "timestamp"}
    assert told["offset"].min == groups[0].num_rows
    some = pq.read_table(path, filters=[("offset", ">=", 195)])
    assert some["offset"].to_pylist() == list(range(195, 200))


def test_a_range_without_a_record_is_a_file_of_no_rows(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = topic.write(2)
    topic.caller.delete_records(topic.name, end)
    topic.write(1)
    runs = Runs(archive_of(broker, tmp_path / "a", topic, on_gap="skip"))
    (facts, _) = runs.micro_batch(
        0, Range(topic.name, 0, 0, end), Range(topic.name, 0, end, end + 20)
    )
    assert (facts["records"], facts["offsets_missing"]) == (0, end)
    empty, full = list_files(str(tmp_path / "a"))
    assert (empty.rows, empty.start, empty.end, empty.missing) == (0, 0, end, end)
    assert (empty.earliest_ms, empty.latest_ms) == (None, None)
    assert (full.rows, full.missing) == (20, 0)
    assert pq.read_table(tmp_path / "a", schema=RECORDS_AND_HEADERS).num_rows == 20


@pytest.mark.parametrize("codec", ["snappy", "gzip", "lz4", "none"])
def test_other_codecs_of_parquet_are_read_back(
    codec: str, broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = topic.write(1)
    runs = Runs(archive_of(broker, tmp_path / "a", topic, codec=codec))
    runs.micro_batch(0, Range(topic.name, 0, 0, end))
    assert archived(tmp_path / "a") == topic.rows()


# Elsewhere


def test_a_file_system_that_is_not_the_machines_own_will_do(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = topic.write(4)
    remote = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    folder, state = Location(remote, "lake"), State(Location(remote, "state"))
    state.location.make()
    local = Runs(archive_of(broker, tmp_path / "other", topic)).start().task
    for batch_id, range_ in enumerate([Range(topic.name, 0, 0, 30), Range(topic.name, 0, 30, end)]):
        publication = Publication(folder, state)
        publication.finish()
        job = ArchiveJob(replaced(local, folder=folder), publication)
        job.commit(batch_id, [job.work(range_, batch_id)])
    assert archived(tmp_path / "lake") == topic.rows()
    assert [one.rows for one in map(describe, map(folder.under, files(tmp_path / "lake")))] == [
        30,
        end - 30,
    ]


def test_a_stopped_data_directory_is_archived_without_a_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as own:
        with Caller(own.host, own.port) as caller:
            topic = made(caller)
            end = topic.write(3)
            rows = topic.rows()
        own.stop()
    archive = Archive(str(tmp_path / "a"), path=str(tmp_path / "data"), topics=(topic.name,))
    with pytest.raises(errors.WrongUse, match="does not grow"):
        replaced(archive, every_s=1.0).check()
    facts = Runs(archive).micro_batch(0, Range(topic.name, 0, 0, end))
    assert [one["records"] for one in facts] == [end]
    assert archived(tmp_path / "a") == rows


def test_an_archive_that_is_a_delta_table_has_what_was_archived(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    from deltalake import DeltaTable, QueryBuilder

    end = topic.write(4)
    runs = Runs(archive_of(broker, tmp_path / "a", topic, table="delta"))
    for batch_id, range_ in enumerate([Range(topic.name, 0, 0, 30), Range(topic.name, 0, 30, end)]):
        runs.micro_batch(batch_id, range_)
        runs.micro_batch(batch_id, range_)
    query = QueryBuilder().register("t", DeltaTable(str(tmp_path / "a")))
    found = query.execute("select min(offset) a, max(offset) b, count(*) n from t").read_all()
    assert pa.table(found).to_pylist() == [{"a": 0, "b": end - 1, "n": end}]
    (found_again,) = contents(str(tmp_path / "a"))
    assert (found_again.start, found_again.end, found_again.rows) == (0, end, end)
    assert list_files(str(tmp_path / "a")) == []


# Before a JVM starts


def test_a_folder_or_state_of_something_else_is_refused(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = topic.write(1)
    folder = tmp_path / "a"
    archive = archive_of(broker, folder, topic)
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.odt").touch()
    with pytest.raises(errors.ForeignState, match=r"has other files in it \(thesis\.odt\)"):
        archive_of(broker, tmp_path / "papers", topic).check()
    runs = Runs(archive)
    runs.micro_batch(0, Range(topic.name, 0, 0, end))
    archive.check()
    with pytest.raises(errors.ForeignState, match="is of shape 'records', not of 'batches'"):
        archive_of(broker, folder, topic, shape="batches").check()
    elsewhere = str(tmp_path / "state")
    with pytest.raises(errors.ForeignState, match="is an archive already, and what is in"):
        archive_of(broker, folder, topic, state=elsewhere).check()
    with pytest.raises(errors.ForeignState, match="is of an archive that is not in"):
        archive_of(broker, tmp_path / "b", topic, state=str(folder / "_state")).check()
    (folder / "_state" / "checkpoint" / "offsets" / "0").unlink()
    with pytest.raises(errors.ForeignState, match="does not know micro-batch 0"):
        runs.start()
    owner = folder / "_archive.json"
    owner.write_text(owner.read_text().replace('"format": 1', '"format": 3'))
    with pytest.raises(errors.ForeignState, match="is an archive of format 3, and this version"):
        archive.check()
    owner.write_text("[1]")
    with pytest.raises(errors.ForeignState, match=r"_archive\.json is damaged"):
        archive.check()


def test_what_cannot_work_is_said_before_a_jvm_starts(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"topics": (topic.name + "x",)}, errors.NoSuchTopic, f"mean '{topic.name}'"),
        ({"topics": (), "pattern": "nothing.*"}, errors.NoSuchTopic, "no topic matches"),
        ({"topics": ()}, errors.WrongUse, "subscribe"),
        ({"servers": "127.0.0.1:1"}, errors.Unreachable, "127.0.0.1:1"),
        ({"to": str(tmp_path / "file")}, errors.Failure, "file"),
        ({"shape": "rows"}, errors.WrongUse, "no such shape: 'rows'"),
        ({"codec": "brotli9"}, errors.WrongUse, "no such codec of Parquet: 'brotli9'"),
        ({"level": 99}, errors.WrongUse, "zstd has levels from"),
        ({"codec": "snappy", "level": 1}, errors.WrongUse, "snappy has no levels"),
        ({"every_s": 0.0}, errors.WrongUse, "is no interval"),
        ({"table": "orc"}, errors.WrongUse, "no such table"),
        ({"on_gap": "ignore"}, errors.WrongUse, "onGap"),
    ]
    archive = archive_of(broker, tmp_path / "a", topic)
    for fields, kind, told in wrong:
        with pytest.raises(kind, match=told):
            replaced(archive, **fields).check()
    assert inside(tmp_path / "a") == []


# Reading an archive


def test_a_file_that_only_looks_like_one_of_an_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / name_of("orders", 0, 0, 10)
    path.write_bytes(b"PAR1")
    with pytest.raises(errors.CorruptData, match=r"orders-0-.* is no whole Parquet file"):
        list_files(str(tmp_path))
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(errors.CorruptData, match="was not made by archive"):
        list_files(str(tmp_path))
    told = archive_files.metadata(
        shape="records", topic="orders", partition=0, start=0, end=10, cluster=None, batch=0
    )
    newer = {key: value.replace(b'"format": 1', b'"format": 2') for key, value in told.items()}
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(newer), path)
    with pytest.raises(errors.CorruptData, match="is of archive format 2"):
        list_files(str(tmp_path))
    assert list_files(str(tmp_path / "nowhere")) == []
    with pytest.raises(errors.WrongUse, match=r"cannot list .*\.parquet: Not a directory; name"):
        list_files(str(path))
    assert locate(str(tmp_path)).is_local
