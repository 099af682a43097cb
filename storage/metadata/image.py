"""The image: the records of the metadata log, replayed into memory.

The one way in which this state changes is `MetadataImage.replay`: at a start, for every change of
a running broker, in an observer, and in tools. Values are immutable and replaced when they change,
so a copy for a snapshot is shallow.

What the records mean is Kafka's: KIP-631, KIP-778 (features), KIP-866 (transactions).
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.logdata.metadata import (
    NO_LEADER_CHANGE,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from storage.identity import uuid_text
from storage.metadata.acl_table import AclTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized

    from protocol.logdata.metadata import MetadataRecord

    QuotaEntity = tuple[tuple[str, str | None], ...]

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32
METADATA_VERSION_FEATURE = "metadata.version"
LEVEL_OF_AN_UNMARKED_LOG = 1
"""A log that never named its metadata.version is one of Kafka 3.0."""

_NO_RECOVERY_CHANGE = -1
_FENCE, _UNFENCE, _IN_CONTROLLED_SHUTDOWN = 1, -1, 1


class MetadataError(ValueError):
    """A record that contradicts the ones before it."""


class PartitionState(NamedTuple):
    """One partition. Ids of brokers, and of directories as 16 bytes each, one per replica."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    process: int = 0
    """Which of the leader's processes serves it, where there are several."""


class TopicState:
    """One topic: its partitions by their numbers. `topic_id` is 16 bytes."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(
        self, name: str, topic_id: bytes, partitions: dict[int, PartitionState] | None = None
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions if partitions is not None else {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicState):
            return NotImplemented
        return (self.name, self.topic_id, self.partitions) == (
            other.name, other.topic_id, other.partitions,
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TopicState({self.name!r}, {uuid_text(self.topic_id)}, {len(self.partitions)})"


class MetadataImage:
    """The whole state of a cluster's metadata. All of it may be read; only `replay` changes it."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[bytes, TopicState] = {}
        self.removed: dict[bytes, TopicState] = {}
        """Topics whose removal was replayed: their folders may still be there."""
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        """By resource type and name; of brokers, the name "" is that of all of them."""
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        """By (entity type, name or None for the default), sorted by type."""
        self.scram_credentials: dict[tuple[str, int], UserScramCredentialRecord] = {}
        self.acls = AclTable()
        self.delegation_tokens: dict[str, DelegationTokenRecord] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, RegisterBrokerRecord] = {}
        """Registrations, with what changed since folded in."""
        self.controllers: dict[int, RegisterControllerRecord] = {}
        self.zk_migration: ZkMigrationStateRecord | None = None
        self.next_producer_id = 0
        self.transaction: list[MetadataRecord] | None = None
        """Records of a transaction that has begun and not ended; they count when it ends."""
        self._shared: dict[Any, Any] = {}
        """One copy of each tuple of ids: a hundred thousand partitions have a few of them."""

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION_FEATURE, LEVEL_OF_AN_UNMARKED_LOG)

    def replay(self, record: MetadataRecord) -> None:
        """Take over what a record says. Raises MetadataError; then nothing has changed, unless it
        ended a transaction."""
        if self.transaction is not None:
            self._replay_in_transaction(record)
            return
        _REPLAY[type(record)](self, record)

    def copy(self) -> MetadataImage:
        """This state as it is now, for a snapshot that is written while this one changes."""
        made = MetadataImage()
        made.topics = {
            name: TopicState(name, topic.topic_id, topic.partitions.copy())
            for name, topic in self.topics.items()
        }
        made.topics_by_id = {topic.topic_id: topic for topic in made.topics.values()}
        for name in (
            "configs", "client_quotas", "scram_credentials", "acls", "delegation_tokens",
            "features", "brokers", "controllers",
        ):  # fmt: skip
            setattr(made, name, getattr(self, name).copy())
        made.zk_migration = self.zk_migration
        made.next_producer_id = self.next_producer_id
        if self.transaction is not None:
            made.transaction = self.transaction.copy()
        return made

    def records(self) -> Iterator[MetadataRecord]:
        """Records that give this state to an empty image, in the order of Kafka's snapshots."""
        if METADATA_VERSION_FEATURE in self.features:
            yield _feature(METADATA_VERSION_FEATURE, self.features[METADATA_VERSION_FEATURE])
        for name, level in sorted(self.features.items()):
            if name != METADATA_VERSION_FEATURE:
                yield _feature(name, level)
        if self.zk_migration is not None:
            yield self.zk_migration
        yield from self.brokers.values()
        yield from self.controllers.values()
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for number in sorted(topic.partitions):
                yield partition_record(topic.topic_id, number, topic.partitions[number])
        for (kind, name), settings in self.configs.items():
            for key, value in settings.items():
                yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        for entity, quotas in self.client_quotas.items():
            for key, number_per_s in quotas.items():
                yield quota_record(entity, key, number_per_s)
        if self.next_producer_id:
            yield ProducerIdsRecord(
                broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id
            )
        yield from self.acls.by_id.values()
        yield from self.scram_credentials.values()
        yield from self.delegation_tokens.values()

    def forget_removed(self, topic_id: bytes) -> None:
        """The folders of a removed topic have gone."""
        self.removed.pop(topic_id, None)

    # Transactions

    def _replay_in_transaction(self, record: MetadataRecord) -> None:
        assert self.transaction is not None
        if isinstance(record, BeginTransactionRecord):
            raise MetadataError("a transaction begins within a transaction")
        if isinstance(record, EndTransactionRecord):
            records, self.transaction = self.transaction, None
            for one in records:
                self.replay(one)
        elif isinstance(record, AbortTransactionRecord):
            self.transaction = None
        else:
            self.transaction.append(record)

    def _begin(self, _: BeginTransactionRecord) -> None:
        self.transaction = []

    def _end(self, record: EndTransactionRecord | AbortTransactionRecord) -> None:
        raise MetadataError(f"{type(record).__name__} without a transaction")

    def _nothing(self, _: NoOpRecord) -> None: ...

    # Topics

    def _topic(self, record: TopicRecord) -> None:
        if record.name in self.topics:
            raise MetadataError(f"topic '{record.name}' is made twice")
        if record.topic_id in self.topics_by_id:
            raise MetadataError(f"topic id {uuid_text(record.topic_id)} is given twice")
        topic = TopicState(record.name, record.topic_id)
        self.topics[record.name] = self.topics_by_id[record.topic_id] = topic

    def _known(self, topic_id: bytes, what: str) -> TopicState:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise MetadataError(f"{what} of an unknown topic, {uuid_text(topic_id)}")
        return topic

    def _share(self, ids: Any) -> Any:
        """These ids as a tuple, the same object each time."""
        key = tuple(ids) if ids else ()
        return self._shared.setdefault(key, key)

    def _partition(self, record: PartitionRecord) -> None:
        what = f"partition {record.partition_id}"
        topic = self._known(record.topic_id, what)
        if record.partition_id < 0:
            raise MetadataError(f"topic '{topic.name}' is given a {what}")
        _require_one_for_each(record.directories, record.replicas, topic, what)
        share = self._share
        topic.partitions[record.partition_id] = PartitionState(
            share(record.replicas),
            share(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            share(record.directories),
            share(record.removing_replicas),
            share(record.adding_replicas),
            record.leader_recovery_state,
            share(record.eligible_leader_replicas),
            share(record.last_known_elr),
            record.process,
        )

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        what = f"a change of partition {record.partition_id}"
        topic = self._known(record.topic_id, what)
        old = topic.partitions.get(record.partition_id)
        if old is None:
            raise MetadataError(f"{what}, which topic '{topic.name}' does not have")
        changes: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
        if record.leader != NO_LEADER_CHANGE:
            changes["leader"] = record.leader
            changes["leader_epoch"] = old.leader_epoch + 1
            changes["process"] = record.process
        if record.leader_recovery_state != _NO_RECOVERY_CHANGE:
            changes["leader_recovery_state"] = record.leader_recovery_state
        for field, ids in (
            ("isr", record.isr),
            ("replicas", record.replicas),
            ("removing", record.removing_replicas),
            ("adding", record.adding_replicas),
            ("directories", record.directories),
            ("elr", record.eligible_leader_replicas),
            ("last_known_elr", record.last_known_elr),
        ):
            if ids is not None:
                changes[field] = self._share(ids)
        if record.replicas is not None and record.directories is None:
            changes["directories"] = ()  # nobody has said yet where the new ones keep it
        new = old._replace(**changes)
        _require_one_for_each(new.directories, new.replicas, topic, what)
        topic.partitions[record.partition_id] = new

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._known(record.topic_id, "a removal")
        del self.topics[topic.name]
        del self.topics_by_id[topic.topic_id]
        self.configs.pop((TOPIC_RESOURCE, topic.name), None)
        self.removed[topic.topic_id] = topic

    def _clear_elr(self, record: ClearElrRecord) -> None:
        if record.topic_name and record.topic_name not in self.topics:
            raise MetadataError(f"a change of topic '{record.topic_name}', which there is not")
        names = [record.topic_name] if record.topic_name else list(self.topics)
        for name in names:
            partitions = self.topics[name].partitions
            for number, state in partitions.items():
                partitions[number] = state._replace(elr=(), last_known_elr=())

    # Settings

    def _config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        settings = dict(self.configs.get(resource, {}))
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            self.configs[resource] = settings
        else:
            self.configs.pop(resource, None)

    def _client_quota(self, record: ClientQuotaRecord) -> None:
        by_type = {one.entity_type: one.entity_name for one in record.entity}
        if len(by_type) != len(record.entity) or not by_type:
            types = [one.entity_type for one in record.entity]
            raise MetadataError(f"a quota of an entity of types {types}, wanted each once")
        entity = tuple(sorted(by_type.items()))
        quotas = dict(self.client_quotas.get(entity, {}))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self.client_quotas[entity] = quotas
        else:
            self.client_quotas.pop(entity, None)

    def _feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _zk_migration(self, record: ZkMigrationStateRecord) -> None:
        self.zk_migration = record

    # Who may

    def _scram(self, record: UserScramCredentialRecord) -> None:
        self.scram_credentials[record.name, record.mechanism] = record

    def _remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        if self.scram_credentials.pop((record.name, record.mechanism), None) is None:
            raise MetadataError(f"user '{record.name}' has no such credential to remove")

    def _acl(self, record: AccessControlEntryRecord) -> None:
        self.acls.add(record)

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        if record.id not in self.acls.by_id:
            raise MetadataError(f"there is no access control entry {uuid_text(record.id)}")
        self.acls.remove(record.id)

    def _token(self, record: DelegationTokenRecord) -> None:
        self.delegation_tokens[record.token_id] = record

    def _remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.delegation_tokens.pop(record.token_id, None)

    # Nodes and producers

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = record

    def _broker(self, broker_id: int) -> RegisterBrokerRecord:
        record = self.brokers.get(broker_id)
        if record is None:
            raise MetadataError(f"broker {broker_id} is not registered")
        return copy(record)

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        del self.brokers[self._broker(record.broker_id).broker_id]

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id)
        if record.fenced:
            broker.fenced = record.fenced == _FENCE
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = record.in_controlled_shutdown == _IN_CONTROLLED_SHUTDOWN
        if record.log_dirs:
            broker.log_dirs = record.log_dirs
        if record.cordoned_log_dirs is not None:
            broker.cordoned_log_dirs = record.cordoned_log_dirs
        self.brokers[record.broker_id] = broker

    def _fence_broker(self, record: FenceBrokerRecord | UnfenceBrokerRecord) -> None:
        broker = self._broker(record.id)
        broker.fenced = isinstance(record, FenceBrokerRecord)
        self.brokers[record.id] = broker

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _unregister_controller(self, record: UnregisterControllerRecord) -> None:
        self.controllers.pop(record.controller_id, None)

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id


def _require_one_for_each(
    directories: Sized, replicas: Sized, topic: TopicState, what: str
) -> None:
    if len(directories) and len(directories) != len(replicas):
        raise MetadataError(
            f"{what} of topic '{topic.name}' has {len(replicas)} replicas "
            f"in {len(directories)} directories"
        )


def partition_record(topic_id: bytes, number: int, state: PartitionState) -> PartitionRecord:
    """The record that gives a partition this state."""
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(state.removing),
        adding_replicas=list(state.adding),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=list(state.directories),
        leader_recovery_state=state.leader_recovery_state,
        eligible_leader_replicas=list(state.elr) or None,
        last_known_elr=list(state.last_known_elr) or None,
        process=state.process,
    )


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """The record that sets a quota; the value None removes it."""
    return ClientQuotaRecord(
        entity=[
            ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
            for kind, name in sorted(entity, key=lambda one: one[0])
        ],
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )


def _feature(name: str, level: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=level)


_REPLAY: dict[type, Callable[[MetadataImage, Any], None]] = {
    AbortTransactionRecord: MetadataImage._end,
    AccessControlEntryRecord: MetadataImage._acl,
    BeginTransactionRecord: MetadataImage._begin,
    BrokerRegistrationChangeRecord: MetadataImage._change_broker,
    ClearElrRecord: MetadataImage._clear_elr,
    ClientQuotaRecord: MetadataImage._client_quota,
    ConfigRecord: MetadataImage._config,
    DelegationTokenRecord: MetadataImage._token,
    EndTransactionRecord: MetadataImage._end,
    FeatureLevelRecord: MetadataImage._feature,
    FenceBrokerRecord: MetadataImage._fence_broker,
    NoOpRecord: MetadataImage._nothing,
    PartitionChangeRecord: MetadataImage._partition_change,
    PartitionRecord: MetadataImage._partition,
    ProducerIdsRecord: MetadataImage._producer_ids,
    RegisterBrokerRecord: MetadataImage._register_broker,
    RegisterControllerRecord: MetadataImage._register_controller,
    RemoveAccessControlEntryRecord: MetadataImage._remove_acl,
    RemoveDelegationTokenRecord: MetadataImage._remove_token,
    RemoveTopicRecord: MetadataImage._remove_topic,
    RemoveUserScramCredentialRecord: MetadataImage._remove_scram,
    TopicRecord: MetadataImage._topic,
    UnfenceBrokerRecord: MetadataImage._fence_broker,
    UnregisterBrokerRecord: MetadataImage._unregister_broker,
    UnregisterControllerRecord: MetadataImage._unregister_controller,
    UserScramCredentialRecord: MetadataImage._scram,
    ZkMigrationStateRecord: MetadataImage._zk_migration,
}
