"""What is in an archive, to be read back: files of their own, or stretches of a table.

Plain archives are read by the names and footers of their files. One that is a table is read through
the table's log, from wherever maintenance has put the rows.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.archiving.archive_files import (
    FORMAT,
    ArchiveFile,
    describe,
    list_files,
    names_in,
    open_parquet,
)
from pipeline.archiving.coverage import Coverage, Covered
from pipeline.archiving.layout import Layout
from pipeline.archiving.owner import catalog_of, owner_of
from pipeline.archiving.stretches import (
    COUNTED,
    covered_by_rows,
    stretch_cells,
    stretch_rows,
    stretches,
)
from pipeline.errors import CorruptData, ForeignState, WrongUse
from pipeline.filesystem import locate, reason
from pipeline.tables.files import FilesVersion
from pipeline.tables.opening import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pipeline.filesystem import Location
    from pipeline.tables.table import Catalog, TableVersion


def contents(
    where: str, *, topics: Collection[str] | None = None, catalog: Catalog | None = None
) -> list[ArchiveFile]:
    """What the archive in a folder (a local path or URI) has, by topic, partition and offset.

    Only of `topics`, if given; empty if there is nothing. `catalog` is that of an Iceberg table; by
    default the one that the archive has noted. Raises CorruptData, WrongUse, NotInstalled,
    ForeignState (the table is gone), Refused (its catalog does not answer).
    """
    folder = locate(where)
    try:
        owner = owner_of(folder, strict=False)
    except OSError as failure:
        raise WrongUse(
            f"cannot list {where}: {reason(failure)}; name the folder of an archive"
        ) from None
    if owner is not None and owner.get("mode") == "upsert":
        raise ForeignState(
            f"{where} is a table of newest values, which has not all records of its topics: name "
            "the folder of an archive"
        )
    if owner is not None and owner["shape"] == "values":
        raise ForeignState(
            f"{where} has values as columns, and not the bytes that its records were made of: name "
            "the folder of an archive without --value and --key, or mirror the topic"
        )
    kept = catalog if catalog is not None or owner is None else catalog_of(owner)
    if (
        owner is None
        or (owner["table"] == "parquet" and owner["format"] == FORMAT)
        # One that was begun before catalogs were noted: its own files tell all, while it has them.
        or (owner["table"] == "iceberg" and owner["format"] == FORMAT and kept is None)
    ):
        return list_files(where, topics=topics)
    # The coverage first: whatever the table gets in between is beyond it.
    coverage = Coverage.read(folder)
    version = version_of(folder, owner, kept)
    if coverage is None:
        coverage = made_again(folder, version, owner, batch=-1)
    return stretches(folder, version, coverage, owner["shape"], topics)


def version_of(folder: Location, owner: Mapping[str, Any], catalog: Catalog | None) -> TableVersion:
    kind, shape = owner["table"], owner["shape"]
    if kind == "parquet":
        return FilesVersion(folder, Layout(shape, by=owner.get("partition_by")).partition_fields)
    return open_table(kind, folder, state_id=owner["state"], catalog=catalog).version()


def made_again(
    folder: Location, version: TableVersion, owner: Mapping[str, Any], *, batch: int
) -> Coverage:
    """The coverage of an archive that has none: by the files that archive wrote, where the table
    still has no others, else by the rows that it has."""
    named = names_in(folder)
    paths = [file.path.rpartition("/")[2] for file in version.files()]
    if all(name in named for name in paths):
        files = [describe(folder.under(name)) for name in named]
        ranges = [
            Covered(file.topic, file.partition, file.start, file.end, file.missing)
            for file in files
        ]
        cluster = files[-1].cluster if files else None
        return Coverage(folder, cluster, batch, ranges)
    return covered_by_rows(folder, version, owner["shape"], None, batch)


def parts(
    file: ArchiveFile, begin: int | None = None
) -> Iterator[Callable[[Sequence[str]], pa.Table]]:
    """The parts of a file in the order of offsets: each a function from the names of columns to
    their rows; with `begin` without those that have only offsets below it, as far as is known
    without reading them. The archive's writer bounds their bytes. Raises CorruptData."""
    if file.table is not None:
        yield partial(stretch_rows, file)
        return
    try:
        with contextlib.closing(open_parquet(file.location)) as parquet:
            for group in range(parquet.num_row_groups):
                if begin is not None and _is_below(parquet, group, COUNTED[file.shape], begin):
                    continue
                yield lambda columns, group=group: parquet.read_row_group(  # type: ignore[misc]
                    group, columns=list(columns)
                )
    except (pa.ArrowInvalid, OSError) as failure:
        raise CorruptData(f"{file.location.path} cannot be read: {failure}") from None


def _is_below(parquet: pq.ParquetFile, group: int, name: str, begin: int) -> bool:
    """Whether a row group's statistics tell that all its offsets are below `begin`."""
    column = parquet.metadata.row_group(group).column(parquet.schema_arrow.get_field_index(name))
    statistics = column.statistics if column.path_in_schema == name else None
    return statistics is not None and statistics.has_min_max and bool(statistics.max < begin)


def rows_in_order(
    file: ArchiveFile, columns: Sequence[str], at_once: int, begin: int | None = None
) -> Iterator[pa.RecordBatch]:
    """These columns of all rows in the order of offsets, at most `at_once` at a time, and the same
    ones together whenever it is read. `begin` is as `parts` has it. Raises CorruptData."""
    if file.table is not None:
        yield from stretch_cells(file, columns)
        return
    for read in parts(file, begin):
        yield from read(columns).combine_chunks().to_batches(max_chunksize=at_once)
