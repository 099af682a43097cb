"""Keys of a topic: each falls back to the broker's key it names.

`TopicSettings.of(broker, overrides)` is what a log, a produce and a fetch ask; it is made
when a topic is opened or its settings change, never per request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from config.broker_log import COMPRESSION_TYPES, NEVER_PREALLOCATED, POLICIES, TIMESTAMP_TYPES
from config.declare import Settings, at_least, between, key, minus_one_or, one_of
from config.errors import ConfigError, Problem, nearest_of
from config.formats import kafka_version, record_format
from config.kinds import LONG_MAX, boolean, double, int32, int64, names, string

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from config.broker import BrokerSettings
    from config.declare import Key

NO_FOLLOWERS = "there are no other replicas"
NO_TIERED_STORAGE = "there is no tiered storage"

# Broker keys in another unit than the topic key that falls back to them.
MS_PER_UNIT = {"hours": 3_600_000, "minutes": 60_000}


class TopicSettings(Settings):
    """The settings of one topic: its own, and the broker's where it has none.

    The two timestamp limits have `message.timestamp.difference.max.ms` worked in already:
    it stands in for whichever of them is unlimited. `record_format` is the magic that
    `message.format.version` asks for.
    """

    record_format: int

    cleanup_policy: tuple[str, ...] = key(
        "cleanup.policy",
        names,
        ("delete",),
        "What happens to old records: delete drops them by age and size, compact keeps the "
        "last one of every key; both may be given. An empty list keeps everything.",
        check=POLICIES,
        since="0.8.1",
        broker=("log.cleanup.policy",),
    )
    compression_type: str = key(
        "compression.type",
        string,
        "producer",
        "The codec batches are stored with; producer keeps the one they came with.",
        check=one_of(*COMPRESSION_TYPES),
        since="0.9.0",
        broker=("compression.type",),
    )
    compression_gzip_level: int = key(
        "compression.gzip.level",
        int32,
        -1,
        "The gzip level where the broker compresses; -1 is the codec's own default.",
        check=minus_one_or(between(1, 9)),
        since="3.8",
        broker=("compression.gzip.level",),
    )
    compression_lz4_level: int = key(
        "compression.lz4.level",
        int32,
        9,
        "The lz4 level where the broker compresses.",
        check=between(1, 17),
        since="3.8",
        broker=("compression.lz4.level",),
    )
    compression_zstd_level: int = key(
        "compression.zstd.level",
        int32,
        3,
        "The zstd level where the broker compresses.",
        check=between(-131_072, 22),
        since="3.8",
        broker=("compression.zstd.level",),
    )
    delete_retention_ms: int = key(
        "delete.retention.ms",
        int64,
        86_400_000,
        "How long a compacted log shows that a key was deleted.",
        check=at_least(0),
        since="0.8.1",
        broker=("log.cleaner.delete.retention.ms",),
    )
    file_delete_delay_ms: int = key(
        "file.delete.delay.ms",
        int64,
        60_000,
        "Time between taking a segment out of the log and removing its files.",
        check=at_least(0),
        since="0.8.1",
        broker=("log.segment.delete.delay.ms",),
    )
    flush_messages: int = key(
        "flush.messages",
        int64,
        LONG_MAX,
        "Records appended before the log is flushed (log.flush.policy=interval).",
        check=at_least(1),
        since="0.8.1",
        broker=("log.flush.interval.messages",),
    )
    flush_ms: int = key(
        "flush.ms",
        int64,
        LONG_MAX,
        "Age of the oldest record not flushed at which the log is (log.flush.policy=interval).",
        check=at_least(0),
        since="0.8.1",
        broker=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = key(
        "follower.replication.throttled.replicas",
        names,
        (),
        "Replicas whose followers copy slowly.",
        since="0.10.1",
        unused=NO_FOLLOWERS,
    )
    index_interval_bytes: int = key(
        "index.interval.bytes",
        int32,
        4096,
        "Bytes of records between two entries of an index.",
        check=at_least(0),
        since="0.8.1",
        broker=("log.index.interval.bytes",),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = key(
        "leader.replication.throttled.replicas",
        names,
        (),
        "Replicas that are copied from slowly.",
        since="0.10.1",
        unused=NO_FOLLOWERS,
    )
    local_retention_bytes: int = key(
        "local.retention.bytes",
        int64,
        -2,
        "What of a tiered log is kept here, by size.",
        check=at_least(-2),
        since="3.0",
        broker=("log.local.retention.bytes",),
        unused=NO_TIERED_STORAGE,
    )
    local_retention_ms: int = key(
        "local.retention.ms",
        int64,
        -2,
        "What of a tiered log is kept here, by age.",
        check=at_least(-2),
        since="3.0",
        broker=("log.local.retention.ms",),
        unused=NO_TIERED_STORAGE,
    )
    max_compaction_lag_ms: int = key(
        "max.compaction.lag.ms",
        int64,
        LONG_MAX,
        "Age at which a record is compacted whatever the ratio.",
        check=at_least(1),
        since="2.3",
        broker=("log.cleaner.max.compaction.lag.ms",),
    )
    max_message_bytes: int = key(
        "max.message.bytes",
        int32,
        1_048_588,
        "The largest batch of records accepted, as it is sent.",
        check=at_least(0),
        since="0.8.1",
        broker=("message.max.bytes",),
    )
    message_downconversion_enable: bool = key(
        "message.downconversion.enable",
        boolean,
        True,
        "Whether records are converted for clients that cannot read the format stored.",
        since="2.0",
        broker=("log.message.downconversion.enable",),
    )
    message_format_version: str = key(
        "message.format.version",
        kafka_version,
        "3.0-IV1",
        "The record format stored, by the Kafka release that brought it: 0 for 0.8 and 0.9, 1 "
        "for 0.10, 2 from 0.11. A change holds for records that come after it.",
        since="0.10.0",
        broker=("log.message.format.version",),
    )
    message_timestamp_after_max_ms: int = key(
        "message.timestamp.after.max.ms",
        int64,
        LONG_MAX,
        "How far a record's time may lie after the broker's.",
        check=at_least(0),
        since="3.6",
        broker=("log.message.timestamp.after.max.ms",),
    )
    message_timestamp_before_max_ms: int = key(
        "message.timestamp.before.max.ms",
        int64,
        LONG_MAX,
        "How far a record's time may lie before the broker's.",
        check=at_least(0),
        since="3.6",
        broker=("log.message.timestamp.before.max.ms",),
    )
    message_timestamp_difference_max_ms: int = key(
        "message.timestamp.difference.max.ms",
        int64,
        LONG_MAX,
        "The older name of both: it stands in for whichever of the two is unlimited.",
        check=at_least(0),
        since="0.10.0",
        broker=("log.message.timestamp.difference.max.ms",),
    )
    message_timestamp_type: str = key(
        "message.timestamp.type",
        string,
        "CreateTime",
        "Whether records keep the producer's time or get the broker's.",
        check=one_of(*TIMESTAMP_TYPES),
        since="0.10.0",
        broker=("log.message.timestamp.type",),
    )
    min_cleanable_dirty_ratio: float = key(
        "min.cleanable.dirty.ratio",
        double,
        0.5,
        "The share of the log not compacted yet from which compacting it is worth while.",
        check=between(0, 1),
        since="0.8.1",
        broker=("log.cleaner.min.cleanable.ratio",),
    )
    min_compaction_lag_ms: int = key(
        "min.compaction.lag.ms",
        int64,
        0,
        "Age below which a record is not compacted away.",
        check=at_least(0),
        since="0.10.1",
        broker=("log.cleaner.min.compaction.lag.ms",),
    )
    min_insync_replicas: int = key(
        "min.insync.replicas",
        int32,
        1,
        "Replicas that must hold a record sent with acks=all. There is one; above 1 such "
        "records are refused with NOT_ENOUGH_REPLICAS.",
        check=at_least(1),
        since="0.8.2",
        broker=("min.insync.replicas",),
    )
    preallocate: bool = key(
        "preallocate",
        boolean,
        False,
        "Whether a new segment's file gets its full size at once.",
        since="0.9.0",
        broker=("log.preallocate",),
        unused=NEVER_PREALLOCATED,
    )
    remote_log_copy_disable: bool = key(
        "remote.log.copy.disable",
        boolean,
        False,
        "Whether a tiered log is no longer copied away.",
        since="3.9",
        unused=NO_TIERED_STORAGE,
    )
    remote_log_delete_on_disable: bool = key(
        "remote.log.delete.on.disable",
        boolean,
        False,
        "Whether the distant part of a log is dropped when tiering ends.",
        since="3.9",
        unused=NO_TIERED_STORAGE,
    )
    remote_storage_enable: bool = key(
        "remote.storage.enable",
        boolean,
        False,
        "Whether the log is tiered.",
        since="3.0",
        unused=NO_TIERED_STORAGE,
    )
    retention_bytes: int = key(
        "retention.bytes",
        int64,
        -1,
        "The size of a partition above which its oldest segments are dropped; -1 sets none.",
        check=at_least(-1),
        since="0.8.1",
        broker=("log.retention.bytes",),
    )
    retention_ms: int = key(
        "retention.ms",
        int64,
        604_800_000,
        "How long records are kept; -1 for ever.",
        check=at_least(-1),
        since="0.8.1",
        broker=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    retention_min_timestamp: int = key(
        "retention.min.timestamp",
        int64,
        -1,
        "Records older than this moment (ms since 1970) are dropped, whatever their age; -1 sets "
        "none.",
        check=at_least(-1),
        since="triglot",
    )
    retention_wait_groups: tuple[str, ...] = key(
        "retention.wait.groups",
        names,
        (),
        "Groups for whose commits records wait before they are dropped by age or size, within "
        "retention.wait.max.bytes and retention.wait.max.ms.",
        since="triglot",
    )
    retention_wait_max_bytes: int = key(
        "retention.wait.max.bytes",
        int64,
        1_073_741_824,
        "Bytes of a partition that wait for retention.wait.groups at most, besides what is kept "
        "anyway; what is above goes, the oldest records first.",
        check=at_least(0),
        since="triglot",
        broker=("log.retention.wait.max.bytes",),
    )
    retention_wait_max_ms: int = key(
        "retention.wait.max.ms",
        int64,
        604_800_000,
        "How much older than retention.ms (0 for -1) a record may become while it waits for them.",
        check=at_least(0),
        since="triglot",
        broker=("log.retention.wait.max.ms",),
    )
    segment_bytes: int = key(
        "segment.bytes",
        int32,
        1_073_741_824,
        "The size at which a segment is closed and a new one begun.",
        check=at_least(14),
        since="0.8.1",
        broker=("log.segment.bytes",),
    )
    segment_index_bytes: int = key(
        "segment.index.bytes",
        int32,
        10_485_760,
        "The largest offset index; a segment is closed when its index is full.",
        check=at_least(4),
        since="0.8.1",
        broker=("log.index.size.max.bytes",),
    )
    segment_jitter_ms: int = key(
        "segment.jitter.ms",
        int64,
        0,
        "The most that is taken off segment.ms at random, so that not all logs roll at once.",
        check=at_least(0),
        since="0.8.2",
        broker=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    )
    segment_ms: int = key(
        "segment.ms",
        int64,
        604_800_000,
        "The age at which a segment is closed.",
        check=at_least(1),
        since="0.8.1",
        broker=("log.roll.ms", "log.roll.hours"),
    )
    unclean_leader_election_enable: bool = key(
        "unclean.leader.election.enable",
        boolean,
        False,
        "Whether a replica that lags behind may lead when no other is left.",
        since="0.8.2",
        broker=("unclean.leader.election.enable",),
        unused=NO_FOLLOWERS,
    )

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._fill(values)

    @classmethod
    def of(cls, broker: BrokerSettings, overrides: Mapping[str, str]) -> TopicSettings:
        """The settings of a topic with these of its own, as texts by key.

        ConfigError carries everything that is wrong with them, alone and together.
        """
        problems: list[Problem] = []
        values = dict(_inherited(broker))
        for name, text in overrides.items():
            try:
                values[_known(name).attribute] = _parsed(name, text)
            except ConfigError as error:
                problems += error.problems
        if not problems:
            problems = list(_broken_rules(values, overrides))
        if problems:
            raise ConfigError(problems)
        return cls(_settled(values))


SOURCE = "topic configuration"


def is_list(name: str) -> bool:
    """Whether values can be appended to and subtracted from this key of a topic or broker."""
    from config.keys import known_key

    key = TopicSettings.KEYS.get(name) or known_key(name)
    return key is not None and key.kind is names


def _known(name: str) -> Key:
    key = TopicSettings.KEYS.get(name)
    if key is None:
        nearest = nearest_of(name, TopicSettings.KEYS)
        # Kafka's words, with the name behind them: programs and their tests look for both.
        raise ConfigError([Problem("Unknown topic config name", name, None, "", nearest)])
    return key


def _parsed(name: str, text: str) -> Any:
    key = _known(name)
    try:
        return key.parse(text)
    except ValueError as error:
        raise ConfigError([key.problem(SOURCE, text, str(error))]) from None


def inherited_value(broker: BrokerSettings, key: Key) -> Any:
    """The broker's value for a topic key, in the topic key's unit; else the key's own default."""
    for name in key.broker:
        value = getattr(broker, name.replace(".", "_"))
        if value is not None:
            return in_ms(name, value)
    return key.default


def in_ms(name: str, value: Any) -> Any:
    """The value of a broker key given in hours or minutes, in milliseconds; -1 stays."""
    unit = MS_PER_UNIT.get(name.rpartition(".")[2])
    return value if unit is None or value < 0 else value * unit


def _inherited(broker: BrokerSettings) -> Mapping[str, Any]:
    """The values of a topic without settings of its own; kept, since most topics have none."""
    kept: dict[str, Any] | None = broker.__dict__["_topic_values"]
    if kept is None:
        kept = {key.attribute: inherited_value(broker, key) for key in TopicSettings.KEYS.values()}
        broker.__dict__["_topic_values"] = kept
    return kept


def _broken_rules(values: Mapping[str, Any], overrides: Mapping[str, str]) -> Iterator[Problem]:
    if values["compression_type"] == "zstd" and record_format(values["message_format_version"]) < 2:
        name = "compression.type" if "compression.type" in overrides else "message.format.version"
        version = values["message_format_version"]
        reason = f"records of message.format.version {version} cannot be compressed with zstd"
        yield Problem(SOURCE, name, overrides.get(name), reason)
    if values["min_compaction_lag_ms"] > values["max_compaction_lag_ms"]:
        name = next(
            one for one in ("min.compaction.lag.ms", "max.compaction.lag.ms") if one in overrides
        )
        reason = "min.compaction.lag.ms may not be above max.compaction.lag.ms"
        yield Problem(SOURCE, name, overrides[name], reason)


def _settled(values: dict[str, Any]) -> dict[str, Any]:
    """The values with what follows from them worked in."""
    difference = values["message_timestamp_difference_max_ms"]
    for name in ("message_timestamp_before_max_ms", "message_timestamp_after_max_ms"):
        if values[name] == LONG_MAX:
            values[name] = difference
    values["record_format"] = record_format(values["message_format_version"])
    return values
