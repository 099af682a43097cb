"""The files of an archive as Spark's own reader of Parquet takes them, whatever knows of them: the
folder's listing, or the log of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from pipeline.archiving.layout import BY_COLUMN
from pipeline.archiving.owner import catalog_of, owner_of
from pipeline.archiving.reading import version_of
from pipeline.errors import NoSuchTopic, WrongUse
from pipeline.filesystem import HADOOP_SCHEMES, locate, reason
from pipeline.tables.partitions import values_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.filesystem import Location
    from pipeline.tables.table import Catalog

PLAIN: Mapping[str, Any] = {"shape": "records", "table": "parquet", "partition_by": None}
"""What an archive is that has noted nothing."""
NUMBERS = ("partition", "_partition")


class SparkFiles(NamedTuple):
    """The files of an archive, by the values of the columns that only folders' names tell."""

    shape: str
    apart: str | None
    """That column: topic or partition, or None where the files have all of them."""
    paths: Mapping[str | int | None, list[str]]


def spark_files(where: str, catalog: Catalog | None = None) -> SparkFiles:
    """Those of the archive in a folder (a local path or URI); `catalog` as `contents` has it.

    Raises WrongUse for an archive of batches, and for a table with rows that are deleted without
    their files having been written again; NoSuchTopic where nothing is; and what `contents` does.
    """
    folder = locate(where)
    try:
        owner = owner_of(folder, strict=False) or PLAIN
    except OSError as failure:
        raise WrongUse(
            f"cannot list {where}: {reason(failure)}; name the folder of an archive"
        ) from None
    if not folder.exists():
        raise NoSuchTopic(f"there is no folder {where}: name that of an archive")
    if owner["shape"] == "batches":
        raise WrongUse(
            f"{where} is an archive of batches, which has no rows of records: name the topics "
            "that it was made of, or replay it"
        )
    table = owner["table"]
    version = version_of(folder, owner, catalog if catalog is not None else catalog_of(owner))
    if version.has_deleted_rows():
        raise WrongUse(
            f"the table in {where} has rows that are deleted and still in its files: have them "
            "written anew first (REORG for Delta, rewrite_data_files for Iceberg)"
        )
    files = version.files()
    if not files:
        raise NoSuchTopic(f"there are no files of an archive in {where}")
    by = owner.get("partition_by")
    apart = by if table != "iceberg" and by in BY_COLUMN[owner["shape"]] else None
    paths: dict[str | int | None, list[str]] = {}
    for file in files:
        # Delta's log has the paths escaped.
        path = unquote(file.path) if table == "delta" else file.path
        value: str | int | None = None if apart is None else values_of(path)[apart]
        if value is not None and apart in NUMBERS:
            value = int(value)
        paths.setdefault(value, []).append(_place(folder, table, path))
    return SparkFiles(owner["shape"], apart, paths)


def _place(folder: Location, table: str, path: str) -> str:
    """A file's path or URI by Hadoop's rules, which undo no escapes."""
    scheme, separator, rest = path.partition("://")
    if separator:
        return f"{HADOOP_SCHEMES.get(scheme, scheme)}://{rest}"
    place = folder.under(path) if table == "delta" else folder._replace(path=path)
    return f"file://{place.path}" if place.is_local else place.uri
