"""The first records of a metadata log: those of `bootstrap.checkpoint` (KIP-833).

A new directory gets that file beside `meta.properties`: a snapshot that ends at offset 0, with the
level of metadata.version, and whatever `kafka-storage format` put there. What if it is lost: once
the log has begun it is not read any more; before that, a log begins with our own level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Malformed
from protocol.logdata.metadata import (
    MAX_METADATA_VERSION,
    METADATA_VERSION,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    control_batch,
    decode_record,
    encode_record,
    metadata_batch,
)
from storage.errors import DataDirectoryError
from storage.metadata.image import METADATA_VERSION_FEATURE
from storage.metadata.snapshots import BOOTSTRAP, read_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.logdata.metadata import MetadataRecord
    from storage.filesystem import Filesystem

TRANSACTIONS_SINCE = 13
"""The metadata.version that has transactions in its log (KIP-868)."""
NAME = "Bootstrap records"


def encode_bootstrap(now_ms: int) -> bytes:
    """The file of a new directory."""
    level = FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=METADATA_VERSION)
    header = SnapshotHeaderRecord(last_contained_log_timestamp=0)
    place = {"epoch": 0, "timestamp_ms": now_ms}
    return bytes(
        control_batch([header], base_offset=0, **place)
        + metadata_batch([encode_record(level)], base_offset=1, **place)
        + control_batch([SnapshotFooterRecord()], base_offset=2, **place)
    )


def read_bootstrap(files: Filesystem, path: str) -> list[MetadataRecord]:
    """The records of the file in the data directory `path`.

    Raises DataDirectoryError for one that is damaged or of a later Kafka, OSError.
    """
    where = f"{path}/{BOOTSTRAP}"
    try:
        records = [
            decode_record(value)
            for batch in read_snapshot(files, where)
            for _, value in batch.records
        ]
    except Malformed as error:
        raise DataDirectoryError(f"{where}: {error}: format the directory again") from error
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION_FEATURE:
            if record.feature_level > MAX_METADATA_VERSION:
                raise DataDirectoryError(
                    f"{where}: metadata.version is {record.feature_level}, known are 1 to "
                    f"{MAX_METADATA_VERSION}: it was made by a later Kafka; use a later triglot"
                )
            return records
    raise DataDirectoryError(
        f"{where}: it names no metadata.version: remove it for that of this triglot"
    )


def in_transaction(records: Sequence[MetadataRecord]) -> list[MetadataRecord]:
    """These records as one transaction."""
    return [BeginTransactionRecord(name=NAME), *records, EndTransactionRecord()]
