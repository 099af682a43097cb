"""An archive on disk: a flat folder of Parquet files, each named by the offsets it answers for.

    <topic>-<partition>-<first offset>-<last offset>.parquet     both inclusive, of 20 digits

The name and the footer say what was planned, not what was found: a range that held nothing but
control records, or whose records were compacted away, is a file of no rows, so that a reader can
tell "nothing was there" from "was never copied". Names that begin with an underscore or a full
stop are left alone by every reader of Parquet, ours among them: `_staging`, `_state`,
`_archive.json`.

A topic's name may begin so too, and may be 249 characters long, which with the offsets is more
than a file system takes. `~` is in no topic's name and marks both: it stands before a name that
readers would not see, and before the digest that ends a shortened one. The footer has the whole
name. It is the key `triglot` of Parquet's own metadata, JSON:

    format      1
    shape       records or batches
    topic, partition, start, end    `end` is the first offset after the range
    cluster     the cluster's id, null where it has none
    batch       the micro-batch that made the file
    missing     offsets that were gone (retention) or left out as corrupt; not those of compaction
"""

from __future__ import annotations

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pipeline.errors import CorruptData, WrongUse
from pipeline.filesystem import Location, locate, reason

if TYPE_CHECKING:
    from collections.abc import Collection

    from pipeline.tables.table import TableVersion

FORMAT = 1
"""Of a folder of plain files, and of the footers of all files."""
TABLE_FORMAT = 2
"""Of an archive that is a table, whose files others may rewrite."""
METADATA_KEY = b"triglot"
STAGING = "_staging"
STATE = "_state"
OWNER = "_archive.json"

_NAME = re.compile(
    r"(?P<hidden>~?)(?P<topic>[A-Za-z0-9._-]+)(?P<digest>~[0-9a-f]{32})?"
    r"-(?P<partition>\d+)-(?P<first>\d{20})-(?P<last>\d{20})\.parquet"
)
_LONGEST_TOPIC = 180  # with all that is added, here and while it is staged, within 255 bytes
_KEPT_OF_LONGER = _LONGEST_TOPIC - len("~") - 32
_FOOTERS_AT_ONCE = 8
_TIMES = {"records": ("timestamp", "timestamp"), "batches": (None, "max_timestamp")}


class Named(NamedTuple):
    """The parts of a file's name. `topic` is None where the name holds a digest of it."""

    topic: str | None
    partition: int
    start: int
    end: int


class ArchiveFile(NamedTuple):
    """One file, by its footer. Offsets from `start` up to, and without, `end`."""

    location: Location
    """Where it is: `open_parquet` takes it. Picklable, so that a task may be given it."""
    shape: str
    topic: str
    partition: int
    start: int
    end: int
    cluster: str | None
    batch: int
    missing: int
    rows: int
    size: int
    """Of the file, in bytes."""
    earliest_ms: int | None
    """Of records: the least timestamp in the file; None if it has none. Of batches, which tell only
    their first record's: None."""
    latest_ms: int | None
    """The greatest; None if there is none."""
    table: TableVersion | None = None
    """Where its rows are, if it is no file but a stretch of offsets in a table: `location` is the
    archive's folder then, and what it holds is estimated."""


def name_of(topic: str, partition: int, start: int, end: int) -> str:
    """The name of the file for the offsets from `start` up to, and without, `end`."""
    if end <= start:
        raise ValueError(f"{topic}-{partition}: no offsets from {start} to {end}")
    if len(topic) > _LONGEST_TOPIC:
        digest = hashlib.sha256(topic.encode()).hexdigest()[:32]
        topic = f"{topic[:_KEPT_OF_LONGER]}~{digest}"
    hidden = "~" if topic.startswith(("_", ".")) else ""
    return f"{hidden}{topic}-{partition}-{start:020d}-{end - 1:020d}.parquet"


def parse_name(name: str) -> Named | None:
    """The parts of `name`; None if it is no name of an archive's file."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    topic = None if found["digest"] else found["topic"]
    return Named(topic, int(found["partition"]), int(found["first"]), int(found["last"]) + 1)


def metadata(
    *,
    shape: str,
    topic: str,
    partition: int,
    start: int,
    end: int,
    cluster: str | None,
    batch: int,
    missing: int = 0,
) -> dict[bytes, bytes]:
    """The key and value for Parquet's metadata that make a file one of an archive."""
    told = {
        "format": FORMAT,
        "shape": shape,
        "topic": topic,
        "partition": partition,
        "start": start,
        "end": end,
        "cluster": cluster,
        "batch": batch,
        "missing": missing,
    }
    return {METADATA_KEY: json.dumps(told).encode()}


def open_parquet(location: Location) -> pq.ParquetFile:
    """A file of an archive, to be read and closed (a context manager). Raises CorruptData."""
    try:
        return pq.ParquetFile(location.filesystem.open_input_file(location.path))
    except (pa.ArrowInvalid, EOFError) as failure:
        raise CorruptData(f"{location.path} is no whole Parquet file: {failure}") from None
    except OSError as failure:
        raise CorruptData(f"{location.path} cannot be read: {reason(failure)}") from None


def names_in(folder: Location) -> dict[str, Named]:
    """The archive's files in a folder and what their names tell; empty if there is no folder."""
    selector = fs.FileSelector(folder.path, allow_not_found=True)
    found = {}
    for info in folder.filesystem.get_file_info(selector):
        named = parse_name(info.base_name) if info.type == fs.FileType.File else None
        if named is not None:
            found[info.base_name] = named
    return found


def list_files(where: str, *, topics: Collection[str] | None = None) -> list[ArchiveFile]:
    """The archive's files in a folder (a local path or URI), by topic, partition and offset.

    Only those of `topics`, if given. Every file's footer is opened, some at a time. Empty if there
    is no folder or no such file in it. Raises CorruptData for a file with an archive's name that
    has no such footer, WrongUse for a URI that is not known and what cannot be listed.
    """
    folder = locate(where)
    try:
        names = names_in(folder)
    except OSError as failure:
        raise WrongUse(
            f"cannot list {where}: {reason(failure)}; name the folder of an archive"
        ) from None
    wanted = [
        folder.under(name)
        for name, named in names.items()
        if topics is None or named.topic is None or named.topic in topics
    ]
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        files = list(pool.map(describe, wanted))
    return sorted(
        (file for file in files if topics is None or file.topic in topics),
        key=lambda file: (file.topic, file.partition, file.start, file.end),
    )


def describe(location: Location) -> ArchiveFile:
    """One file of an archive, by its footer. Raises CorruptData if it is none."""
    with open_parquet(location) as file:
        footer = file.metadata
    try:
        told = json.loads((footer.metadata or {})[METADATA_KEY])
        if told["format"] != FORMAT:
            raise CorruptData(
                f"{location.path} is of archive format {told['format']}, and this version reads "
                f"format {FORMAT}: read it with a newer one"
            )
        earliest, latest = _times(footer, told["shape"])
        return ArchiveFile(
            location=location,
            shape=told["shape"],
            topic=told["topic"],
            partition=told["partition"],
            start=told["start"],
            end=told["end"],
            cluster=told["cluster"],
            batch=told["batch"],
            missing=told["missing"],
            rows=footer.num_rows,
            size=location.filesystem.get_file_info(location.path).size,
            earliest_ms=earliest,
            latest_ms=latest,
        )
    except (KeyError, ValueError, TypeError) as failure:
        raise CorruptData(
            f"{location.path} has the name of an archive's file and was not made by archive: its "
            f"metadata lacks {failure}"
        ) from None


def _times(footer: Any, shape: str) -> tuple[int | None, int | None]:
    """The least and greatest timestamp by the statistics of the row groups, in milliseconds."""
    lowest, highest = _TIMES[shape]
    least: list[int] = []
    greatest: list[int] = []
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        for at in range(group.num_columns):
            column = group.column(at)
            if column.path_in_schema not in (lowest, highest) or not column.is_stats_set:
                continue
            statistics = column.statistics
            if not statistics.has_min_max:
                continue
            if column.path_in_schema == lowest:
                least.append(statistics.min_raw // 1000)
            if column.path_in_schema == highest:
                greatest.append(statistics.max_raw // 1000)
    return min(least, default=None), max(greatest, default=None)
