"""Keys of the broker: who this node is, and its quotas."""

from __future__ import annotations

from config.declare import NOT_EMPTY, Settings, at_least, each_of, key
from config.formats import kafka_version, process_count
from config.kinds import boolean, int32, int64, names, string


class NodeSettings(Settings):
    """The node's name in its cluster of one, and what does not belong to a single topic."""

    node_id: int = key(
        "node.id",
        int32,
        1,
        "The number of this broker, which clients see. broker.id is its older name; where both "
        "are set they must agree.",
        check=at_least(0),
        since="2.8",
        default_note="Kafka has none and refuses to start",
    )
    broker_id: int = key(
        "broker.id",
        int32,
        1,
        "The older name of node.id; -1, which lets Kafka choose, is 1 here.",
        check=at_least(-1),
        since="0.8.0",
        default_note="it is the same number as node.id",
    )
    cluster_id: str | None = key(
        "cluster.id",
        string,
        None,
        "The cluster id the data directory must have (meta.properties); with another one the "
        "broker does not start. Unset, any will do, and a new directory gets a random one.",
        check=NOT_EMPTY,
        since="triglot",
    )
    broker_processes: int = key(
        "broker.processes",
        process_count,
        1,
        "Processes that share the partitions of the data directory, each a broker with an id and "
        "ports of its own, counted up from node.id and the ports of listeners. auto is one for "
        "each core. Linux alone; docs/processes.md says what is refused above 1.",
        since="triglot",
    )
    broker_rack: str | None = key(
        "broker.rack",
        string,
        None,
        "The rack clients are told the broker stands in.",
        since="0.10.0",
    )
    process_roles: tuple[str, ...] = key(
        "process.roles",
        names,
        (),
        "What a Kafka node is. The broker's part is always played here, and the controller's "
        "with it; a node that is only a controller cannot be replaced.",
        check=each_of("broker", "controller"),
        since="2.8",
    )
    inter_broker_protocol_version: str = key(
        "inter.broker.protocol.version",
        kafka_version,
        "3.9-IV0",
        "What a Kafka cluster's brokers speak to each other. Shown to tools; where it is set, "
        "log.message.format.version may not be newer. Below 2.1 zstd is refused.",
        since="0.9.0",
    )
    background_threads: int = key(
        "background.threads",
        int32,
        10,
        "Threads that convert, compact and read cold data, at most.",
        check=at_least(1),
        since="0.8.1",
        unused="each kind of background work has its own few threads",
        dynamic=True,
    )
    quota_window_num: int = key(
        "quota.window.num",
        int32,
        11,
        "Windows over which a client's rate is taken.",
        check=at_least(1),
        since="0.9.0",
    )
    quota_window_size_seconds: int = key(
        "quota.window.size.seconds",
        int32,
        1,
        "Length of one of these windows.",
        check=at_least(1),
        since="0.9.0",
    )
    controller_quota_window_num: int = key(
        "controller.quota.window.num",
        int32,
        11,
        "Windows over which a client's rate of creating and deleting topics is taken.",
        check=at_least(1),
        since="2.7",
    )
    controller_quota_window_size_seconds: int = key(
        "controller.quota.window.size.seconds",
        int32,
        1,
        "Length of one of these windows.",
        check=at_least(1),
        since="2.7",
    )
    clock_jump_wait_ms: int = key(
        "clock.jump.wait.ms",
        int64,
        86_400_000,
        "How long the system's clock must go on saying a time to which it has jumped before "
        "anything is deleted for its age by it; and how long a broker may have been off without "
        "that this counts as a jump. 0 believes the clock at once: to confirm a jump, set it and "
        "set it back.",
        check=at_least(0),
        since="triglot",
        dynamic=True,
    )
    disk_reserve_bytes: int = key(
        "disk.reserve.bytes",
        int64,
        8_388_608,
        "Room that is kept free in the data directory by a file that holds nothing. It is given "
        "up when the disk is full, so that clean-up and a stop can finish. 0 keeps none.",
        check=at_least(0),
        since="triglot",
        dynamic=True,
    )
    log_local_retention_ms: int = key(
        "log.local.retention.ms",
        int64,
        -2,
        "What of a tiered log is kept here, by age.",
        check=at_least(-2),
        since="3.6",
        dynamic=True,
        unused="there is no tiered storage",
    )
    log_local_retention_bytes: int = key(
        "log.local.retention.bytes",
        int64,
        -2,
        "What of a tiered log is kept here, by size.",
        check=at_least(-2),
        since="3.6",
        dynamic=True,
        unused="there is no tiered storage",
    )
    unclean_leader_election_enable: bool = key(
        "unclean.leader.election.enable",
        boolean,
        False,
        "Whether a replica that lags behind may lead when no other is left.",
        since="0.8.2",
        dynamic=True,
        unused="there are no other replicas",
    )
