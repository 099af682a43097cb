"""An archive read through its table's log: stretches of offsets, whatever files their rows are in.

Others may have rewritten the files of the table: several partitions in one file, offsets in any
order. What is covered (`archiving.coverage`) is cut into stretches of about STRETCH_BYTES by what
the log says of the files. One is read at a time and put in order in memory; of files that are in
the order of offsets, as archive writes and maintain keeps them, no row is read in vain.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.archiving.archive_files import ArchiveFile
from pipeline.archiving.coverage import Coverage, Covered
from pipeline.archiving.parquet_writer import SCHEMAS
from pipeline.errors import CorruptData
from pipeline.tables.table import Stretch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pipeline.filesystem import Location
    from pipeline.tables.table import DataFile, TableVersion

STRETCH_BYTES = 16 << 20
"""Of rows as their files hold them, compressed: in memory they are some times that."""
STRETCH_ROWS = 1 << 20

CELL = 1 << 10
"""Offsets whose rows are encoded together, however many are read at a time."""

COUNTED = {"records": "offset", "batches": "last_offset", "values": "_offset"}
"""The column by which a row belongs to a range of offsets."""
TIMES = {"records": "timestamp", "batches": "max_timestamp", "values": "_timestamp"}


def stretches(
    folder: Location,
    version: TableVersion,
    coverage: Coverage,
    shape: str,
    topics: Collection[str] | None,
) -> list[ArchiveFile]:
    """What the archive covers, of these topics, in stretches by topic, partition and offset."""
    files = _Files(version.files(), shape)
    found = []
    for one in coverage:
        if topics is not None and one.topic not in topics:
            continue
        size, rows, earliest, latest = files.estimate(one)
        edges = _edges(one, max(1, -(-size // STRETCH_BYTES), -(-rows // STRETCH_ROWS)))
        count = len(edges) - 1
        found += [
            ArchiveFile(
                location=folder,
                shape=shape,
                topic=one.topic,
                partition=one.partition,
                start=start,
                end=end,
                cluster=coverage.cluster,
                batch=coverage.batch,
                missing=one.missing if start == one.start else 0,
                rows=rows // count,
                size=size // count,
                earliest_ms=earliest if shape == "records" else None,
                latest_ms=latest,
                table=version,
            )
            for start, end in pairwise(edges)
        ]
    return found


def _edges(one: Covered, count: int) -> list[int]:
    """A range cut into about so many pieces, wherever it begins and ends at multiples of the same
    power of two: what is encoded of them is to be the same when it is encoded again."""
    step = 1 << max(0, ((one.end - one.start) // count).bit_length() - 1)
    if count == 1:
        return [one.start, one.end]
    return [one.start, *range((one.start // step + 1) * step, one.end, step), one.end]


def cut(files: Sequence[ArchiveFile], edges: Iterable[int]) -> list[ArchiveFile]:
    """The same, with the stretches of a table cut at these offsets too; files stay whole."""
    wanted = sorted(set(edges))
    found = []
    for file in files:
        rest = file
        for edge in wanted if file.table is not None else ():
            if rest.start < edge < rest.end:
                found.append(rest._replace(end=edge))
                rest = rest._replace(start=edge, missing=0)
        found.append(rest)
    return found


def stretch_rows(file: ArchiveFile, columns: Sequence[str]) -> pa.Table:
    """These columns of a stretch, in the order of offsets. Raises CorruptData."""
    assert file.table is not None
    counted = COUNTED[file.shape]
    wanted = [*columns, *({counted} - set(columns))]
    stretch = Stretch(file.topic, file.partition, counted, file.start, file.end)
    schema = pa.schema([SCHEMAS[file.shape].field(name).with_nullable(True) for name in wanted])
    rows = pa.Table.from_batches(
        [
            batch.select(wanted).cast(schema)
            for batch in file.table.rows(stretch, wanted)
            if batch.num_rows
        ],
        schema,
    ).sort_by(counted)
    offsets = rows[counted].combine_chunks()
    twice = pc.equal(offsets[1:], offsets[:-1])
    if pc.any(twice).as_py():
        offset = offsets[pc.index(twice, True).as_py()].as_py()
        raise CorruptData(
            f"the table in {file.location.path} has offset {offset:,} of {file.topic}-"
            f"{file.partition} more than once: remove the rows that were added to it besides"
        )
    return rows.select(list(columns)).combine_chunks()


def stretch_cells(file: ArchiveFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same, by every CELL offsets. Raises CorruptData."""
    counted = COUNTED[file.shape]
    rows = stretch_rows(file, [*columns, *({counted} - set(columns))])
    cells = pc.divide(rows[counted].combine_chunks(), CELL)
    begin = 0
    while begin < rows.num_rows:
        end = pc.sum(pc.less_equal(cells, cells[begin])).as_py()
        yield from rows.slice(begin, end - begin).select(list(columns)).to_batches()
        begin = end


def covered_by_rows(
    folder: Location, version: TableVersion, shape: str, cluster: str | None, batch: int
) -> Coverage:
    """The coverage of a table whose own is gone, or that was begun when there was none: for each
    partition from the first to the last offset that is in the table, without holes."""
    counted = COUNTED[shape]
    first = "base_offset" if shape == "batches" else counted
    columns = ["topic", "partition", *dict.fromkeys([first, counted])]
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    for rows in version.places(columns):
        groups = pa.Table.from_batches([rows]).group_by(["topic", "partition"])
        # A wrapper of formats 0 and 1 does not tell its first offset.
        found = groups.aggregate([(first, "min"), (counted, "min"), (counted, "max")])
        for row in found.to_pylist():
            place = row["topic"], row["partition"]
            low = min(x for x in (row[f"{first}_min"], row[f"{counted}_min"]) if x is not None)
            start, end = ends.get(place, (low, 0))
            ends[place] = min(start, low), max(end, row[f"{counted}_max"] + 1)
    covered = (Covered(*place, *range_) for place, range_ in ends.items())
    return Coverage(folder, cluster, batch, covered)


class Estimate(NamedTuple):
    """What a range of offsets holds, at most: bytes, rows, and its times (None: not known)."""

    size: int
    rows: int
    earliest_ms: int | None
    latest_ms: int | None


class _Files:
    """The files of a table by partition; those that may have rows of several are in a list."""

    def __init__(self, files: Iterable[DataFile], shape: str) -> None:
        self._counted = COUNTED[shape]
        self._time = TIMES[shape]
        self._mixed: list[DataFile] = []
        self._by_partition: dict[tuple[Any, Any], list[DataFile]] = defaultdict(list)
        for file in files:
            places = [
                (bounds.get("topic"), bounds.get("partition"))
                for bounds in (file.least, file.greatest)
            ]
            if places[0] == places[1] and None not in places[0]:
                self._by_partition[places[0]].append(file)
            else:
                self._mixed.append(file)

    def estimate(self, one: Covered) -> Estimate:
        """Of each file that may have some of a range, by the share of its offsets."""
        size = rows = 0.0
        earliest: list[int | None] = []
        latest: list[int | None] = []
        for file in (*self._by_partition.get((one.topic, one.partition), ()), *self._mixed):
            first = file.least.get(self._counted, one.start)
            last = file.greatest.get(self._counted, one.end - 1)
            shared = min(last, one.end - 1) - max(first, one.start) + 1
            if shared > 0 and file.rows:
                size += file.size * shared / (last - first + 1)
                rows += file.rows * shared / (last - first + 1)
                earliest.append(_ms(file.least.get(self._time)))
                latest.append(_ms(file.greatest.get(self._time)))
        return Estimate(
            int(size),
            int(rows),
            min((time for time in earliest if time is not None), default=None)
            if None not in earliest
            else None,
            max((time for time in latest if time is not None), default=None)
            if None not in latest
            else None,
        )


def _ms(bound: datetime | int | None) -> int | None:
    """Of a bound as Delta gives it, or in microseconds, as Iceberg does."""
    if isinstance(bound, datetime):
        return int(bound.timestamp() * 1000)
    return None if bound is None else bound // 1000
