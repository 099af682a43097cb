"""Delta and Iceberg: the archive's Parquet files, listed in a table's own log of changes.

Both are written from Python alone, by `deltalake` and `pyiceberg`, which need no JVM and are only
imported when asked for. The files lie in the table's folder under the names that an archive gives
them; a micro-batch is one transaction, and what it was is noted in it, so that doing it again adds
nothing: an application transaction in Delta, properties of the snapshot in Iceberg.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import pyarrow.parquet as pq

from pipeline.archiving.archive_files import names_in
from pipeline.errors import ForeignState, NotInstalled, Refused, WrongUse
from pipeline.filesystem import sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from deltalake.transaction import RemoveAction

    from pipeline.filesystem import Location

KINDS = ("parquet", "delta", "iceberg")
PACKAGES = {"delta": ("deltalake", "deltalake"), "iceberg": ("pyiceberg", "pyiceberg[pyarrow]")}
"""What has to be importable, and what to install for it."""

MISREAD = "#%?"
"""What a URI escapes: one package does not undo it, the other does so twice."""

OURS = "triglot.state"
BATCH = "triglot.batch"
_IDENTIFIER = re.compile(r"[^.]+(\.[^.]+)+")


class Table(Protocol):
    """A table that a micro-batch's files are added to."""

    def add(self, batch_id: int, files: Sequence[Location]) -> None:
        """Add files that are in place. Does nothing if this micro-batch was added before.

        Afterwards the change is on the disk. Raises Refused.
        """


@dataclass(frozen=True)
class Catalog:
    """An Iceberg table, and the catalog in which it is registered."""

    identifier: str
    """namespace.table"""
    name: str = "default"
    """A catalog of PyIceberg's configuration file or environment, if `options` do not tell all."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What PyIceberg is to know of it: {"type": "sql", "uri": "sqlite:///catalog.db", ...}"""


def check_kind(kind: str, catalog: Catalog | None) -> None:
    """Raises WrongUse for arguments that contradict each other, NotInstalled."""
    if kind not in KINDS:
        raise WrongUse(f"no such table: {kind!r}; known are {', '.join(KINDS)}")
    if kind == "iceberg" and catalog is None:
        raise WrongUse("an Iceberg table needs a name: --name NAMESPACE.TABLE, and a catalog")
    if kind != "iceberg" and catalog is not None:
        raise WrongUse(f"only an Iceberg table is in a catalog, and this is {kind}: leave it out")
    if catalog is not None and not _IDENTIFIER.fullmatch(catalog.identifier):
        raise WrongUse(f"{catalog.identifier!r} is no table's name: give NAMESPACE.TABLE")
    if kind in PACKAGES:
        package, wanted = PACKAGES[kind]
        if importlib.util.find_spec(package) is None:
            raise NotInstalled(f"{kind} tables need the package {package}: pip install '{wanted}'")


def open_table(
    kind: str, folder: Location, schema: pa.Schema, *, state_id: str, catalog: Catalog | None = None
) -> Table | None:
    """The table in a folder, made if it is not there; None for plain Parquet, which needs none.

    Raises NotInstalled, WrongUse, ForeignState (the catalog has the name for another folder, or
    there are files of a table that is gone), Refused.
    """
    check_kind(kind, catalog)
    if kind != "parquet" and folder.is_local and set(folder.path) & set(MISREAD):
        raise WrongUse(
            f"the packages for Delta and Iceberg misread {', '.join(MISREAD)} in a path: give "
            f"{folder.path} another name"
        )
    if kind == "delta":
        return Delta(folder, schema, state_id)
    if catalog is not None:
        return Iceberg(folder, schema, state_id, catalog)
    return None


class Delta:
    """A Delta table. Its log is `_delta_log` in the folder; there is no catalog."""

    def __init__(self, folder: Location, schema: pa.Schema, state_id: str) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        self._schema = schema
        self._state_id = state_id
        self._folder = folder
        self._kept: frozenset[str] = frozenset()
        try:
            if not DeltaTable.is_deltatable(folder.uri):
                _expect_no_files(folder, "Delta table")
            self._table = DeltaTable.create(folder.uri, schema, mode="ignore")
        except (DeltaError, OSError) as failure:
            raise Refused(f"cannot make a Delta table in {folder.path}: {failure}") from None
        self._expect_columns()

    def add(self, batch_id: int, files: Sequence[Location]) -> None:
        """As Table has it. Raises Refused."""
        from deltalake.exceptions import DeltaError

        try:
            self._table.update_incremental()
            self._expect_columns()
            last = self._table.transaction_version(self._state_id)
            if last is None or last < batch_id:
                self._commit(batch_id, files)
            self._kept = _keep(self._folder.under("_delta_log"), self._kept)
        except (DeltaError, OSError) as failure:
            raise Refused(
                f"the Delta table in {self._folder.path} does not take micro-batch {batch_id}: "
                f"{failure}"
            ) from None

    def _commit(self, batch_id: int, files: Sequence[Location]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        actions: list[AddAction | RemoveAction] = []
        for file in files:
            info = file.filesystem.get_file_info(file.path)
            actions.append(
                AddAction(
                    path=quote(file.path.rpartition("/")[2]),
                    size=info.size,
                    partition_values={},
                    modification_time=int((info.mtime_ns or 0) // 1_000_000),
                    data_change=True,
                    stats=json.dumps(_delta_statistics(_footer(file))),
                )
            )
        self._table.create_write_transaction(
            actions,
            "append",
            self._schema,
            commit_properties=CommitProperties(
                custom_metadata={OURS: self._state_id, BATCH: str(batch_id)},
                app_transactions=[Transaction(self._state_id, batch_id)],
            ),
        )

    def _expect_columns(self) -> None:
        """Delta itself would list files that its readers find nothing in."""
        there = {column.name for column in self._table.schema().fields}
        for name in self._schema.names:
            if name not in there:
                raise Refused(
                    f"the Delta table in {self._folder.path} has no column '{name}' any more: "
                    "restore it, or archive to another folder, with another state"
                )


class Iceberg:
    """An Iceberg table in a catalog. Its metadata lies in `metadata` in the folder."""

    def __init__(
        self, folder: Location, schema: pa.Schema, state_id: str, catalog: Catalog
    ) -> None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        self._state_id = state_id
        self._metadata = folder.under("metadata")
        self._kept: frozenset[str] = frozenset()
        self._identifier = catalog.identifier
        namespace = catalog.identifier.rpartition(".")[0]
        try:
            known = load_catalog(catalog.name, **catalog.options)
            known.create_namespace_if_not_exists(namespace)
            try:
                self._table = known.load_table(catalog.identifier)
            except NoSuchTableError:
                _expect_no_files(folder, f"Iceberg table {self._identifier}")
                self._table = known.create_table(
                    catalog.identifier, schema, location=_plain(folder)
                )
        except ForeignState:
            raise
        except Exception as failure:
            raise Refused(f"cannot make the Iceberg table {self._identifier}: {failure}") from None
        if self._table.location().rstrip("/") != _plain(folder):
            raise ForeignState(
                f"the Iceberg table {self._identifier} is in {self._table.location()}, not in "
                f"{_plain(folder)}: give it another name, or archive to its folder"
            )

    def add(self, batch_id: int, files: Sequence[Location]) -> None:
        """As Table has it. Raises Refused."""
        try:
            self._table.refresh()
            if not any(self._is_of(snapshot, batch_id) for snapshot in self._table.snapshots()):
                with _without_warnings("pyiceberg.io.pyarrow"):
                    self._table.add_files(
                        [_plain(file) for file in files],
                        snapshot_properties={OURS: self._state_id, BATCH: str(batch_id)},
                        # They are new by the name: looking it up would read every manifest.
                        check_duplicate_files=False,
                    )
            self._kept = _keep(self._metadata, self._kept)
        except Exception as failure:
            raise Refused(
                f"the Iceberg table {self._identifier} does not take micro-batch {batch_id}: "
                f"{failure}"
            ) from None

    def _is_of(self, snapshot: Any, batch_id: int) -> bool:
        told = snapshot.summary.additional_properties if snapshot.summary else {}
        return told.get(OURS) == self._state_id and told.get(BATCH) == str(batch_id)


@contextlib.contextmanager
def _without_warnings(name: str) -> Iterator[None]:
    """PyIceberg warns of each column of each file that is without statistics, as ours are meant."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _keep(log: Location, kept: frozenset[str]) -> frozenset[str]:
    """Bring the files of a table's log to the disk, which the packages leave to the system, but for
    those that are `kept` already; all that are there now."""
    if not log.is_local or not log.exists():
        return kept
    names = frozenset(file.name for file in Path(log.path).iterdir())
    for name in names - kept:
        # Others clear away old ones.
        with contextlib.suppress(FileNotFoundError):
            sync(log.under(name).path)
    sync(log.path)
    return names


def _expect_no_files(folder: Location, table: str) -> None:
    """A table that is made anew would have what comes now, and nothing of what is there."""
    if names_in(folder):
        raise ForeignState(
            f"{folder.path} has files of the {table}, which is gone: restore it, or archive to "
            "another folder, with another state"
        )


def _plain(location: Location) -> str:
    """As Iceberg names places: with a scheme, but nothing is escaped."""
    return f"file://{location.path}" if location.is_local else location.uri


def _footer(file: Location) -> pq.FileMetaData:
    return pq.read_metadata(file.path, filesystem=file.filesystem)


def _delta_statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """Rows, and the least and greatest of each number and time that has statistics."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    beyond: set[str] = set()
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        for at in range(group.num_columns):
            column = group.column(at)
            name = column.path_in_schema
            statistics = column.statistics if column.is_stats_set else None
            if statistics is None or not statistics.has_min_max:
                continue
            try:
                low, high = _delta_value(statistics.min), _delta_value(statistics.max)
            except (OverflowError, ValueError):  # a time after the year 9999
                beyond.add(name)
                continue
            least[name] = min(least.get(name, low), low)
            greatest[name] = max(greatest.get(name, high), high)
    for name in beyond:
        least.pop(name, None)
        greatest.pop(name, None)
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest}


def _delta_value(value: Any) -> Any:
    """As JSON has it: times in ISO 8601, of milliseconds, which is all that Kafka's have."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
