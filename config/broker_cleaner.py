"""Keys of the broker: compaction."""

from __future__ import annotations

from config.declare import Settings, at_least, between, key
from config.kinds import LONG_MAX, boolean, double, int64


class CleanerSettings(Settings):
    """The settings of compaction."""

    log_cleaner_enable: bool = key(
        "log.cleaner.enable",
        boolean,
        True,
        "Whether logs with the policy compact are compacted.",
        since="0.8.1",
    )
    log_cleaner_backoff_ms: int = key(
        "log.cleaner.backoff.ms",
        int64,
        15_000,
        "Time between two looks for logs to compact.",
        check=at_least(0),
        since="0.8.1",
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = key(
        "log.cleaner.dedupe.buffer.size",
        int64,
        134_217_728,
        "Bytes the map of keys may take while a log is compacted.",
        check=at_least(1_048_576),
        since="0.8.1",
        dynamic=True,
    )
    log_cleaner_io_max_bytes_per_second: float = key(
        "log.cleaner.io.max.bytes.per.second",
        double,
        1.7976931348623157e308,
        "Bytes that compaction reads and writes in a second, at most.",
        since="0.8.1",
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = key(
        "log.cleaner.min.cleanable.ratio",
        double,
        0.5,
        "The share of a log not compacted yet from which compacting it is worth while.",
        check=between(0, 1),
        since="0.8.1",
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = key(
        "log.cleaner.delete.retention.ms",
        int64,
        86_400_000,
        "How long a compacted log shows that a key was deleted.",
        check=at_least(0),
        since="0.8.1",
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = key(
        "log.cleaner.min.compaction.lag.ms",
        int64,
        0,
        "Age below which a record is not compacted away.",
        check=at_least(0),
        since="0.10.1",
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = key(
        "log.cleaner.max.compaction.lag.ms",
        int64,
        LONG_MAX,
        "Age at which a record is compacted whatever the ratio.",
        check=at_least(1),
        since="2.3",
        dynamic=True,
    )
