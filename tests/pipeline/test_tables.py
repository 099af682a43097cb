"""Delta and Iceberg tables of an archive's files: each micro-batch in them once, read back."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pipeline.archiving import archive_files
from pipeline.archiving.archive_files import STAGING
from pipeline.archiving.parquet_writer import SCHEMAS, ArchiveWriter, Compression
from pipeline.archiving.publication import Publication
from pipeline.errors import ForeignState, NotInstalled, Refused, WrongUse
from pipeline.filesystem import locate
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.state import State
from pipeline.tables import table as tables
from pipeline.tables.added import added
from pipeline.tables.opening import make_table
from pipeline.tables.table import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 50


def rows_of(start: int, end: int) -> pa.RecordBatch:
    """Records as decoding gives them: a null value and headers among them, times in UTC."""
    rows = [
        {
            "key": b"k%d" % offset,
            "value": None if offset % 7 == 0 else b"value %d" % offset,
            "topic": "orders",
            "partition": 3,
            "offset": offset,
            "timestamp": 1_700_000_000_000_000 + offset * 1_000_000,
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"\x00\xff"}] if offset % 5 == 0 else None,
        }
        for offset in range(start, end)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORDS_AND_HEADERS)


def stage(
    folder: Path, batch_id: int, start: int, end: int, *, rows: bool = True
) -> dict[str, str]:
    """A file as a task leaves it; its name and what it is staged as."""
    name = archive_files.name_of("orders", 3, start, end)
    staging = folder / STAGING / str(batch_id)
    staging.mkdir(parents=True, exist_ok=True)
    with (staging / f"{name}.1").open("wb") as stream:
        writer = ArchiveWriter(stream, "records", Compression())
        if rows:
            writer.add(rows_of(start, end))
        writer.close(
            archive_files.metadata(
                shape="records",
                topic="orders",
                partition=3,
                start=start,
                end=end,
                cluster=None,
                batch=batch_id,
            )
        )
    return {name: f"{name}.1"}


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    opened = State.open(str(tmp_path / "state"), {"job": "archive"})
    yield opened
    opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "lake with space"
    made.mkdir()
    return made


def catalog_of(tmp_path: Path) -> Catalog:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    return Catalog("shop.orders", "tests", {"type": "sql", "uri": uri, "warehouse": str(tmp_path)})


def archive_some(publication: Publication, folder: Path, batches: int) -> None:
    for batch_id in range(batches):
        start = batch_id * ROWS
        publication.publish(batch_id, stage(folder, batch_id, start, start + ROWS))


def read_delta(folder: Path) -> pa.Table:
    from deltalake import DeltaTable

    table = DeltaTable(str(folder))
    # Not by its own reader, which makes a scan in threads of Rust: by the files that it lists.
    files = [folder / name for name in table.get_add_actions()["path"].to_pylist()]
    return pa.concat_tables(
        [pa.parquet.read_table(file, partitioning=None) for file in files]
    ).sort_by("offset")


def test_a_delta_table_has_each_micro_batch_once_however_often_it_is_added(
    folder: Path, state: State
) -> None:
    from deltalake import DeltaTable

    table = make_table("delta", locate(str(folder)), SCHEMAS["records"], state_id="s1")
    assert table is not None
    archive_some(Publication(locate(str(folder)), state, table), folder, 3)
    again = make_table("delta", locate(str(folder)), SCHEMAS["records"], state_id="s1")
    assert again is not None
    for batch_id in (0, 2, 2):
        name = archive_files.name_of("orders", 3, batch_id * ROWS, (batch_id + 1) * ROWS)
        again.add(batch_id, added([locate(str(folder)).under(name)], {}))
    read = DeltaTable(str(folder))
    assert read.version() == 3
    assert read.transaction_version("s1") == 2
    actions = pa.table(read.get_add_actions(flatten=True))
    assert actions["num_records"].to_pylist() == [ROWS] * 3
    assert sorted(actions["min.offset"].to_pylist()) == [0, ROWS, 2 * ROWS]
    assert sorted(actions["max.offset"].to_pylist()) == [ROWS - 1, 2 * ROWS - 1, 3 * ROWS - 1]
    names = [folder / name for name in actions["path"].to_pylist()]
    assert sorted(names) == sorted(folder.glob("*.parquet"))


def test_a_delta_table_is_read_back_by_its_own_reader(folder: Path, state: State) -> None:
    from deltalake import DeltaTable, QueryBuilder

    table = make_table("delta", locate(str(folder)), SCHEMAS["records"], state_id="s1")
    archive_some(Publication(locate(str(folder)), state, table), folder, 2)
    query = QueryBuilder().register("t", DeltaTable(str(folder)))
    found = pa.table(query.execute("select * from t order by offset").read_all())
    assert as_rows(found) == rows_of(0, 2 * ROWS).to_pylist()
    late = query.execute("select count(*) n from t where timestamp >= '2023-11-14T22:14:20Z'")
    assert pa.table(late.read_all())["n"].to_pylist() == [ROWS - 10]


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]]
    rows = table.select(RECORDS_AND_HEADERS.names).cast(RECORDS_AND_HEADERS).to_pylist()
    return rows


def test_an_iceberg_table_has_each_micro_batch_once_and_is_read_back(
    folder: Path, state: State, tmp_path: Path
) -> None:
    def opened() -> Any:
        return make_table(
            "iceberg",
            locate(str(folder)),
            SCHEMAS["records"],
            state_id="s1",
            catalog=catalog_of(tmp_path),
        )

    archive_some(Publication(locate(str(folder)), state, opened()), folder, 3)
    again = opened()
    for batch_id in (0, 2):
        name = archive_files.name_of("orders", 3, batch_id * ROWS, (batch_id + 1) * ROWS)
        again.add(batch_id, added([locate(str(folder)).under(name)], {}))
    from pyiceberg.catalog import load_catalog

    catalog = catalog_of(tmp_path)
    read = load_catalog(catalog.name, **catalog.options).load_table("shop.orders")
    assert len(read.snapshots()) == 3
    found = as_rows(read.scan().to_arrow().sort_by("offset"))
    # Its own reader knows no null in place of a list.
    wanted = [{**row, "headers": row["headers"] or []} for row in rows_of(0, 3 * ROWS).to_pylist()]
    assert found == wanted
    some = read.scan(row_filter="timestamp >= '2023-11-14T22:14:20+00:00'").to_arrow()
    assert sorted(some["offset"].to_pylist()) == list(range(60, 3 * ROWS))


def test_an_iceberg_name_that_is_a_table_elsewhere_is_refused(folder: Path, tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path)
    schema = SCHEMAS["records"]
    make_table("iceberg", locate(str(folder)), schema, state_id="a", catalog=catalog)
    with pytest.raises(ForeignState, match=r"shop\.orders is in file:.*, not in file:.*other"):
        make_table(
            "iceberg", locate(str(tmp_path / "other")), schema, state_id="b", catalog=catalog
        )


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_crash_between_the_files_and_the_table_is_made_good_by_the_next_run(
    kind: str, folder: Path, state: State, tmp_path: Path
) -> None:
    catalog = catalog_of(tmp_path) if kind == "iceberg" else None
    where = locate(str(folder))

    def opened() -> Any:
        return make_table(kind, where, SCHEMAS["records"], state_id="s1", catalog=catalog)

    class Crash(Exception):
        pass

    class Crashing:
        def __init__(self, table: Any, after: bool) -> None:
            self.table, self.after = table, after
            self.has, self.version, self.maintain = table.has, table.version, table.maintain

        def add(self, batch_id: int, files: Any) -> None:
            if self.after:
                self.table.add(batch_id, files)
            raise Crash

    for batch_id, after in enumerate((False, True)):
        files = stage(folder, batch_id, batch_id * ROWS, (batch_id + 1) * ROWS)
        with pytest.raises(Crash):
            Publication(where, state, Crashing(opened(), after)).publish(batch_id, files)
        publication = Publication(where, state, opened())
        publication.finish()
        assert publication.last == batch_id
        publication.publish(batch_id, stage(folder, batch_id, batch_id * ROWS, 9999))
    assert not (folder / STAGING).exists() or not any((folder / STAGING).iterdir())
    if kind == "delta":
        found = read_delta(folder)
    else:
        found = opened()._table.scan().to_arrow().sort_by("offset")
    assert found["offset"].to_pylist() == list(range(2 * ROWS))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_tables_log_is_on_the_disk_before_the_state_says_that_it_is_done(
    kind: str, folder: Path, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_of(tmp_path) if kind == "iceberg" else None
    where = locate(str(folder))
    log = folder / ("_delta_log" if catalog is None else "metadata")
    table = make_table(kind, where, SCHEMAS["records"], state_id="s1", catalog=catalog)
    synced: list[str] = []
    monkeypatch.setattr("pipeline.tables.durable.sync", synced.append)
    publication = Publication(where, state, table)
    before: set[Path] = set()
    for batch_id in range(2):
        publication.publish(batch_id, stage(folder, batch_id, batch_id * ROWS, batch_id * ROWS + 9))
        there = set(log.iterdir())
        assert set(synced) == {str(path) for path in (there - before) | {log}}
        assert there > before
        before = there
        synced.clear()
    # One that was added by a run that was cut off then may not be there to stay.
    again = make_table(kind, where, SCHEMAS["records"], state_id="s1", catalog=catalog)
    assert again is not None
    again.add(1, [])
    assert {str(path) for path in before} < set(synced)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_that_is_gone_is_not_made_anew_without_its_files(
    kind: str, folder: Path, state: State, tmp_path: Path
) -> None:
    where = locate(str(folder))
    catalog = catalog_of(tmp_path) if kind == "iceberg" else None

    def opened(expected: bool = True) -> Any:
        return make_table(
            kind, where, SCHEMAS["records"], state_id="s1", catalog=catalog, expected=expected
        )

    archive_some(Publication(where, state, opened(expected=False)), folder, 1)
    if catalog is None:
        shutil.rmtree(folder / "_delta_log")
    else:
        from pyiceberg.catalog import load_catalog

        load_catalog(catalog.name, **catalog.options).drop_table(catalog.identifier)
    with pytest.raises(ForeignState, match=r"is the archive of .* table.*, which is gone"):
        opened()


def test_a_delta_table_that_others_have_given_other_columns_takes_no_more(
    folder: Path, state: State
) -> None:
    from deltalake import DeltaTable, Field, write_deltalake
    from deltalake.schema import PrimitiveType

    where = locate(str(folder))
    table = make_table("delta", where, SCHEMAS["records"], state_id="s1")
    publication = Publication(where, state, table)
    archive_some(publication, folder, 1)
    # One more does no harm.
    DeltaTable(str(folder)).alter.add_columns([Field("note", PrimitiveType("string"))])
    publication.publish(1, stage(folder, 1, ROWS, 2 * ROWS))
    assert DeltaTable(str(folder)).schema().fields[-1].name == "note"
    write_deltalake(folder, pa.table({"x": [1]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(Refused, match="has no column 'key' any more"):
        publication.publish(2, stage(folder, 2, 2 * ROWS, 3 * ROWS))
    with pytest.raises(Refused, match="has no column 'key' any more"):
        make_table("delta", where, SCHEMAS["records"], state_id="s1")


def test_ranges_without_a_record_are_files_of_no_rows_in_both(
    folder: Path, state: State, tmp_path: Path
) -> None:
    for kind in ("delta", "iceberg"):
        place = folder / kind
        place.mkdir()
        catalog = catalog_of(tmp_path) if kind == "iceberg" else None
        where = locate(str(place))
        table = make_table(kind, where, SCHEMAS["records"], state_id=kind, catalog=catalog)
        assert table is not None
        files = stage(place, 0, 0, ROWS) | stage(place, 0, ROWS, 2 * ROWS, rows=False)
        for name, staged in files.items():
            (place / STAGING / "0" / staged).rename(place / name)
        table.add(0, added([where.under(name) for name in files], {}))
        if kind == "delta":
            assert read_delta(place).num_rows == ROWS
        else:
            assert table._table.scan().to_arrow().num_rows == ROWS  # type: ignore[attr-defined]


def test_batches_fit_into_both(folder: Path, tmp_path: Path) -> None:
    schema = SCHEMAS["batches"]
    where = locate(str(folder))
    make_table("delta", where, schema, state_id="s")
    make_table("iceberg", where, schema, state_id="s", catalog=catalog_of(tmp_path))


def test_what_a_table_needs_is_said_before_anything_is_done(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_of(tmp_path)
    with pytest.raises(WrongUse, match="no such table: 'orc'"):
        tables.check_kind("orc", None)
    with pytest.raises(WrongUse, match=r"needs a name: --name NAMESPACE\.TABLE"):
        tables.check_kind("iceberg", None)
    with pytest.raises(WrongUse, match="only an Iceberg table is in a catalog"):
        tables.check_kind("delta", catalog)
    with pytest.raises(WrongUse, match=r"'orders' is no table's name: give NAMESPACE\.TABLE"):
        tables.check_kind("iceberg", Catalog("orders"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match="need the package deltalake: pip install 'deltalake'"):
        tables.check_kind("delta", None)
    with pytest.raises(NotInstalled, match="need the package pyiceberg: pip install 'pyiceberg"):
        tables.check_kind("iceberg", catalog)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_folder_whose_name_the_packages_misread_is_refused(kind: str, tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path) if kind == "iceberg" else None
    for name in ("100%25", "no#1", "what?"):
        where = locate(str(tmp_path)).under(name)
        with pytest.raises(WrongUse, match=r"misread #, %, \? in a path"):
            make_table(kind, where, SCHEMAS["records"], state_id="s", catalog=catalog)
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_that_does_not_answer_is_one_line(folder: Path) -> None:
    catalog = Catalog("shop.orders", "tests", {"type": "sql", "uri": "sqlite:////nowhere/c.db"})
    with pytest.raises(Refused, match=r"cannot make the Iceberg table shop\.orders: "):
        make_table(
            "iceberg", locate(str(folder)), SCHEMAS["records"], state_id="s", catalog=catalog
        )
