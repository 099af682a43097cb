"""Tables that an archive's files are added to, and what they are read back by.

A table is known by its log alone: which files it has may be changed by anybody's maintenance
(compaction, vacuum, z-order, expiry of snapshots), so that neither names nor footers of data files
are relied on once they are added. What is kept for longer than any file lies elsewhere: the last
micro-batch in the table's metadata (`Table.has`), which offsets were archived in the archive's
folder (`pipeline.archiving.coverage`).
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pipeline.errors import NotInstalled, WrongUse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from pipeline.tables.added import AddedFile
    from pipeline.tables.upkeep import Done, Upkeep

KINDS = ("parquet", "delta", "iceberg")
PACKAGES = {"delta": ("deltalake", "deltalake"), "iceberg": ("pyiceberg", "pyiceberg[pyarrow]")}
"""What has to be importable, and what to install for it."""

DATA = "data"
"""The folder, below the table's, of the files that an archive adds."""

STATE = "triglot.state"
BATCH = "triglot.batch"
_IDENTIFIER = re.compile(r"[^.]+(\.[^.]+)+")


class DataFile(NamedTuple):
    """One file of a version of a table, as the table's log tells of it."""

    path: str
    size: int
    """In bytes."""
    rows: int
    least: Mapping[str, Any]
    """By column, bounds of its values, as far as they are known; those of strings may be wider."""
    greatest: Mapping[str, Any]


class Partitioning(NamedTuple):
    """What a table's files are kept apart by."""

    columns: tuple[str, ...]
    """Those that the names of folders tell; all that Delta knows."""
    source: str
    """The column that Iceberg makes the values of ..."""
    transform: str
    """... by `day`, `hour` or `identity`."""


class Stretch(NamedTuple):
    """The rows wanted: of one partition of a topic, offsets from `start` up to and without `end`.

    `column` is the one that counts: `offset` of records, `last_offset` of stored batches.
    """

    topic: str
    partition: int
    column: str
    start: int
    end: int


class TableVersion(Protocol):
    """One version of a table: the same rows whenever it is read, whatever files hold them.

    Picklable, and needs no catalog: tasks read by it. It can be read until a vacuum, or an expiry
    of snapshots, removes its files.
    """

    def files(self) -> list[DataFile]:
        """All files. Raises CorruptData if the table cannot be read any more."""

    def has_deleted_rows(self) -> bool:
        """Whether files may have rows that the table has not got any more, as a log beside them
        tells (deletion vectors, delete files). Raises CorruptData."""

    def rows(self, stretch: Stretch, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of the rows of a stretch, in any order; deleted rows are not among them.

        Types may be wider or views (`string_view`). Raises CorruptData as `files` does, and for a
        column that the table has not got any more.
        """

    def places(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of all rows, in any order. Raises as `rows` does."""


class Table(Protocol):
    """A table that a micro-batch's files are added to.

    A micro-batch is one transaction of the table. Its number is kept in the table, by the id of the
    state that counts micro-batches: in Delta as an application transaction, in Iceberg as a
    property of the table, both of which outlive every kind of maintenance. So a micro-batch that is
    added again, by a run after a crash, adds nothing.

    Files have the columns of the schema that the table was opened with; others that the table has
    are null in them, and one that it lost is refused. Who writes files with more columns opens the
    table with a schema that has grown, and lets the table grow first.
    """

    def has(self, batch_id: int) -> bool:
        """Whether this micro-batch, or a later one, is in the table. Raises Refused."""

    def add(self, batch_id: int, files: Sequence[AddedFile]) -> None:
        """Add files that are in place, and of one schema. Does nothing if this micro-batch was
        added before.

        Where the table is partitioned by columns that files have not got, their values are in the
        names of the folders, as Hive has them: `date=2026-11-25`. Afterwards the change is on the
        disk. Raises Refused.
        """

    def version(self) -> TableVersion:
        """The table as it is now. Raises Refused."""

    def maintain(self, upkeep: Upkeep) -> Iterator[Done]:
        """Put small files together, and delete what is older than is to be kept: step by step, as
        it is iterated over. No row is changed. Raises Refused."""


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
    check_installed(kind)


def check_installed(kind: str) -> None:
    """Raises NotInstalled."""
    if kind in PACKAGES:
        package, wanted = PACKAGES[kind]
        if importlib.util.find_spec(package) is None:
            raise NotInstalled(f"{kind} tables need the package {package}: pip install '{wanted}'")
