"""Upkeep of an Iceberg table from Python: small files put together, snapshots expired, and files
that no snapshot has any more removed.

PyIceberg has no such rewriting of its own. Each group of files is read by its scan and replaced in
one commit, which fails if somebody else has removed one of them since.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pipeline.filesystem import sync
from pipeline.tables.table import DATA
from pipeline.tables.upkeep import Done

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table as IcebergTable

    from pipeline.filesystem import Location
    from pipeline.tables.upkeep import Upkeep

COMPACTED = "compacted-"
"""What the names of files begin with that were put together."""


def maintain(table: IcebergTable, folder: Location, upkeep: Upkeep) -> Iterator[Done]:
    """Do it step by step. Raises what PyIceberg and file systems do."""
    for group in _groups(table, upkeep.file_bytes):
        if not upkeep.dry_run:
            _replace(table, folder, group, upkeep)
            table.refresh()
        yield Done("files put together", len(group))
    old = _old_snapshots(table, upkeep.older_than)
    if old and not upkeep.dry_run:
        table.maintenance.expire_snapshots().by_ids(old).commit()
        table.refresh()
    yield Done("snapshots expired", len(old))
    unused = _unused(table, folder, upkeep.older_than)
    for file in unused if not upkeep.dry_run else ():
        file.filesystem.delete_file(file.path)
    yield Done("files deleted", len(unused))


def _groups(table: IcebergTable, file_bytes: int) -> list[list[Any]]:
    """Scan tasks of files that are to be one: small ones of one partition of the table, by their
    offsets."""
    by_partition: dict[Any, list[Any]] = defaultdict(list)
    for task in table.scan().plan_files():
        file = task.file
        small = file.file_size_in_bytes < file_bytes
        # Those with deletes are left to engines that write deletes.
        if small and not task.delete_files and file.spec_id == table.spec().spec_id:
            by_partition[repr(file.partition)].append(task)
    groups = []
    for tasks in by_partition.values():
        group: list[Any] = []
        for task in sorted(tasks, key=_place):
            size = sum(one.file.file_size_in_bytes for one in group)
            if group and size + task.file.file_size_in_bytes > file_bytes:
                groups.append(group)
                group = []
            group.append(task)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def _place(task: Any) -> tuple[bytes, ...]:
    """Least values as Iceberg writes them: enough to have neighbours together."""
    bounds = task.file.lower_bounds or {}
    return tuple(bytes(reversed(bounds.get(number, b""))) for number in sorted(bounds)[:3])


def _replace(table: IcebergTable, folder: Location, group: list[Any], upkeep: Upkeep) -> None:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, parquet_file_to_data_file, schema_to_pyarrow

    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    upkeep.staging.make()
    name = f"{COMPACTED}{uuid.uuid4().hex}.parquet"
    staged, place = upkeep.staging.under(name), folder.under(DATA, name)
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    with (
        staged.filesystem.open_output_stream(staged.path) as stream,
        pq.ParquetWriter(stream, schema, compression="zstd") as writer,
    ):
        for task in group:
            for rows in scan.to_record_batches([task]):
                writer.write_table(pa.Table.from_batches([rows]).cast(schema))
    if staged.is_local:
        sync(staged.path)
    folder.under(DATA).make()
    staged.filesystem.move(staged.path, place.path)
    path = f"file://{place.path}" if place.is_local else place.uri
    # If that is not known to have come about, the file stays; unused ones are removed in time.
    with table.transaction() as change, change.update_snapshot().overwrite() as rewrite:
        for task in group:
            rewrite.delete_data_file(task.file)
        rewrite.append_data_file(parquet_file_to_data_file(table.io, table.metadata, path))


def _old_snapshots(table: IcebergTable, older_than: datetime) -> list[int]:
    kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
    limit = older_than.timestamp() * 1000
    return [
        one.snapshot_id
        for one in table.snapshots()
        if one.timestamp_ms < limit and one.snapshot_id not in kept
    ]


def _unused(table: IcebergTable, folder: Location, older_than: datetime) -> list[Location]:
    """Files below the table's folder that no snapshot and no metadata of it name."""
    used = {table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)}
    for snapshot in table.snapshots():
        used.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            used.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            used |= {entry.data_file.file_path for entry in entries}
    used |= {one.statistics_path for one in table.metadata.statistics}
    names = {path.partition("://")[2] or path for path in used}
    found = []
    for part in (DATA, "metadata"):
        selector = fs.FileSelector(folder.under(part).path, recursive=True, allow_not_found=True)
        for info in folder.filesystem.get_file_info(selector):
            if info.type != fs.FileType.File or info.path in names:
                continue
            changed = info.mtime
            if changed is not None and changed.replace(tzinfo=changed.tzinfo or UTC) < older_than:
                found.append(folder._replace(path=info.path))
    return found
