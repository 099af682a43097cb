"""Keys of the broker: consumer groups, committed offsets, producers and transactions."""

from __future__ import annotations

from config.declare import Settings, at_least, each_of, key, minus_one_or, one_of
from config.kinds import INT_MAX, boolean, int16, int32, int64, names, string

UNLIMITED = "offsets of a quiet group are not lost; Kafka drops them after 7 days"
ONE_REPLICA = "there is one broker"

UNIFORM = "org.apache.kafka.coordinator.group.assignor.UniformAssignor"
RANGE = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"

_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")


class GroupSettings(Settings):
    """The settings of groups and of their coordinator."""

    group_min_session_timeout_ms: int = key(
        "group.min.session.timeout.ms",
        int32,
        6000,
        "The shortest session timeout a member may ask for.",
        check=at_least(0),
        since="0.9.0",
    )
    group_max_session_timeout_ms: int = key(
        "group.max.session.timeout.ms",
        int32,
        1_800_000,
        "The longest session timeout a member may ask for.",
        check=at_least(0),
        since="0.9.0",
    )
    group_initial_rebalance_delay_ms: int = key(
        "group.initial.rebalance.delay.ms",
        int32,
        0,
        "How long an empty group waits for more members after the first has joined. At 0 it waits "
        "for those that it sees signs of: at most 120 ms, 15 ms where there are none.",
        check=at_least(0),
        since="0.11.0",
        default_note="a single member, the usual case on one machine, hardly waits",
    )
    group_max_size: int = key(
        "group.max.size",
        int32,
        INT_MAX,
        "Members a group may have.",
        check=at_least(1),
        since="2.2",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = key(
        "group.coordinator.rebalance.protocols",
        names,
        ("classic", "consumer"),
        "The group protocols offered: classic, consumer (KIP-848).",
        check=each_of("consumer", "classic", "share", "unknown"),
        since="3.7",
        default_note="as in Kafka 4",
    )
    group_consumer_migration_policy: str = key(
        "group.consumer.migration.policy",
        string,
        "bidirectional",
        "Whether a group with members may change its protocol while it runs: upgrade to KIP-848 "
        "when the first such member comes, downgrade when the last has gone, both, or neither "
        "(disabled). A group without members always may.",
        check=one_of(*_POLICIES, *(policy.upper() for policy in _POLICIES)),
        since="3.7",
        default_note="as in Kafka 4",
    )
    group_consumer_session_timeout_ms: int = key(
        "group.consumer.session.timeout.ms",
        int32,
        45_000,
        "Silence after which a member of a consumer group (KIP-848) is dropped.",
        check=at_least(1),
        since="3.5",
    )
    group_consumer_min_session_timeout_ms: int = key(
        "group.consumer.min.session.timeout.ms",
        int32,
        45_000,
        "The least a group may set as its session timeout.",
        check=at_least(1),
        since="3.5",
    )
    group_consumer_max_session_timeout_ms: int = key(
        "group.consumer.max.session.timeout.ms",
        int32,
        60_000,
        "The most a group may set as its session timeout.",
        check=at_least(1),
        since="3.5",
    )
    group_consumer_heartbeat_interval_ms: int = key(
        "group.consumer.heartbeat.interval.ms",
        int32,
        5000,
        "Time between two heartbeats, as members of consumer groups are told.",
        check=at_least(1),
        since="3.5",
    )
    group_consumer_min_heartbeat_interval_ms: int = key(
        "group.consumer.min.heartbeat.interval.ms",
        int32,
        5000,
        "The least a group may set as its heartbeat interval.",
        check=at_least(1),
        since="3.5",
    )
    group_consumer_max_heartbeat_interval_ms: int = key(
        "group.consumer.max.heartbeat.interval.ms",
        int32,
        15_000,
        "The most a group may set as its heartbeat interval.",
        check=at_least(1),
        since="3.5",
    )
    group_consumer_max_size: int = key(
        "group.consumer.max.size",
        int32,
        INT_MAX,
        "Members a consumer group (KIP-848) may have.",
        check=at_least(1),
        since="3.5",
    )
    group_consumer_assignors: tuple[str, ...] = key(
        "group.consumer.assignors",
        names,
        (UNIFORM, RANGE),
        "How partitions are shared out on the broker's side; the first is the default. Known "
        "are Kafka's two, uniform and range, by their class or by that word.",
        check=each_of(UNIFORM, RANGE, "uniform", "range"),
        since="3.5",
    )
    offset_metadata_max_bytes: int = key(
        "offset.metadata.max.bytes",
        int32,
        4096,
        "The longest text a client may store with a committed offset.",
        check=at_least(0),
        since="0.8.1",
    )
    offsets_commit_conditional_enable: bool = key(
        "offsets.commit.conditional.enable",
        boolean,
        False,
        "Experimental: a commit may say which offset it expects to replace, in a tagged field of "
        "OffsetCommit from version 8 on (tag 10000, int64, -1 for none), and is refused as a whole "
        "with INVALID_REQUEST if it finds another one. While this is off, it is refused as well.",
        since="triglot",
        dynamic=True,
    )
    offsets_topic_num_partitions: int = key(
        "offsets.topic.num.partitions",
        int32,
        50,
        "Partitions of __consumer_offsets; not changed once the topic exists.",
        check=at_least(1),
        since="0.8.2",
    )
    offsets_topic_replication_factor: int = key(
        "offsets.topic.replication.factor",
        int16,
        1,
        "The replication factor of __consumer_offsets.",
        check=at_least(1),
        since="0.8.2",
        unused="there is one replica, whatever is set",
        default_note=ONE_REPLICA,
    )
    offsets_topic_segment_bytes: int = key(
        "offsets.topic.segment.bytes",
        int32,
        104_857_600,
        "Segment size of __consumer_offsets.",
        check=at_least(1),
        since="0.8.2",
    )
    offsets_retention_minutes: int = key(
        "offsets.retention.minutes",
        int32,
        -1,
        "How long the offsets of a group without members are kept; -1 for ever.",
        check=minus_one_or(at_least(1)),
        since="0.8.2",
        default_note=UNLIMITED,
    )
    offsets_retention_check_interval_ms: int = key(
        "offsets.retention.check.interval.ms",
        int64,
        600_000,
        "Time between two looks for offsets that may be dropped.",
        check=at_least(1),
        since="0.8.2",
    )
    transaction_max_timeout_ms: int = key(
        "transaction.max.timeout.ms",
        int32,
        900_000,
        "The longest transaction timeout a producer may ask for.",
        check=at_least(1),
        since="0.11.0",
    )
    transaction_two_phase_commit_enable: bool = key(
        "transaction.two.phase.commit.enable",
        boolean,
        False,
        "Whether producers may take part in two-phase commits (KIP-939): their transactions have "
        "no time-out, whatever transaction.max.timeout.ms says.",
        since="4.1",
    )
    transactional_id_expiration_ms: int = key(
        "transactional.id.expiration.ms",
        int32,
        604_800_000,
        "How long a transactional id that is not used is remembered.",
        check=at_least(1),
        since="0.11.0",
    )
    transaction_partition_verification_enable: bool = key(
        "transaction.partition.verification.enable",
        boolean,
        True,
        "Ask the coordinator, before a transactional batch or offset is stored, whether its "
        "partition was added to the transaction. Otherwise a late batch may begin a transaction "
        "that nobody ends. Producers that speak Produce v12 add partitions by writing to them, "
        "whatever is set.",
        since="3.6",
        dynamic=True,
    )
    transaction_state_log_num_partitions: int = key(
        "transaction.state.log.num.partitions",
        int32,
        50,
        "Partitions of __transaction_state; not changed once the topic exists.",
        check=at_least(1),
        since="0.11.0",
    )
    transaction_state_log_segment_bytes: int = key(
        "transaction.state.log.segment.bytes",
        int32,
        104_857_600,
        "Segment size of __transaction_state.",
        check=at_least(1),
        since="0.11.0",
    )
    transaction_state_log_replication_factor: int = key(
        "transaction.state.log.replication.factor",
        int16,
        1,
        "The replication factor of __transaction_state.",
        check=at_least(1),
        since="0.11.0",
        unused="there is one replica, whatever is set",
        default_note=ONE_REPLICA,
    )
    transaction_state_log_min_isr: int = key(
        "transaction.state.log.min.isr",
        int32,
        1,
        "min.insync.replicas of __transaction_state.",
        check=at_least(1),
        since="0.11.0",
        unused="there is one replica, whatever is set",
        default_note=ONE_REPLICA,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        int32,
        10_000,
        "Time between two looks for transactions that have timed out.",
        check=at_least(1),
        since="0.11.0",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        int32,
        3_600_000,
        "Time between two looks for transactional ids to forget.",
        check=at_least(1),
        since="0.11.0",
    )
    producer_id_expiration_ms: int = key(
        "producer.id.expiration.ms",
        int32,
        86_400_000,
        "How long a partition remembers a producer that writes nothing, at the least: it is "
        "forgotten at the next look. A retry after that is no longer recognised.",
        check=at_least(1),
        since="3.4",
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = key(
        "producer.id.expiration.check.interval.ms",
        int32,
        600_000,
        "Time between two looks for producers to forget.",
        check=at_least(1),
        since="3.4",
        internal=True,
    )
