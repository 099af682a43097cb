"""Iceberg: a table in a catalog, by the package `pyiceberg`, which needs no JVM.

Its metadata lies in `metadata` in the folder, and the catalog knows which of it is in force. The
number of the last micro-batch is a property of the table, as expiry takes those of snapshots. A
table of an archive that was begun before has it in its snapshots, until the next one is added.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.errors import CorruptData, Failure, ForeignState, Refused
from pipeline.filesystem import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, s3_endpoint
from pipeline.tables.durable import keep
from pipeline.tables.iceberg_append import append_files
from pipeline.tables.iceberg_upkeep import maintain
from pipeline.tables.table import BATCH, STATE, DataFile, Stretch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    import pyarrow as pa
    from pyiceberg.table import Table as IcebergTable

    from pipeline.filesystem import Location
    from pipeline.tables.added import AddedFile
    from pipeline.tables.table import Catalog, Partitioning
    from pipeline.tables.upkeep import Done, Upkeep

TRIES = 5
"""Of a commit, where somebody else's came first."""


class Iceberg:
    """As pipeline.tables.table.Table has it."""

    def __init__(
        self, table: IcebergTable, folder: Location, state_id: str, identifier: str
    ) -> None:
        self._table = table
        self._folder = folder
        self._metadata = folder.under("metadata")
        self._state_id = state_id
        self._identifier = identifier
        self._kept: frozenset[str] = frozenset()
        if table.location().rstrip("/") != plain(folder):
            raise ForeignState(
                f"the Iceberg table {identifier} is in {table.location()}, not in "
                f"{plain(folder)}: give it another name, or archive to its folder"
            )

    @classmethod
    def make(
        cls,
        folder: Location,
        schema: pa.Schema,
        state_id: str,
        catalog: Catalog,
        partitioning: Partitioning | None = None,
        *,
        expected: bool,
    ) -> Self:
        """The table, made if it is not there, unless it is `expected` to be. Raises ForeignState,
        Refused."""
        from pyiceberg.exceptions import NoSuchTableError

        with _refusing(f"cannot make the Iceberg table {catalog.identifier}"):
            known = _loaded(catalog)
            known.create_namespace_if_not_exists(catalog.identifier.rpartition(".")[0])
            try:
                table = known.load_table(catalog.identifier)
            except NoSuchTableError:
                if expected:
                    raise _gone(folder, catalog) from None
                table = known.create_table(catalog.identifier, schema, location=plain(folder))
                if partitioning is not None:
                    with table.update_spec() as change:
                        change.add_field(partitioning.source, partitioning.transform)
        return cls(table, folder, state_id, catalog.identifier)

    @classmethod
    def open(cls, folder: Location, state_id: str, catalog: Catalog) -> Self:
        """Raises ForeignState if there is no table, Refused."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with _refusing(f"cannot open the Iceberg table {catalog.identifier}"):
            try:
                table = _loaded(catalog).load_table(catalog.identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                raise _gone(folder, catalog) from None
        return cls(table, folder, state_id, catalog.identifier)

    def has(self, batch_id: int) -> bool:
        """As Table has it. Raises Refused."""
        with _refusing(
            f"the Iceberg table {self._identifier} does not tell whether it has micro-batch "
            f"{batch_id}"
        ):
            self._table.refresh()
        return self._has(batch_id)

    def add(self, batch_id: int, files: Sequence[AddedFile]) -> None:
        """As Table has it. Raises Refused."""
        from pyiceberg.exceptions import CommitFailedException

        with _refusing(
            f"the Iceberg table {self._identifier} does not take micro-batch {batch_id}"
        ):
            for tried in range(TRIES):
                self._table.refresh()
                if self._has(batch_id):
                    break
                try:
                    self._commit(batch_id, files)
                except CommitFailedException:
                    if tried == TRIES - 1:
                        raise
            self._kept = keep(self._metadata, self._kept)

    def version(self) -> IcebergVersion:
        """As Table has it. Raises Refused."""
        with _refusing(f"the Iceberg table {self._identifier} cannot be read"):
            self._table.refresh()
        snapshot = self._table.current_snapshot()
        return IcebergVersion(
            self._identifier,
            self._table.metadata_location,
            None if snapshot is None else snapshot.snapshot_id,
            dict(self._table.io.properties),
        )

    def maintain(self, upkeep: Upkeep) -> Iterator[Done]:
        """As Table has it. Raises Refused."""
        with _refusing(f"the Iceberg table {self._identifier} cannot be maintained"):
            self._table.refresh()
            noted = self._property in self._table.properties
            if upkeep.batch >= 0 and not noted and not upkeep.dry_run:
                # Only a snapshot tells, which is about to expire.
                with self._table.transaction() as change:
                    change.set_properties({self._property: str(upkeep.batch)})
            with _WithoutWarnings():
                yield from maintain(self._table, self._folder, upkeep)
            self._kept = keep(self._metadata, frozenset())

    def _commit(self, batch_id: int, files: Sequence[AddedFile]) -> None:
        noted = {STATE: self._state_id, BATCH: str(batch_id)}
        with _WithoutWarnings(), self._table.transaction() as change:
            change.set_properties({self._property: str(batch_id)})
            if files:
                append_files(
                    change, self._table.io, [(plain(one.location), one) for one in files], noted
                )

    def _has(self, batch_id: int) -> bool:
        noted = self._table.properties.get(self._property)
        if noted is not None and int(noted) >= batch_id:
            return True
        return any(self._is_of(snapshot, batch_id) for snapshot in self._table.snapshots())

    def _is_of(self, snapshot: Any, batch_id: int) -> bool:
        told = snapshot.summary.additional_properties if snapshot.summary else {}
        return told.get(STATE) == self._state_id and told.get(BATCH) == str(batch_id)

    @property
    def _property(self) -> str:
        return f"{BATCH}.{self._state_id}"


class IcebergVersion(NamedTuple):
    """As pipeline.tables.table.TableVersion has it."""

    identifier: str
    metadata: str
    """The file of metadata that was in force."""
    snapshot: int | None
    properties: Mapping[str, str]
    """Of the file system."""

    def files(self) -> list[DataFile]:
        """As TableVersion has it. Raises CorruptData."""
        if self.snapshot is None:
            return []
        with self._readable():
            table = self._opened()
            schema = table.schema()
            return [
                DataFile(
                    task.file.file_path,
                    task.file.file_size_in_bytes,
                    task.file.record_count,
                    _bounds(schema, task.file.lower_bounds),
                    _bounds(schema, task.file.upper_bounds),
                )
                for task in table.scan(snapshot_id=self.snapshot).plan_files()
            ]

    def has_deleted_rows(self) -> bool:
        """As TableVersion has it. Raises CorruptData."""
        if self.snapshot is None:
            return False
        with self._readable():
            scan = self._opened().scan(snapshot_id=self.snapshot)
            return any(task.delete_files for task in scan.plan_files())

    def rows(self, stretch: Stretch, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As TableVersion has it. Raises CorruptData."""
        from pyiceberg import expressions

        # Their constructors take other arguments than their types tell.
        known: Any = expressions
        return self._scan(
            columns,
            row_filter=known.And(
                known.EqualTo("topic", stretch.topic),
                known.EqualTo("partition", stretch.partition),
                known.GreaterThanOrEqual(stretch.column, stretch.start),
                known.LessThan(stretch.column, stretch.end),
            ),
        )

    def places(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As TableVersion has it. Raises CorruptData."""
        return self._scan(columns)

    def _scan(self, columns: Sequence[str], **more: Any) -> Iterator[pa.RecordBatch]:
        if self.snapshot is None:
            return
        with self._readable():
            scan = self._opened().scan(
                selected_fields=tuple(columns), snapshot_id=self.snapshot, **more
            )
            yield from scan.to_arrow_batch_reader()

    def _opened(self) -> Any:
        from pyiceberg.table import StaticTable

        return StaticTable.from_metadata(self.metadata, dict(self.properties))

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except Exception as failure:
            raise CorruptData(
                f"the Iceberg table {self.identifier} cannot be read: {_line(failure)}"
            ) from None


def plain(location: Location) -> str:
    """As Iceberg names places: with a scheme, but nothing is escaped."""
    return f"file://{location.path}" if location.is_local else location.uri


def _loaded(catalog: Catalog) -> Any:
    from pyiceberg.catalog import load_catalog

    told = {
        "s3.endpoint": s3_endpoint(),
        "s3.region": os.environ.get("AWS_REGION", ""),
        "s3.connect-timeout": str(CONNECT_TIMEOUT_S),
        "s3.request-timeout": str(REQUEST_TIMEOUT_S),
    }
    known = {name: value for name, value in told.items() if value}
    return load_catalog(catalog.name, **{**known, **catalog.options})


def _gone(folder: Location, catalog: Catalog) -> ForeignState:
    return ForeignState(
        f"{folder.path} is the archive of the Iceberg table {catalog.identifier}, which is gone: "
        "register it again, or archive to another folder, with another state"
    )


def _bounds(schema: Any, found: Mapping[int, bytes] | None) -> dict[str, Any]:
    from pyiceberg.conversions import from_bytes

    return {
        column.name: from_bytes(column.field_type, found[column.field_id])
        for column in schema.columns
        if found and column.field_id in found
    }


@contextlib.contextmanager
def _refusing(what: str) -> Iterator[None]:
    """PyIceberg, and whatever a catalog is kept in, raise all kinds of exceptions."""
    try:
        yield
    except Failure:
        raise
    except Exception as failure:
        raise Refused(f"{what}: {_line(failure)}") from None


def _line(failure: Exception) -> str:
    return " ".join(str(failure).split()) or type(failure).__name__


class _WithoutWarnings:
    """PyIceberg warns of each column of each file that is without statistics, as ours are meant.

    A class, as contextlib's generators write to what they pass on, which exceptions of a Hive
    metastore do not allow.
    """

    def __enter__(self) -> None:
        self._logger = logging.getLogger("pyiceberg.io.pyarrow")
        self._before = self._logger.level
        self._logger.setLevel(logging.ERROR)

    def __exit__(self, *_: object) -> None:
        self._logger.setLevel(self._before)
