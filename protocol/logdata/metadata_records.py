"""The records of `__cluster_metadata`, the log that KIP-500 and KIP-631 describe.

Names, fields and numbers are those of Kafka's schemas up to 4.4. All versions of all of them are
flexible. What frames a record, and which version is written, is in `metadata_codec`.

Broker ids are int32, epochs too but that of a broker, which is int64: the offset of its
registration. A topic or directory id is a uuid. Times are ms since 1970.
"""

from __future__ import annotations

from protocol.schema import (
    Struct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)

NO_LEADER = -1
NO_LEADER_CHANGE = -2
"""The leader of a PartitionChangeRecord that leaves the leader alone."""


class EndPoint(Struct):
    """The address of a broker or controller, by the name of the listener.

    Security protocols: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    """The levels of a feature that a broker or controller can work with."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Struct, versions="0-4", flexible="0+"):
    """A process of a broker has come up; its epoch is the offset of this very record.

    1 has the controlled shutdown, 2 the migration from ZooKeeper, 3 the directories (KIP-858), 4
    those of them that take no new partitions (KIP-1066); None is for "not told yet".
    """

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+", default=False)
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[EndPoint] = array(EndPoint)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+", default=False)
    log_dirs: list[bytes] = array(uuid, "3+", default=(), tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "4+", nullable="4+", default=None, tag=1)


class UnregisterBrokerRecord(Struct, versions="0", flexible="0+"):
    """The cluster forgets a broker."""

    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Struct, versions="0", flexible="0+"):
    """A new topic. Its partitions follow in records of their own."""

    name: str = string()
    topic_id: bytes = uuid()


class PartitionRecord(Struct, versions="0-2", flexible="0+"):
    """A new partition, or in a snapshot all there is to know of one.

    Replicas come in the order of preference, `directories` in the same. 1 has the directories
    (KIP-858), 2 the replicas that may lead without being in sync (KIP-966), None for no such.
    """

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32, default=())
    adding_replicas: list[int] = array(int32, default=())
    leader: int = int32(default=NO_LEADER)
    leader_recovery_state: int = int8(default=0, tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(uuid, "1+", default=())
    eligible_leader_replicas: list[int] | None = array(
        int32, "2+", nullable="2+", default=None, tag=1
    )
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2)
    # Ours: which of the processes of the leader serves it, where there are several. Others step
    # over it.
    process: int = int16(default=0, tag=10000)


class ConfigRecord(Struct, versions="0", flexible="0+"):
    """A setting, or with the value None the end of one.

    Resources: 2 topic, 4 broker ("" is all brokers), 16 client metrics, 32 group.
    """

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="")


class PartitionChangeRecord(Struct, versions="0-2", flexible="0+"):
    """The changed fields of a partition; None, -2 for the leader, -1 for the recovery: the same.

    Each one adds 1 to the partition's epoch, and to that of its leader where there is a leader,
    be it the same as before. Versions as of PartitionRecord.
    """

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array(int32, nullable="", default=None, tag=0)
    leader: int = int32(default=NO_LEADER_CHANGE, tag=1)
    replicas: list[int] | None = array(int32, nullable="", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, nullable="", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, nullable="", default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[bytes] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(
        int32, "2+", nullable="2+", default=None, tag=6
    )
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7)
    process: int = int16(default=0, tag=10000)  # ours, of a leader that is named


class FenceBrokerRecord(Struct, versions="0", flexible="0+"):
    """A broker is shut out. Written below metadata.version 6 only."""

    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Struct, versions="0", flexible="0+"):
    """A broker is let in. Written below metadata.version 6 only."""

    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Struct, versions="0", flexible="0+"):
    """A topic goes, with its partitions and its settings."""

    topic_id: bytes = uuid()


class DelegationTokenRecord(Struct, versions="0", flexible="0+"):
    """A delegation token, without its secret, which follows from the id."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class UserScramCredentialRecord(Struct, versions="0", flexible="0+"):
    """The SCRAM credential of a user. Mechanisms: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary()
    stored_key: bytes = binary()
    server_key: bytes = binary()
    iterations: int = int32()


class FeatureLevelRecord(Struct, versions="0", flexible="0+"):
    """The level of a feature, 0 for none. That of metadata.version comes before all else."""

    name: str = string()
    feature_level: int = int16()


class ClientQuotaRecord(Struct, versions="0", flexible="0+"):
    """A quota of an entity, or its end. An entity's name of None is the default of its type."""

    class EntityData(Struct):
        entity_type: str = string()
        entity_name: str | None = string(nullable="")

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Struct, versions="0", flexible="0+"):
    """A block of producer ids has been given to a broker; `next_producer_id` is the next one's."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Struct, versions="0-3", flexible="0+"):
    """The changed fields of a broker.

    `fenced` 1 shuts it out and -1 lets it in, 0 is no change; 1 of `in_controlled_shutdown` begins
    one, 0 is no change. No directories, or None for those that are cordoned, are no change.
    """

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(default=0, tag=0)
    in_controlled_shutdown: int = int8("1+", default=0, tag=1)
    log_dirs: list[bytes] = array(uuid, "2+", default=(), tag=2)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)


class AccessControlEntryRecord(Struct, versions="0", flexible="0+"):
    """An ACL; the codes are those of CreateAcls."""

    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Struct, versions="0", flexible="0+"):
    """An ACL goes."""

    id: bytes = uuid()


class NoOpRecord(Struct, versions="0", flexible="0+"):
    """Nothing, written now and then so that the log's end moves (KIP-835)."""


class ZkMigrationStateRecord(Struct, versions="0", flexible="0+"):
    """0 no migration from ZooKeeper, 1 under way, 2 before it, 3 done."""

    zk_migration_state: int = int8()


class RemoveUserScramCredentialRecord(Struct, versions="0", flexible="0+"):
    """A user loses the credential of one mechanism."""

    name: str = string()
    mechanism: int = int8()


class BeginTransactionRecord(Struct, versions="0", flexible="0+"):
    """The begin of a transaction: what follows counts all together or not at all (KIP-868)."""

    name: str | None = string(nullable="", default=None, tag=0)


class EndTransactionRecord(Struct, versions="0", flexible="0+"):
    """The end of a transaction, which counts."""


class AbortTransactionRecord(Struct, versions="0", flexible="0+"):
    """The end of a transaction, which does not count."""

    reason: str | None = string(nullable="", default=None, tag=0)


class RemoveDelegationTokenRecord(Struct, versions="0", flexible="0+"):
    """A delegation token goes."""

    token_id: str = string()


class RegisterControllerRecord(Struct, versions="0", flexible="0+"):
    """A process of a controller has come up (KIP-919)."""

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[EndPoint] = array(EndPoint)
    features: list[Feature] = array(Feature)


class ClearElrRecord(Struct, versions="0", flexible="0+"):
    """The eligible leaders of a topic are forgotten, with an empty name those of all (KIP-966)."""

    topic_name: str = string()


class UnregisterControllerRecord(Struct, versions="0", flexible="0+"):
    """The cluster forgets a controller (Kafka 4.4)."""

    controller_id: int = int32()


MetadataRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | RemoveUserScramCredentialRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RemoveDelegationTokenRecord
    | RegisterControllerRecord
    | ClearElrRecord
    | UnregisterControllerRecord
)

RECORD_KEYS: dict[int, type[MetadataRecord]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
    29: UnregisterControllerRecord,
}
"""Kafka's api keys of them. Nothing has ever had 6, 13 and 16 in a release with KRaft."""
