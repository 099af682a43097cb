"""The records of the metadata log and of snapshots, as rows, and the checks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Malformed
from protocol.logdata.metadata import decode_control, decode_record, read_batch
from protocol.logdata.metadata_names import METADATA_TOPIC
from protocol.logdata.plain import plain
from protocol.primitives import read_uvarint
from storage.inspection.findings import Report
from storage.inspection.log_walk import Damage, LogWalk
from storage.layout import partition_of
from storage.metadata.snapshot_names import BOOTSTRAP, CHECKPOINT
from storage.metadata.snapshots import DamagedSnapshot, read_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.logdata.plain import Plain
    from storage.filesystem import Filesystem
    from storage.inspection.findings import Finding, Progress


def is_metadata(path: str, name: str) -> bool:
    """Whether records without a key in this file are of a cluster's metadata.

    `name` is the file's bare name. A snapshot that is in no partition's folder is taken for one of
    metadata; those of other partitions belong to whoever keeps state there.
    """
    partition = partition_of(path.rpartition("/")[0].rpartition("/")[2])
    if name == BOOTSTRAP or partition is None:
        return name.endswith(CHECKPOINT)
    return partition[0] == METADATA_TOPIC


def control_fields(key: bytes | None, value: bytes | None) -> dict[str, Plain]:
    """Type and content of a control record. Raises Malformed for one that is unknown."""
    record = decode_control(key, value)
    return {"type": type(record).__name__, "data": plain(record)}


def metadata_fields(value: bytes | None, *, content: bool) -> dict[str, Plain]:
    """Type and version of a record of metadata, and its content if that is wanted.

    Raises Malformed for what is none, or unknown.
    """
    if value is None:
        raise Malformed("a record of metadata without a value")
    record = decode_record(value)
    version = position = 0
    for _ in ("frame version", "api key", "version"):
        version, position = read_uvarint(value, position, len(value))
    fields: dict[str, Plain] = {"type": type(record).__name__, "version": version}
    if content:
        fields["data"] = plain(record)
    return fields


def metadata_faults(data: memoryview) -> Iterator[tuple[bool, str]]:
    """(whether it is an error, a sentence) of what is in a batch of the metadata log, all of it."""
    try:
        read_batch(data)
    except Malformed as error:
        yield True, str(error)


def check_snapshot(
    files: Filesystem, folder: str, name: str, partition: str, progress: Progress
) -> list[Finding]:
    """Check a `.checkpoint` from its header to its footer; of metadata each record.

    `partition` is the name in the findings, empty for a file at the top.
    """
    path = f"{folder}/{name}"
    report = Report(partition)
    try:
        _look_for_damage(files, path, name, report, progress)
        if not report.pending:
            for batch in read_snapshot(files, path):
                for _, value in batch.records if is_metadata(path, name) else ():
                    try:
                        decode_record(value)
                    except Malformed as error:
                        report.error("record", str(error), file=name, position=batch.position)
    except DamagedSnapshot as error:
        report.error("batch", error.reason, file=name, position=error.position)
    except OSError as error:
        report.error("unreadable", f"{error.strerror}", file=name)
    report.end_file()
    return report.taken()


def _look_for_damage(
    files: Filesystem, path: str, name: str, report: Report, progress: Progress
) -> None:
    file = files.open_to_read(path)
    for found in LogWalk(file, file.size(), progress=progress):
        if isinstance(found, Damage):
            reason = f"{found.size} bytes: {found.reason}"
            report.error(found.kind, reason, file=name, position=found.position)
    file.close()
