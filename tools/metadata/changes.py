"""One record of the metadata log: what it changes, as a line and as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata import (
    NO_LEADER_CHANGE,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
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
)
from protocol.logdata.plain import plain
from storage.identity import uuid_text
from storage.metadata.image import METADATA_VERSION_FEATURE, PartitionState
from tools.metadata.facts import (
    HIDDEN,
    MECHANISMS,
    acl_line,
    broker_line,
    config_line,
    controller_line,
    entity_text,
    ids,
    leader_text,
    level_text,
    named,
    partition_text,
    shown_value,
    user_line,
)

if TYPE_CHECKING:
    from protocol.logdata.metadata import MetadataRecord
    from storage.metadata.image import MetadataImage

    Json = dict[str, object]

SECRETS = ("salt", "stored_key", "server_key")
IN_CONTROLLED_SHUTDOWN, FENCE, UNFENCE = 1, 1, -1


class Changes:
    """Tells of one record after the other. Records of topics name them by their ids only, so the
    names of those that are not in an image yet are remembered."""

    def __init__(self) -> None:
        self._new: dict[bytes, str] = {}

    def line(self, record: MetadataRecord, image: MetadataImage) -> str | None:
        """The change that the record makes to the image before it; None for none."""
        match record:
            case NoOpRecord():
                return None
            case TopicRecord():
                return f"topic {record.name} created  id {uuid_text(record.topic_id)}"
            case RemoveTopicRecord():
                return f"topic {self._name(record.topic_id, image)} deleted"
            case PartitionRecord():
                text = partition_text(_state(record))
                return f"partition {self._partition(record, image)} created  {text}"
            case PartitionChangeRecord():
                return f"partition {self._partition(record, image)}  {_changed(record, image)}"
        return _setting(record) or _right(record) or _node(record) or type(record).__name__

    def json(self, record: MetadataRecord, image: MetadataImage) -> Json | None:
        """Its type and fields, and the name of its topic; None if it says nothing."""
        if isinstance(record, NoOpRecord):
            return None
        fields: Json = dict(plain(record))
        if isinstance(record, UserScramCredentialRecord):
            fields = {name: value for name, value in fields.items() if name not in SECRETS}
        if isinstance(record, ConfigRecord) and record.value is not None:
            fields["value"] = shown_value(record.name, record.value)
        if isinstance(record, PartitionRecord | PartitionChangeRecord | RemoveTopicRecord):
            fields["topic"] = self._name(record.topic_id, image)
        return {"type": type(record).__name__, **fields}

    def remember(self, record: MetadataRecord) -> None:
        """To be called after each record has been told of."""
        if isinstance(record, TopicRecord):
            self._new[record.topic_id] = record.name
        elif isinstance(record, RemoveTopicRecord):
            self._new.pop(record.topic_id, None)

    def _name(self, topic_id: bytes, image: MetadataImage) -> str:
        known = image.topics_by_id.get(topic_id)
        return known.name if known else self._new.get(topic_id, uuid_text(topic_id))

    def _partition(
        self, record: PartitionRecord | PartitionChangeRecord, image: MetadataImage
    ) -> str:
        return f"{self._name(record.topic_id, image)}-{record.partition_id}"


def _state(record: PartitionRecord) -> PartitionState:
    return PartitionState(
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        adding=tuple(record.adding_replicas),
        removing=tuple(record.removing_replicas),
    )


def _changed(record: PartitionChangeRecord, image: MetadataImage) -> str:
    topic = image.topics_by_id.get(record.topic_id)
    before = topic.partitions.get(record.partition_id) if topic else None
    told = []
    if record.leader != NO_LEADER_CHANGE:
        was = f"{leader_text(before.leader)} -> " if before else ""
        told.append(f"leader {was}{leader_text(record.leader)}")
    for name, field, now in (
        ("replicas", "replicas", record.replicas),
        ("in sync", "isr", record.isr),
        ("adding", "adding", record.adding_replicas),
        ("removing", "removing", record.removing_replicas),
    ):
        if now is not None:
            was = f"{ids(getattr(before, field))} -> " if before else ""
            told.append(f"{name} {was}{ids(now)}")
    if record.directories is not None:
        told.append(f"directories {' '.join(map(uuid_text, record.directories))}")
    return "  ".join(told) or "changed"


def _setting(record: MetadataRecord) -> str | None:
    match record:
        case ConfigRecord():
            value = "(removed)"
            if record.value is not None:
                value = shown_value(record.name, record.value)
            return config_line(record.resource_type, record.resource_name, record.name, value)
        case ClientQuotaRecord():
            entity = entity_text((one.entity_type, one.entity_name) for one in record.entity)
            value = "(removed)" if record.remove else f"{record.value:.15g}"
            return f"quota {entity}  {record.key} = {value}"
        case FeatureLevelRecord() if record.name == METADATA_VERSION_FEATURE:
            return f"metadata.version {level_text(record.feature_level)}"
        case FeatureLevelRecord():
            return f"feature {record.name} {record.feature_level}"
        case ProducerIdsRecord():
            return f"producer ids below {record.next_producer_id} are given out"
    return None


def _right(record: MetadataRecord) -> str | None:
    match record:
        case UserScramCredentialRecord():
            return f"{user_line(record)}, keys {HIDDEN}"
        case RemoveUserScramCredentialRecord():
            return f"user {record.name}  {named(MECHANISMS, record.mechanism)}  removed"
        case AccessControlEntryRecord():
            return acl_line(record)
        case RemoveAccessControlEntryRecord():
            return f"acl {uuid_text(record.id)} removed"
        case DelegationTokenRecord():
            return f"delegation token {record.token_id} of {record.owner}"
        case RemoveDelegationTokenRecord():
            return f"delegation token {record.token_id} removed"
    return None


def _node(record: MetadataRecord) -> str | None:
    match record:
        case RegisterBrokerRecord():
            return broker_line(record)
        case UnregisterBrokerRecord():
            return f"broker {record.broker_id} unregistered"
        case FenceBrokerRecord():
            return f"broker {record.id}  fenced"
        case UnfenceBrokerRecord():
            return f"broker {record.id}  active"
        case BrokerRegistrationChangeRecord():
            told = {FENCE: ["fenced"], UNFENCE: ["active"]}.get(record.fenced, [])
            if record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN:
                told.append("in controlled shutdown")
            if record.log_dirs:
                told.append(f"directories {' '.join(map(uuid_text, record.log_dirs))}")
            return f"broker {record.broker_id}  {'  '.join(told) or 'changed'}"
        case RegisterControllerRecord():
            return controller_line(record)
        case UnregisterControllerRecord():
            return f"controller {record.controller_id} unregistered"
    return None
