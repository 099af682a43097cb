"""Snapshots for tests, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.metadata.snapshots import SnapshotId, SnapshotWriter, read_snapshot
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from protocol.logdata.metadata import ControlRecord
    from storage.filesystem import Filesystem

    Entry = tuple[bytes | None, bytes]

FOLDER = "/data/__cluster_metadata-0"
NOW_MS = 1_700_000_000_000
LAST_MS = NOW_MS - 60_000
ID = SnapshotId(123, 4)

ENTRIES: list[Entry] = [
    (None, b"a value"),
    (None, b""),
    (b"a key", b"its value"),
    (b"", b"of an empty key"),
]


def memory() -> MemoryFilesystem:
    """A file system in which the folder is."""
    files = MemoryFilesystem()
    files.make_dir(FOLDER)
    files.sync_all()
    return files


def write(
    files: Filesystem,
    snapshot_id: SnapshotId = ID,
    *appends: Iterable[Entry],
    first_records: Sequence[ControlRecord] = (),
    folder: str = FOLDER,
    unique: str = "1",
) -> str:
    """Write a snapshot of these records, `ENTRIES` if there are none given; its path."""
    writer = SnapshotWriter(
        files,
        folder,
        snapshot_id,
        last_contained_ms=LAST_MS,
        unique=unique,
        first_records=first_records,
        now_ms=NOW_MS,
    )
    with writer:
        for records in appends or (ENTRIES,):
            writer.append(records)
        writer.finish()
    return writer.path


def entries_of(files: Filesystem, path: str) -> list[Entry]:
    """All records of data of a snapshot that is whole."""
    return [entry for batch in read_snapshot(files, path) for entry in batch.records]
