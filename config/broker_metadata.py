"""Keys of the broker: the metadata log, its snapshots, and when what is old of both goes."""

from __future__ import annotations

from config.declare import Settings, at_least, key
from config.kinds import int32, int64, string


class MetadataSettings(Settings):
    """The settings of the metadata log: segments, snapshots and retention.

    A snapshot is due when any one of three rules says so: bytes of records, time, and (a rule of
    KIP-630's text that Kafka did not ship) a count of records.
    """

    metadata_log_dir: str | None = key(
        "metadata.log.dir",
        string,
        None,
        "Where Kafka may keep the metadata log apart from other logs.",
        since="2.8",
        unused="the metadata log is in the data directory",
    )
    metadata_log_segment_bytes: int = key(
        "metadata.log.segment.bytes",
        int32,
        1_073_741_824,
        "The size at which a segment of the metadata log is closed.",
        check=at_least(12),
        since="3.0",
    )
    metadata_log_segment_ms: int = key(
        "metadata.log.segment.ms",
        int64,
        604_800_000,
        "The age at which a segment of the metadata log is closed.",
        check=at_least(1),
        since="3.0",
    )
    metadata_max_retention_bytes: int = key(
        "metadata.max.retention.bytes",
        int64,
        104_857_600,
        "Size of metadata log and snapshots above which the oldest are dropped; -1 sets none.",
        check=at_least(-1),
        since="3.0",
    )
    metadata_max_retention_ms: int = key(
        "metadata.max.retention.ms",
        int64,
        604_800_000,
        "Age at which segments and snapshots of the metadata log are dropped; -1 never.",
        check=at_least(-1),
        since="3.0",
    )
    metadata_log_max_record_bytes_between_snapshots: int = key(
        "metadata.log.max.record.bytes.between.snapshots",
        int64,
        20_971_520,
        "Bytes of metadata records after which a new snapshot is written.",
        check=at_least(1),
        since="3.0",
    )
    metadata_log_max_snapshot_interval_ms: int = key(
        "metadata.log.max.snapshot.interval.ms",
        int64,
        3_600_000,
        "The longest time metadata records wait to be part of a snapshot; 0 sets none.",
        check=at_least(0),
        since="3.4",
    )
    controller_snapshot_minimum_records: int = key(
        "controller.snapshot.minimum.records",
        int64,
        0,
        "Metadata records after which a new snapshot is written, whatever their size (KIP-630). "
        "0 counts none, and leaves it to metadata.log.max.record.bytes.between.snapshots and "
        "metadata.log.max.snapshot.interval.ms, as Kafka does.",
        check=at_least(0),
        since="triglot",
        dynamic=True,
    )
    max_replication_lag_ms: int = key(
        "max.replication.lag.ms",
        int64,
        900_000,
        "How long old records of the metadata log wait for those who follow it and have not "
        "fetched them yet, before a snapshot takes their place (KIP-630). Who comes later gets "
        "the snapshot. 0 waits for nobody.",
        check=at_least(0),
        since="triglot",
    )
