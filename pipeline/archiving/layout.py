"""How the rows of an archive lie in files: by date, hour or a column; sizes; order.

A plain archive has one file for each range, in the order of offsets, in one folder. Any other
layout has files in folders named as Hive names them (`date=2026-11-25/hour=7`), as many for a range
as it has values, and none where it has no rows: which offsets are covered is then kept apart
(`archiving.coverage`), and rows are put in order when they are read back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.archiving.parquet_writer import SCHEMAS
from pipeline.archiving.stretches import TIMES
from pipeline.errors import WrongUse
from pipeline.tables.partitions import folder_of
from pipeline.tables.table import DATA, Partitioning

if TYPE_CHECKING:
    from collections.abc import Iterator

DATE = pa.field("date", pa.date32())
HOUR = pa.field("hour", pa.int32())
DERIVED = {"date": (DATE,), "hour": (DATE, HOUR)}
"""Columns made of the record's timestamp, or of a batch's greatest, in UTC."""

BY_COLUMN = {
    "records": ("topic", "partition"),
    "batches": ("topic", "partition"),
    "values": ("_topic", "_partition"),
}
"""Columns with few values, that a table can be partitioned by."""


@dataclass(frozen=True)
class Layout:
    """The files of an archive of one shape, as a table or plain."""

    shape: str
    table: str = "parquet"
    by: str | None = None
    """`date`, `hour` or one of BY_COLUMN."""
    sort_by: tuple[str, ...] = ()
    """Columns that rows are sorted by in each row group, in place of the offset."""
    file_bytes: int | None = None
    """A file that has so many is ended, at the next row group."""
    columns: pa.Schema | None = None
    """Of an archive of values, as soon as they are known."""

    def check(self) -> None:
        """Raises WrongUse."""
        if self.by is not None and self.by not in (*DERIVED, *BY_COLUMN[self.shape]):
            known = ", ".join((*DERIVED, *BY_COLUMN[self.shape]))
            raise WrongUse(f"an archive is not partitioned by {self.by!r}; known are {known}")
        if self.shape == "values" and self.columns is None:
            return
        both = {field.name for field in self.partition_fields if self.by in DERIVED}
        if both & set(self.schema.names):
            raise WrongUse(
                f"the value has a field {min(both & set(self.schema.names))}, and folders by "
                f"{self.by} would have a column of that name: leave --partition-by out"
            )
        simple = [field.name for field in self.schema if not pa.types.is_nested(field.type)]
        for column in self.sort_by:
            if column not in simple:
                raise WrongUse(
                    f"rows cannot be sorted by {column!r}: known are {', '.join(simple)}"
                )

    @property
    def schema(self) -> pa.Schema:
        """The columns, but for those that only folders' names tell."""
        return SCHEMAS[self.shape] if self.columns is None else self.columns

    @property
    def apart(self) -> bool:
        """Whether the coverage is kept apart from the files."""
        plain = self.table == "parquet" and self.shape != "values"
        return not plain or bool(self.by or self.sort_by or self.file_bytes)

    @property
    def folder(self) -> str:
        """The folder of its files, below the archive's: with a slash at its end, or empty."""
        return "" if self.table == "parquet" else f"{DATA}/"

    @property
    def partition_fields(self) -> tuple[pa.Field, ...]:
        """The columns that are in the names of folders."""
        if self.by is None:
            return ()
        derived = DERIVED.get(self.by)
        return derived if derived is not None else (self.schema.field(self.by),)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns in the files. Iceberg has all of them in there, the others none that a
        folder's name tells."""
        schema = self.schema
        if self.table == "iceberg" or self.by is None or self.by in DERIVED:
            return schema
        return schema.remove(schema.get_field_index(self.by))

    @property
    def table_schema(self) -> pa.Schema:
        """The columns of the table, or of a reader that knows folders' names."""
        schema = self.schema
        if self.table == "iceberg" or self.by not in DERIVED:
            return schema
        return pa.schema([*schema, *self.partition_fields])

    @property
    def partitioning(self) -> Partitioning | None:
        """As a table is told."""
        if self.by is None:
            return None
        columns = tuple(field.name for field in self.partition_fields)
        if self.by in DERIVED:
            unit = "hour" if self.by == "hour" else "day"
            return Partitioning(columns, TIMES[self.shape], unit)
        return Partitioning(columns, self.by, "identity")

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows by the folder that they belong in, each with a slash at its end."""
        if self.by is None:
            yield "", rows
            return
        if self.by in DERIVED:
            times = rows[TIMES[self.shape]]
            keys = pc.floor_temporal(times, unit="hour" if self.by == "hour" else "day")
        else:
            keys = rows[self.by]
        values = pc.unique(keys)
        for value in values:
            wanted = pc.is_null(keys) if not value.is_valid else pc.equal(keys, value)
            chosen = rows if len(values) == 1 else rows.filter(wanted)
            yield self._folder_of(value), chosen

    def _folder_of(self, value: pa.Scalar) -> str:
        known = value.is_valid
        if self.by not in DERIVED:
            return folder_of(str(self.by), str(value.as_py()) if known else None) + "/"
        date = pc.strftime(value, format="%Y-%m-%d").as_py() if known else None
        folder = folder_of("date", date) + "/"
        if self.by == "hour":
            folder += folder_of("hour", str(pc.hour(value).as_py()) if known else None) + "/"
        return folder
