"""Delta: the table in a folder, by the package `deltalake`, which needs no JVM.

Its log is `_delta_log` in the folder; there is no catalog. A micro-batch is an application
transaction, which a checkpoint of the log keeps.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from pipeline.errors import CorruptData, ForeignState, Refused
from pipeline.tables.durable import keep
from pipeline.tables.partitions import values_of
from pipeline.tables.table import BATCH, STATE, DataFile, Stretch
from pipeline.tables.upkeep import Done

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    import pyarrow.parquet as pq
    from deltalake import DeltaTable
    from deltalake.transaction import RemoveAction

    from pipeline.filesystem import Location
    from pipeline.tables.added import AddedFile
    from pipeline.tables.table import Partitioning
    from pipeline.tables.upkeep import Upkeep


class Delta:
    """As pipeline.tables.table.Table has it."""

    def __init__(
        self, table: DeltaTable, folder: Location, state_id: str, schema: pa.Schema | None = None
    ) -> None:
        self._table = table
        self._folder = folder
        self._state_id = state_id
        self._schema = schema
        self._kept: frozenset[str] = frozenset()
        self._expect_columns()

    @classmethod
    def make(
        cls,
        folder: Location,
        schema: pa.Schema,
        state_id: str,
        partitioning: Partitioning | None = None,
        *,
        expected: bool,
    ) -> Self:
        """The table, made if it is not there, unless it is `expected` to be. Raises ForeignState,
        Refused."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            if expected and not DeltaTable.is_deltatable(folder.uri):
                raise _gone(folder)
            table = DeltaTable.create(
                folder.uri,
                schema,
                mode="ignore",
                partition_by=None if partitioning is None else list(partitioning.columns),
            )
        except (DeltaError, OSError) as failure:
            raise Refused(f"cannot make a Delta table in {folder.path}: {failure}") from None
        return cls(table, folder, state_id, schema)

    @classmethod
    def open(cls, folder: Location, state_id: str) -> Self:
        """Raises ForeignState if there is no table, Refused."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            if not DeltaTable.is_deltatable(folder.uri):
                raise _gone(folder)
            return cls(DeltaTable(folder.uri), folder, state_id)
        except (DeltaError, OSError) as failure:
            raise Refused(f"cannot open the Delta table in {folder.path}: {failure}") from None

    def has(self, batch_id: int) -> bool:
        """As Table has it. Raises Refused."""
        with self._refusing(f"does not tell whether it has micro-batch {batch_id}"):
            self._table.update_incremental()
            last = self._table.transaction_version(self._state_id)
            return last is not None and bool(last >= batch_id)

    def add(self, batch_id: int, files: Sequence[AddedFile]) -> None:
        """As Table has it. Raises Refused."""
        had = self.has(batch_id)
        with self._refusing(f"does not take micro-batch {batch_id}"):
            self._expect_columns()
            if not had:
                self._commit(batch_id, files)
            self._kept = keep(self._folder.under("_delta_log"), self._kept)

    def version(self) -> DeltaVersion:
        """As Table has it. Raises Refused."""
        with self._refusing("cannot be read"):
            self._table.update_incremental()
            return DeltaVersion(self._folder.uri, self._table.version())

    def maintain(self, upkeep: Upkeep) -> Iterator[Done]:
        """As Table has it, by deltalake's own optimize and vacuum. Raises Refused."""
        table = self._table
        with self._refusing("cannot be maintained"):
            table.update_incremental()
            if upkeep.dry_run:
                found = pa.table(table.get_add_actions()).to_pylist()
                small = [one for one in found if one["size_bytes"] < upkeep.file_bytes]
                # Files of several partitions stay apart, and one alone stays as it is.
                several = Counter(str(one.get("partition")) for one in small).values()
                together = sum(count for count in several if count > 1)
            else:
                told = table.optimize.compact(target_size=upkeep.file_bytes)
                together = told["numFilesRemoved"]
            yield Done("files put together", together)
            kept = (datetime.now(UTC) - upkeep.older_than).total_seconds()
            hours = math.ceil(kept / 3600) if kept >= 60 else 0
            deleted = table.vacuum(
                retention_hours=hours,
                dry_run=upkeep.dry_run,
                enforce_retention_duration=False,
                full=True,
            )
            if not upkeep.dry_run:
                table.create_checkpoint()
                table.cleanup_metadata()
                self._kept = keep(self._folder.under("_delta_log"), frozenset())
            yield Done("files deleted", len(deleted))

    @contextlib.contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as failure:
            raise Refused(
                f"the Delta table in {self._folder.path} {what}: {_line(failure)}"
            ) from None

    def _commit(self, batch_id: int, files: Sequence[AddedFile]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        names = self._table.metadata().partition_columns
        actions: list[AddAction | RemoveAction] = []
        for file in files:
            name = file.location.path.removeprefix(self._folder.path).lstrip("/")
            values = values_of(name)
            actions.append(
                AddAction(
                    path=quote(name, safe="/="),
                    size=file.size,
                    partition_values={column: values.get(column) for column in names},
                    modification_time=file.changed_ms,
                    data_change=True,
                    stats=json.dumps(_statistics(file.footer)),
                )
            )
        self._table.create_write_transaction(
            actions,
            "append",
            self._table.schema(),
            names or None,
            commit_properties=CommitProperties(
                custom_metadata={STATE: self._state_id, BATCH: str(batch_id)},
                app_transactions=[Transaction(self._state_id, batch_id)],
            ),
        )

    def _expect_columns(self) -> None:
        """Delta itself would list files that its readers find nothing in."""
        there = {column.name for column in self._table.schema().fields}
        for name in self._schema.names if self._schema is not None else ():
            if name not in there:
                raise Refused(
                    f"the Delta table in {self._folder.path} has no column '{name}' any more: "
                    "restore it, or archive to another folder, with another state"
                )


class DeltaVersion(NamedTuple):
    """As pipeline.tables.table.TableVersion has it."""

    uri: str
    number: int

    def files(self) -> list[DataFile]:
        """As TableVersion has it. Raises CorruptData."""
        with _readable(self.uri):
            found = pa.table(self._opened().get_add_actions()).to_pylist()
        return [
            DataFile(
                one["path"],
                one["size_bytes"],
                one["num_records"] or 0,
                _known(one.get("min"), one.get("partition")),
                _known(one.get("max"), one.get("partition")),
            )
            for one in found
        ]

    def has_deleted_rows(self) -> bool:
        """As TableVersion has it. Raises CorruptData."""
        with _readable(self.uri):
            return "deletionVectors" in (self._opened().protocol().reader_features or ())

    def rows(self, stretch: Stretch, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As TableVersion has it. Raises CorruptData."""
        # A topic's name has no quotes in it.
        return self._scan(
            columns,
            f'"topic" = \'{stretch.topic}\' and "partition" = {stretch.partition} and '
            f'"{stretch.column}" >= {stretch.start} and "{stretch.column}" < {stretch.end}',
        )

    def places(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As TableVersion has it. Raises CorruptData."""
        return self._scan(columns, None)

    def _scan(self, columns: Sequence[str], predicate: str | None) -> Iterator[pa.RecordBatch]:
        with _readable(self.uri):
            reader = self._opened().scan(columns=list(columns), predicate=predicate)
            yield from pa.RecordBatchReader.from_stream(reader)

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self.uri, version=self.number)


@contextlib.contextmanager
def _readable(uri: str) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, ValueError) as failure:
        # What DataFusion finds comes as one of many classes.
        raise CorruptData(f"the Delta table in {uri} cannot be read: {_line(failure)}") from None


def _line(failure: Exception) -> str:
    return " ".join(str(failure).split())


def _gone(folder: Location) -> ForeignState:
    return ForeignState(
        f"{folder.path} is the archive of a Delta table, which is gone: restore its _delta_log, or "
        "archive to another folder, with another state"
    )


def _known(*told: dict[str, Any] | None) -> dict[str, Any]:
    return {
        name: value
        for bounds in told
        for name, value in (bounds or {}).items()
        if value is not None
    }


def _statistics(footer: pq.FileMetaData) -> dict[str, Any]:
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
                low, high = _value(statistics.min), _value(statistics.max)
            except (OverflowError, ValueError):  # also a time after the year 9999
                beyond.add(name)
                continue
            least[name] = min(least.get(name, low), low)
            greatest[name] = max(greatest.get(name, high), high)
    for name in beyond:
        least.pop(name, None)
        greatest.pop(name, None)
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest}


def _value(value: Any) -> Any:
    """As JSON has it: times in ISO 8601, of milliseconds, which is all that Kafka's have.

    Raises ValueError for what is not told, OverflowError.
    """
    if isinstance(value, datetime):
        if value.microsecond % 1000:
            raise ValueError("a bound would be cut off")
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"no statistics of {type(value).__name__}")
