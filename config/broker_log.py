"""Keys of the broker: topics and their logs, most of them the fall-back of a topic's key."""

from __future__ import annotations

from config.declare import (
    NOT_EMPTY,
    Check,
    Settings,
    at_least,
    between,
    each_of,
    key,
    minus_one_or,
    one_of,
)
from config.formats import kafka_version
from config.kinds import INT_MAX, LONG_MAX, boolean, int32, int64, names, string

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES = ("compact", "delete")
NEVER_PREALLOCATED = "a file is never longer than its content, so that no crash leaves zeros in it"
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


POLICIES: Check[tuple[str, ...]] = Check(
    each_of(*CLEANUP_POLICIES).accepts, "compact, delete, both, or an empty list"
)


class LogSettings(Settings):
    """The settings of logs: folders, segments, flushes, retention and compaction."""

    log_dirs: str | None = key(
        "log.dirs",
        string,
        None,
        "The data directory. Kafka allows several, separated by commas; here it is one.",
        check=NOT_EMPTY,
        since="0.8.0",
    )
    log_dir: str = key(
        "log.dir",
        string,
        "./data",
        "The data directory, where log.dirs is not set.",
        check=NOT_EMPTY,
        since="0.8.0",
        default_note="a relative folder is found and removed more easily than one in /tmp",
    )
    num_recovery_threads_per_data_dir: int = key(
        "num.recovery.threads.per.data.dir",
        int32,
        1,
        "Logs checked at the same time after a crash.",
        check=at_least(1),
        since="0.8.2",
        unused="only what lies above the recovery points is checked, one log after the other",
        dynamic=True,
    )
    auto_create_topics_enable: bool = key(
        "auto.create.topics.enable",
        boolean,
        True,
        "Whether a topic comes into being when a client first asks for it.",
        since="0.8.0",
    )
    delete_topic_enable: bool = key(
        "delete.topic.enable", boolean, True, "Whether DeleteTopics is obeyed.", since="0.8.1"
    )
    num_partitions: int = key(
        "num.partitions",
        int32,
        1,
        "Partitions of a topic that is created without a count.",
        check=at_least(1),
        since="0.8.0",
    )
    default_replication_factor: int = key(
        "default.replication.factor",
        int32,
        1,
        "The replication factor of a topic that is created without one. There is one replica; "
        "see replication.factor.clamp for what happens to a wish above 1.",
        check=at_least(1),
        since="0.8.0",
    )
    replication_factor_clamp: bool = key(
        "replication.factor.clamp",
        boolean,
        False,
        "Whether a replication factor above 1 is taken as 1. Otherwise it is answered with "
        "INVALID_REPLICATION_FACTOR, as by a Kafka cluster of one broker.",
        since="triglot",
        dynamic=True,
    )
    min_insync_replicas: int = key(
        "min.insync.replicas",
        int32,
        1,
        "Replicas that must hold a record sent with acks=all. There is one; above 1 such "
        "records are refused with NOT_ENOUGH_REPLICAS, unless replication.factor.clamp is true.",
        check=at_least(1),
        since="0.8.2",
        dynamic=True,
    )
    log_segment_bytes: int = key(
        "log.segment.bytes",
        int32,
        1_073_741_824,
        "The size at which a segment is closed and a new one begun.",
        check=at_least(14),
        since="0.8.0",
        dynamic=True,
    )
    log_roll_ms: int | None = key(
        "log.roll.ms",
        int64,
        None,
        "The age at which a segment is closed. Unset, log.roll.hours holds.",
        check=at_least(1),
        since="0.8.2",
        dynamic=True,
    )
    log_roll_hours: int = key(
        "log.roll.hours",
        int32,
        168,
        "The age at which a segment is closed, where log.roll.ms is not set.",
        check=at_least(1),
        since="0.8.0",
    )
    log_roll_jitter_ms: int | None = key(
        "log.roll.jitter.ms",
        int64,
        None,
        "The most that is taken off a segment's age at random, so that not all logs roll at "
        "once. Unset, log.roll.jitter.hours holds.",
        check=at_least(0),
        since="0.8.2",
        dynamic=True,
    )
    log_roll_jitter_hours: int = key(
        "log.roll.jitter.hours",
        int32,
        0,
        "The same in hours, where log.roll.jitter.ms is not set.",
        check=at_least(0),
        since="0.8.2",
    )
    log_retention_ms: int | None = key(
        "log.retention.ms",
        int64,
        None,
        "How long records are kept; -1 for ever. Unset, log.retention.minutes holds.",
        check=minus_one_or(at_least(1)),
        since="0.8.2",
        dynamic=True,
    )
    log_retention_minutes: int | None = key(
        "log.retention.minutes",
        int32,
        None,
        "How long records are kept, where log.retention.ms is not set; -1 for ever. Unset, "
        "log.retention.hours holds.",
        check=minus_one_or(at_least(1)),
        since="0.8.1",
    )
    log_retention_hours: int = key(
        "log.retention.hours",
        int32,
        168,
        "How long records are kept, where neither log.retention.ms nor log.retention.minutes is "
        "set; -1 for ever.",
        check=minus_one_or(at_least(1)),
        since="0.8.0",
    )
    log_retention_bytes: int = key(
        "log.retention.bytes",
        int64,
        -1,
        "The size of a partition above which its oldest segments are dropped; -1 sets none.",
        check=at_least(-1),
        since="0.8.0",
        dynamic=True,
    )
    log_retention_check_interval_ms: int = key(
        "log.retention.check.interval.ms",
        int64,
        300_000,
        "Time between two looks for records that may be dropped.",
        check=at_least(1),
        since="0.8.1",
    )
    log_retention_wait_max_bytes: int = key(
        "log.retention.wait.max.bytes",
        int64,
        1_073_741_824,
        "Bytes of a partition that wait for the groups of its retention.wait.groups at most, "
        "besides what is kept anyway.",
        check=at_least(0),
        since="triglot",
        dynamic=True,
    )
    log_retention_wait_max_ms: int = key(
        "log.retention.wait.max.ms",
        int64,
        604_800_000,
        "How much older than retention.ms (0 if that is -1) a record may become while it waits for "
        "the groups of its topic's retention.wait.groups.",
        check=at_least(0),
        since="triglot",
        dynamic=True,
    )
    log_initial_task_delay_ms: int = key(
        "log.initial.task.delay.ms",
        int64,
        30_000,
        "Time after the start before retention, flushing and compaction begin.",
        check=at_least(0),
        since="3.8",
        internal=True,
    )
    log_cleanup_policy: tuple[str, ...] = key(
        "log.cleanup.policy",
        names,
        ("delete",),
        "What happens to old records: delete drops them by age and size, compact keeps the "
        "last one of every key; both may be given. An empty list keeps everything.",
        check=POLICIES,
        since="0.8.1",
        dynamic=True,
    )
    log_segment_delete_delay_ms: int = key(
        "log.segment.delete.delay.ms",
        int64,
        60_000,
        "Time between taking a segment out of a log and removing its files.",
        check=at_least(0),
        since="0.8.1",
        dynamic=True,
    )
    log_index_size_max_bytes: int = key(
        "log.index.size.max.bytes",
        int32,
        10_485_760,
        "The largest offset index; a segment is closed when its index is full.",
        check=at_least(4),
        since="0.8.0",
        dynamic=True,
    )
    log_index_interval_bytes: int = key(
        "log.index.interval.bytes",
        int32,
        4096,
        "Bytes of records between two entries of an index.",
        check=at_least(0),
        since="0.8.0",
        dynamic=True,
    )
    log_preallocate: bool = key(
        "log.preallocate",
        boolean,
        False,
        "Whether a new segment's file gets its full size at once.",
        since="0.9.0",
        dynamic=True,
        unused=NEVER_PREALLOCATED,
    )
    log_flush_policy: str = key(
        "log.flush.policy",
        string,
        "ack",
        "When records reach the disk. ack: before a write with acks=all is answered; one sync "
        "serves all writers that wait. interval: as the log.flush.* keys say, and every second "
        "where none does. os: whenever the system likes. The last two are what Kafka does, and "
        "lose records with the power.",
        check=one_of("ack", "interval", "os"),
        since="triglot",
        dynamic=True,
    )
    log_flush_interval_messages: int = key(
        "log.flush.interval.messages",
        int64,
        LONG_MAX,
        "Records appended to a log before it is flushed (log.flush.policy=interval).",
        check=at_least(1),
        since="0.8.0",
        dynamic=True,
    )
    log_flush_interval_ms: int | None = key(
        "log.flush.interval.ms",
        int64,
        None,
        "Age of the oldest record not flushed at which its log is flushed "
        "(log.flush.policy=interval). Unset, log.flush.scheduler.interval.ms holds.",
        check=at_least(0),
        since="0.8.0",
        dynamic=True,
    )
    log_flush_scheduler_interval_ms: int = key(
        "log.flush.scheduler.interval.ms",
        int64,
        LONG_MAX,
        "Time between two looks for logs to flush (log.flush.policy=interval); unless it is set, "
        "a second at most.",
        check=at_least(0),
        since="0.8.0",
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        "log.flush.offset.checkpoint.interval.ms",
        int32,
        5_000,
        "Time between two writes of the recovery points, below which a crash needs no check.",
        check=at_least(0),
        since="0.8.1",
        default_note="after a crash less has to be read",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = key(
        "log.flush.start.offset.checkpoint.interval.ms",
        int32,
        60_000,
        "Time between two writes of the logs' start offsets.",
        check=at_least(0),
        since="0.11.0",
    )
    message_max_bytes: int = key(
        "message.max.bytes",
        int32,
        1_048_588,
        "The largest batch of records accepted, as it is sent.",
        check=at_least(0),
        since="0.8.0",
        dynamic=True,
    )
    max_decompressed_batch_bytes: int = key(
        "max.decompressed.batch.bytes",
        int64,
        134_217_728,
        "The size a compressed batch may expand to. A larger one is answered with "
        "MESSAGE_TOO_LARGE. Never less than message.max.bytes: unless it is set, it grows with it.",
        check=between(1, INT_MAX),
        since="triglot",
        dynamic=True,
        floor="message.max.bytes",
    )
    max_decompression_ratio: int = key(
        "max.decompression.ratio",
        int32,
        2_000,
        "How many times its compressed size a batch may expand to where that is more than 1 MiB. "
        "A larger one is answered with MESSAGE_TOO_LARGE. gzip reaches 1032, for zeros.",
        check=at_least(1),
        since="triglot",
        dynamic=True,
    )
    conversion_cache_max_bytes: int = key(
        "conversion.cache.max.bytes",
        int64,
        33_554_432,
        "Memory for batches converted to an older format, shared by all readers; the least "
        "recently used go first. 0 keeps none.",
        check=at_least(0),
        since="triglot",
        dynamic=True,
    )
    log_scrub_interval_ms: int = key(
        "log.scrub.interval.ms",
        int64,
        604_800_000,
        "Time within which every sealed segment is read again and compared with its checksums; "
        "-1 never reads them. What is found damaged is logged, and not served.",
        check=at_least(-1),
        since="triglot",
        dynamic=True,
    )
    validation_level: str = key(
        "validation.level",
        string,
        "auto",
        "What is checked of a batch of format 2. header: lengths, checksum, all facts of its "
        "header, and that its bytes can hold the records it counts. records: also that it is "
        "consistent, which is every record of one that is not compressed, and the frames of one "
        "that is. strict: every record. auto: records where the loops in C are built, else header.",
        check=one_of("auto", "header", "records", "strict"),
        since="triglot",
        dynamic=True,
    )
    compression_type: str = key(
        "compression.type",
        string,
        "producer",
        "The codec batches are stored with; producer keeps the one they came with.",
        check=one_of(*COMPRESSION_TYPES),
        since="0.9.0",
        dynamic=True,
    )
    compression_gzip_level: int = key(
        "compression.gzip.level",
        int32,
        -1,
        "The gzip level where the broker compresses; -1 is the codec's own default.",
        check=minus_one_or(between(1, 9)),
        since="3.8",
        dynamic=True,
    )
    compression_lz4_level: int = key(
        "compression.lz4.level",
        int32,
        9,
        "The lz4 level where the broker compresses.",
        check=between(1, 17),
        since="3.8",
        dynamic=True,
    )
    compression_zstd_level: int = key(
        "compression.zstd.level",
        int32,
        3,
        "The zstd level where the broker compresses.",
        check=between(-131_072, 22),
        since="3.8",
        dynamic=True,
    )
    log_message_format_version: str = key(
        "log.message.format.version",
        kafka_version,
        "3.0-IV1",
        "The record format stored, by the Kafka release that brought it: 0 for 0.8 and 0.9, 1 "
        "for 0.10, 2 from 0.11. Clients that cannot read it are answered in one they can.",
        since="0.10.0",
    )
    log_message_timestamp_type: str = key(
        "log.message.timestamp.type",
        string,
        "CreateTime",
        "Whether records keep the producer's time or get the broker's.",
        check=one_of(*TIMESTAMP_TYPES),
        since="0.10.0",
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = key(
        "log.message.timestamp.before.max.ms",
        int64,
        LONG_MAX,
        "How far a record's time may lie before the broker's.",
        check=at_least(0),
        since="3.6",
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = key(
        "log.message.timestamp.after.max.ms",
        int64,
        LONG_MAX,
        "How far a record's time may lie after the broker's.",
        check=at_least(0),
        since="3.6",
        dynamic=True,
    )
    log_message_timestamp_difference_max_ms: int = key(
        "log.message.timestamp.difference.max.ms",
        int64,
        LONG_MAX,
        "The older name of both: it stands in for whichever of the two is unlimited.",
        check=at_least(0),
        since="0.10.0",
        dynamic=True,
    )
    log_message_downconversion_enable: bool = key(
        "log.message.downconversion.enable",
        boolean,
        True,
        "Whether records are converted for clients that cannot read the format stored; "
        "otherwise they are answered with UNSUPPORTED_VERSION.",
        since="2.0",
        dynamic=True,
    )
