"""Tables that their own packages have maintained, between two runs of archive, and read back."""

from __future__ import annotations

import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from pipeline import cli, errors
from pipeline.archiving.archive_files import name_of
from pipeline.archiving.coverage import Coverage, Covered
from pipeline.archiving.reading import contents, rows_in_order
from pipeline.filesystem import locate
from pipeline.jobs.maintain import maintain
from pipeline.jobs.replay import Replay
from pipeline.reading.plan import Range
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.state import State
from pipeline.tables.table import Catalog
from tests.pipeline.archive_runs import Runs, Topic, archive_of, made, replaced
from tests.pipeline.mirroring import digest, stored
from tests.pipeline.test_replay import run, without_spark
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

KINDS = ("delta", "iceberg")


@pytest.fixture
def topic(broker: BrokerProcess) -> Iterator[Topic]:
    with Caller(broker.host, broker.port) as caller:
        yield made(caller, partitions=2)


def catalog_of(tmp_path: Path) -> Catalog:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    return Catalog("shop.orders", "tests", {"type": "sql", "uri": uri, "warehouse": str(tmp_path)})


def runs_of(kind: str, broker: BrokerProcess, tmp_path: Path, topic: Topic, **more: Any) -> Runs:
    catalog = catalog_of(tmp_path) if kind == "iceberg" else None
    return Runs(archive_of(broker, tmp_path / "lake", topic, table=kind, catalog=catalog, **more))


def opened(kind: str, tmp_path: Path) -> Any:
    """The table as its own package has it."""
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(str(tmp_path / "lake"))
    from pyiceberg.catalog import load_catalog

    catalog = catalog_of(tmp_path)
    return load_catalog(catalog.name, **catalog.options).load_table(catalog.identifier)


def compact(kind: str, tmp_path: Path) -> None:
    """All rows in other files, those of before gone."""
    table = opened(kind, tmp_path)
    if kind == "delta":
        table.optimize.compact()
        vacuum(tmp_path)
        return
    table.overwrite(table.scan().to_arrow())
    expire(tmp_path)


def order_by_time(kind: str, tmp_path: Path) -> None:
    table = opened(kind, tmp_path)
    if kind == "delta":
        table.optimize.z_order(["timestamp", "partition"])
        vacuum(tmp_path)
        return
    table.overwrite(table.scan().to_arrow().sort_by([("timestamp", "descending")]))
    expire(tmp_path)


def vacuum(tmp_path: Path) -> None:
    table = opened("delta", tmp_path)
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    table.create_checkpoint()
    for old in (tmp_path / "lake" / "_delta_log").glob("*.json"):
        # As a clean-up of the log does, after thirty days.
        if int(old.stem) < table.version():
            old.unlink()


def expire(tmp_path: Path) -> None:
    table = opened("iceberg", tmp_path)
    current = table.current_snapshot().snapshot_id
    old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != current]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    used = {task.file.file_path for task in opened("iceberg", tmp_path).scan().plan_files()}
    for file in (tmp_path / "lake" / "data").rglob("*.parquet"):
        if f"file://{file}" not in used:
            file.unlink()


def maintain_all(kind: str, tmp_path: Path) -> None:
    outcome = maintain(str(tmp_path / "lake"), keep_s=0)
    assert outcome.details["files put together"] > 1
    assert len(list((tmp_path / "lake" / "data").rglob("*.parquet"))) <= 1


MAINTENANCE = {"by maintain": maintain_all, "compacted": compact, "in another order": order_by_time}


def read_back(folder: Path, catalog: Catalog | None = None) -> list[tuple[Any, ...]]:
    """In the order that it is read in, in the form of `Topic.rows`."""
    found = []
    for file in contents(str(folder), catalog=catalog):
        columns = [name for name in RECORDS_AND_HEADERS.names if name != "timestampType"]
        for rows in rows_in_order(file, columns, 1000):
            found += [
                (
                    row["partition"],
                    row["offset"],
                    round(row["timestamp"].timestamp() * 1000),
                    row["key"],
                    row["value"],
                    [(one["key"], one["value"]) for one in row["headers"] or ()] or None,
                )
                for row in rows.to_pylist()
            ]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", MAINTENANCE)
def test_a_table_that_was_rewritten_takes_more_and_is_read_back_row_by_row(
    kind: str, how: str, broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    runs = runs_of(kind, broker, tmp_path, topic)
    ends = [topic.write(5, partition=0), topic.write(3, partition=1)]
    batches = [
        [Range(topic.name, 0, 0, 33), Range(topic.name, 1, 0, 20)],
        [Range(topic.name, 0, 33, ends[0]), Range(topic.name, 1, 20, ends[1])],
    ]
    for batch_id, ranges in enumerate(batches):
        runs.micro_batch(batch_id, *ranges)
    MAINTENANCE[how](kind, tmp_path)
    assert read_back(tmp_path / "lake") == topic.rows()
    # What was done before is not done again, whoever has lost the snapshots that told of it.
    for batch_id, ranges in enumerate(batches):
        runs.micro_batch(batch_id, *ranges)
    more = topic.write(2, partition=1)
    runs.micro_batch(2, Range(topic.name, 1, ends[1], more))
    MAINTENANCE[how](kind, tmp_path)
    assert read_back(tmp_path / "lake") == topic.rows()
    covered = [(file.partition, file.start, file.end) for file in contents(str(tmp_path / "lake"))]
    assert covered == [(0, 0, ends[0]), (1, 0, more)]


@pytest.mark.parametrize("kind", KINDS)
def test_maintain_tells_what_it_would_do_and_does_it_while_nobody_adds(
    kind: str,
    broker: BrokerProcess,
    topic: Topic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = runs_of(kind, broker, tmp_path, topic, partition_by="partition")
    ends = [topic.write(5, partition=0), topic.write(3, partition=1)]
    runs.micro_batch(0, Range(topic.name, 0, 0, 33), Range(topic.name, 1, 0, ends[1]))
    runs.micro_batch(1, Range(topic.name, 0, 33, ends[0]))
    lake = str(tmp_path / "lake")
    before = sorted(path for path in (tmp_path / "lake").rglob("*") if path.is_file())
    assert cli.main(["maintain", "--from", lake, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["event"], told["dry_run"]) == ("done", True)
    assert told["details"]["files put together"] >= 2
    assert sorted(path for path in (tmp_path / "lake").rglob("*") if path.is_file()) == before
    with contextlib.closing(State.open(f"{lake}/_state", runs.state.read("job") or {})):
        assert cli.main(["maintain", "--from", lake]) == 5
        assert "another run uses the state" in capsys.readouterr().err
    assert cli.main(["maintain", "--from", lake, "--quiet"]) == 0
    assert "maintain: 2 files put together" in capsys.readouterr().out
    assert read_back(tmp_path / "lake") == topic.rows()
    # What is younger than a week can still be read by those who began before.
    assert not [path for path in before if path.suffix == ".parquet" and not path.exists()]
    runs.micro_batch(1, Range(topic.name, 0, 33, ends[0]))
    assert cli.main(["maintain", "--from", lake, "--state", str(tmp_path / "other")]) == 5
    assert "is not the state of" in capsys.readouterr().err


def test_a_plain_archive_is_not_maintained(
    broker: BrokerProcess, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(archive_of(broker, tmp_path / "plain", topic))
    runs.micro_batch(0, Range(topic.name, 0, 0, topic.write(1)))
    assert cli.main(["maintain", "--from", str(tmp_path / "plain")]) == 2
    assert "only a table's are put together" in capsys.readouterr().err
    assert cli.main(["maintain", "--from", str(tmp_path / "nowhere")]) == 5
    assert "is no archive: it has no _archive.json" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_added_before_a_crash_is_not_missed_when_others_have_removed_the_files(
    kind: str,
    broker: BrokerProcess,
    topic: Topic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Crash(Exception):
        pass

    def crashing(*_: object) -> None:
        raise Crash

    runs = runs_of(kind, broker, tmp_path, topic)
    end = topic.write(4)
    runs.micro_batch(0, Range(topic.name, 0, 0, 30))
    with monkeypatch.context() as patch:
        patch.setattr(Coverage, "add", crashing)
        with pytest.raises(Crash):
            runs.micro_batch(1, Range(topic.name, 0, 30, end))
    # In the table, and not yet covered: it is not read back until the next run says that it is.
    assert read_back(tmp_path / "lake") == topic.rows()[:30]
    compact(kind, tmp_path)
    assert not list((tmp_path / "lake" / "data").rglob(name_of(topic.name, 0, 30, end)))
    runs.start()
    assert read_back(tmp_path / "lake") == topic.rows()


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_of_a_rewritten_table_is_exact_also_when_it_is_killed_and_rewritten_again(
    kind: str,
    broker: BrokerProcess,
    topic: Topic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.archiving.stretches.STRETCH_ROWS", 500)
    monkeypatch.setattr("pipeline.archiving.stretches.CELL", 64)
    monkeypatch.setattr("pipeline.jobs.replay_turns.PIECE_BYTES", 1)
    runs = runs_of(kind, broker, tmp_path, topic)
    ends = [topic.write(100, partition=0), topic.write(10, partition=1)]
    runs.micro_batch(0, Range(topic.name, 0, 0, 700), Range(topic.name, 1, 0, ends[1]))
    runs.micro_batch(1, Range(topic.name, 0, 700, ends[0]))
    compact(kind, tmp_path)
    job = Replay(str(tmp_path / "lake"), broker.bootstrap, rename="{topic}-again")
    without_spark(monkeypatch, killed_after=2)
    with pytest.raises(BaseException, match=r"^$"):
        run(job)
    order_by_time(kind, tmp_path)
    runs.micro_batch(2, Range(topic.name, 0, ends[0], topic.write(5)))
    monkeypatch.setattr("pipeline.archiving.stretches.STRETCH_ROWS", 300)
    without_spark(monkeypatch)
    run(job)
    for partition in range(2):
        copy = stored(broker.bootstrap, f"{topic.name}-again", partition)
        assert digest(copy) == digest(stored(broker.bootstrap, topic.name, partition))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_come_back_as_the_bytes_of_the_log_from_a_rewritten_table(
    kind: str,
    broker: BrokerProcess,
    topic: Topic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = runs_of(kind, broker, tmp_path, topic, shape="batches")
    end = topic.write(6)
    runs.micro_batch(0, Range(topic.name, 0, 0, 50))
    runs.micro_batch(1, Range(topic.name, 0, 50, end))
    compact(kind, tmp_path)
    without_spark(monkeypatch)
    run(Replay(str(tmp_path / "lake"), broker.bootstrap, rename="{topic}-again"))
    copy = stored(broker.bootstrap, f"{topic.name}-again")
    assert [entry[16:] for entry in copy] == [entry[16:] for entry in topic.stored()]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_were_deleted_in_a_table_are_not_replayed_and_rows_added_twice_are_refused(
    kind: str, broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    from deltalake import write_deltalake

    runs = runs_of(kind, broker, tmp_path, topic)
    runs.micro_batch(0, Range(topic.name, 0, 0, topic.write(3)))
    table = opened(kind, tmp_path)
    some = table.to_pyarrow_table() if kind == "delta" else table.scan().to_arrow()
    table.delete('"offset" < 20' if kind == "delta" else "offset < 20")
    assert read_back(tmp_path / "lake") == topic.rows()[20:]
    (file,) = contents(str(tmp_path / "lake"))
    assert (file.start, file.end) == (0, 60)
    if kind == "delta":
        write_deltalake(str(tmp_path / "lake"), some.slice(30, 5), mode="append")
    else:
        opened(kind, tmp_path).append(some.slice(30, 5))
    with pytest.raises(errors.CorruptData, match=rf"offset 30 of {topic.name}-0 more than once"):
        read_back(tmp_path / "lake")


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_without_a_record_are_known_when_every_file_was_rewritten(
    kind: str, broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = topic.write(2)
    topic.caller.delete_records(topic.name, end)
    more = topic.write(1)
    runs = runs_of(kind, broker, tmp_path, topic, on_gap="skip")
    runs.micro_batch(0, Range(topic.name, 0, 0, end), Range(topic.name, 0, end, more))
    compact(kind, tmp_path)
    found = [(file.start, file.end, file.missing) for file in contents(str(tmp_path / "lake"))]
    assert found == [(0, end, end), (end, more, 0)]


def test_an_archive_of_before_is_read_and_added_to(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = topic.write(5)
    runs = runs_of("delta", broker, tmp_path, topic)
    earlier(runs, broker, topic, 60, tmp_path)
    # Its files tell what it covers while it has them, and so do its rows when it has not.
    assert read_back(tmp_path / "lake") == topic.rows()[:60]
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    for folder in ("lake", "copy"):
        runs.archive = replaced(runs.archive, to=str(tmp_path / folder))
        runs.folder = tmp_path / folder
        if folder == "copy":
            from deltalake import DeltaTable

            DeltaTable(str(runs.folder)).optimize.compact()
        runs.micro_batch(1, Range(topic.name, 0, 60, end))
        assert read_back(runs.folder) == topic.rows()
        assert json.loads((runs.folder / "_archive.json").read_text())["format"] == 2
        assert [one[2:] for one in Coverage.read(locate(str(runs.folder))) or ()] == [(0, end, 0)]


def earlier(runs: Runs, broker: BrokerProcess, topic: Topic, end: int, tmp_path: Path) -> None:
    """A micro-batch as the first version left it: files beside the table's log, no coverage."""
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

    lake = tmp_path / "lake"
    plain = Runs(archive_of(broker, tmp_path / "plain", topic))
    plain.micro_batch(0, Range(topic.name, 0, 0, end))
    name = name_of(topic.name, 0, 0, end)
    runs.start()
    shutil.rmtree(lake / "_delta_log")
    (lake / "_coverage.json").unlink()
    shutil.copy(tmp_path / "plain" / name, lake / name)
    shutil.copytree(tmp_path / "plain" / "_state" / "checkpoint", lake / "_state" / "checkpoint")
    owner = json.loads((lake / "_archive.json").read_text())
    (lake / "_archive.json").write_text(json.dumps({**owner, "format": 1}))
    (lake / "_state" / "published.json").write_text('{"batch": 0, "done": true, "files": {}}')
    table = DeltaTable.create(str(lake), RECORDS_AND_HEADERS)
    size = (lake / name).stat().st_size
    action = AddAction(name, size, {}, 0, True, json.dumps({"numRecords": end}))
    from deltalake import CommitProperties, Transaction

    table.create_write_transaction(
        [action],
        "append",
        RECORDS_AND_HEADERS,
        commit_properties=CommitProperties(app_transactions=[Transaction(owner["state"], 0)]),
    )
    assert pq.read_metadata(lake / name).num_rows == end


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_or_catalog_that_is_gone_is_one_line(
    kind: str, broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    runs = runs_of(kind, broker, tmp_path, topic)
    runs.micro_batch(0, Range(topic.name, 0, 0, topic.write(1)))
    lake = tmp_path / "lake"
    if kind == "delta":
        shutil.rmtree(lake / "_delta_log")
    else:
        nowhere = replaced(catalog_of(tmp_path), options={"type": "sql", "uri": "sqlite:////no/c"})
        with pytest.raises(errors.Refused, match=r"cannot open the Iceberg table shop\.orders: "):
            contents(str(lake), catalog=nowhere)
        (tmp_path / "catalog.db").unlink()
    with pytest.raises(errors.ForeignState, match="which is gone: "):
        contents(str(lake))
    with pytest.raises(errors.ForeignState, match="which is gone: "):
        runs.start()


def test_neighbours_are_one_range_and_gaps_stay(tmp_path: Path) -> None:
    coverage = Coverage(locate(str(tmp_path)), "c", -1, ())
    coverage.add(0, [Covered("a", 0, 0, 10), Covered("a", 1, 5, 9)])
    coverage.add(1, [Covered("a", 0, 10, 20), Covered("a", 0, 20, 30, 3)])
    coverage.add(1, [Covered("a", 0, 99, 100)])
    coverage.add(2, [Covered("a", 0, 30, 40), Covered("a", 1, 12, 14), Covered("a", 0, 40, 41)])
    read = Coverage.read(locate(str(tmp_path)))
    assert read is not None
    assert (read.batch, read.cluster) == (2, "c")
    assert list(read) == [
        Covered("a", 0, 0, 20),
        Covered("a", 0, 20, 30, 3),
        Covered("a", 0, 30, 41),
        Covered("a", 1, 5, 9),
        Covered("a", 1, 12, 14),
    ]
    assert read.ends() == {("a", 0): 41, ("a", 1): 14}
    (tmp_path / "_coverage.json").write_text('{"format": 1}')
    with pytest.raises(errors.ForeignState, match=r"_coverage\.json is damaged: KeyError"):
        Coverage.read(locate(str(tmp_path)))
    (tmp_path / "_coverage.json").write_text('{"format": 9}')
    with pytest.raises(errors.ForeignState, match="of format 9, and this version reads format 1"):
        Coverage.read(locate(str(tmp_path)))
