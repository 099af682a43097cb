"""The state that the metadata of a cluster give, as plain values and as lines. Keys of users and
values of settings that hold a password are in neither."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.acls import (
    OPERATION_NAMES,
    PATTERN_TYPE_NAMES,
    PERMISSION_NAMES,
    RESOURCE_TYPE_NAMES,
)
from protocol.logdata.metadata import NO_LEADER, release_of
from storage.identity import uuid_text
from storage.metadata.image import TOPIC_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from protocol.logdata.metadata import (
        AccessControlEntryRecord,
        EndPoint,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        UserScramCredentialRecord,
    )
    from storage.metadata.image import MetadataImage, PartitionState, QuotaEntity, TopicState

    Json = dict[str, object]

HIDDEN = "(hidden)"
RESOURCES = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def named(names: Mapping[int, str], code: int) -> str:
    """The name of a code, or the number itself."""
    return names.get(code, str(code))


def shown_value(key: str, value: str) -> str:
    """The value of a setting, unless nobody should see it."""
    secret = "password" in key or "secret" in key or key.endswith("sasl.jaas.config")
    return HIDDEN if secret else value


def ids(numbers: Sequence[int]) -> str:
    """`1,2`, or `none`."""
    return ",".join(map(str, numbers)) or "none"


def leader_text(leader: int) -> str:
    return "none" if leader == NO_LEADER else str(leader)


def level_text(level: int) -> str:
    """A level of metadata.version with Kafka's name of it."""
    return f"{level} ({release_of(level)})"


# Plain values


def facts(image: MetadataImage) -> Json:
    """All there is to say of an image, for JSON."""
    return {
        "metadata_version": image.metadata_version,
        "release": release_of(image.metadata_version),
        "features": image.features,
        "topics": [
            _topic_json(topic, image.configs.get((TOPIC_RESOURCE, topic.name), {}))
            for topic in _in_order(image)
        ],
        "configs": [
            {"resource": named(RESOURCES, kind), "name": name, "configs": _shown(settings)}
            for (kind, name), settings in sorted(image.configs.items())
        ],
        "quotas": [
            {"entity": dict(entity), "quotas": quotas}
            for entity, quotas in sorted(image.client_quotas.items(), key=_quota_order)
        ],
        "users": [_user_json(record) for _, record in sorted(image.scram_credentials.items())],
        "acls": [acl_json(record) for _, record in sorted(image.acls.by_id.items())],
        "delegation_tokens": [
            {
                "id": record.token_id,
                "owner": record.owner,
                "expires_ms": record.expiration_timestamp,
            }
            for _, record in sorted(image.delegation_tokens.items())
        ],
        "next_producer_id": image.next_producer_id,
        "brokers": [broker_json(record) for _, record in sorted(image.brokers.items())],
        "controllers": [controller_json(record) for _, record in sorted(image.controllers.items())],
    }


def _in_order(image: MetadataImage) -> list[TopicState]:
    return [image.topics[name] for name in sorted(image.topics)]


def _quota_order(item: tuple[QuotaEntity, object]) -> list[tuple[str, str]]:
    return [(kind, name or "") for kind, name in item[0]]


def _shown(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: shown_value(key, settings[key]) for key in sorted(settings)}


def _topic_json(topic: TopicState, settings: Mapping[str, str]) -> Json:
    return {
        "name": topic.name,
        "id": uuid_text(topic.topic_id),
        "configs": _shown(settings),
        "partitions": [
            {
                "partition": number,
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
                "partition_epoch": state.partition_epoch,
                "replicas": state.replicas,
                "isr": state.isr,
                "adding": state.adding,
                "removing": state.removing,
                "directories": [uuid_text(directory) for directory in state.directories],
            }
            for number, state in sorted(topic.partitions.items())
        ],
    }


def _user_json(record: UserScramCredentialRecord) -> Json:
    return {
        "name": record.name,
        "mechanism": named(MECHANISMS, record.mechanism),
        "iterations": record.iterations,
    }


def acl_json(record: AccessControlEntryRecord) -> Json:
    """One entry, with names for the codes."""
    return {
        "id": uuid_text(record.id),
        "permission": named(PERMISSION_NAMES, record.permission_type),
        "principal": record.principal,
        "host": record.host,
        "operation": named(OPERATION_NAMES, record.operation),
        "resource": named(RESOURCE_TYPE_NAMES, record.resource_type),
        "name": record.resource_name,
        "pattern": named(PATTERN_TYPE_NAMES, record.pattern_type),
    }


def broker_json(record: RegisterBrokerRecord) -> Json:
    """One registration."""
    return {
        "id": record.broker_id,
        "epoch": record.broker_epoch,
        "incarnation": uuid_text(record.incarnation_id),
        "listeners": _listeners(record.end_points),
        "rack": record.rack,
        "fenced": record.fenced,
        "in_controlled_shutdown": record.in_controlled_shutdown,
        "directories": [uuid_text(directory) for directory in record.log_dirs],
    }


def controller_json(record: RegisterControllerRecord) -> Json:
    """One registration."""
    return {
        "id": record.controller_id,
        "incarnation": uuid_text(record.incarnation_id),
        "listeners": _listeners(record.end_points),
    }


def _listeners(end_points: Iterable[EndPoint]) -> list[str]:
    return [f"{one.name}://{one.host}:{one.port}" for one in end_points]


# Lines


def lines(image: MetadataImage) -> Iterator[str]:
    """All there is to say of an image, for people."""
    yield f"metadata.version {level_text(image.metadata_version)}"
    for name, level in sorted(image.features.items()):
        if name != "metadata.version":
            yield f"feature {name} {level}"
    for topic in _in_order(image):
        yield from _topic_lines(topic)
    for (kind, name), settings in sorted(image.configs.items()):
        for key, value in _shown(settings).items():
            yield config_line(kind, name, key, value)
    for entity, quotas in sorted(image.client_quotas.items(), key=_quota_order):
        for key, number in sorted(quotas.items()):
            yield f"quota {entity_text(entity)}  {key} = {number:.15g}"
    for _, user in sorted(image.scram_credentials.items()):
        yield user_line(user)
    for _, acl in sorted(image.acls.by_id.items()):
        yield acl_line(acl)
    for _, token in sorted(image.delegation_tokens.items()):
        yield f"delegation token {token.token_id} of {token.owner}"
    if image.next_producer_id:
        yield f"producer ids below {image.next_producer_id} are given out"
    for _, broker in sorted(image.brokers.items()):
        yield broker_line(broker)
    for _, controller in sorted(image.controllers.items()):
        yield controller_line(controller)


def _topic_lines(topic: TopicState) -> Iterator[str]:
    """The topic, and the partitions that are not as the first one."""
    states = topic.partitions
    count = len(states)
    head = f"topic {topic.name}  {count} partition{'s'[: count != 1]}"
    if not states:
        yield f"{head}  id {uuid_text(topic.topic_id)}"
        return
    usual = partition_text(states[min(states)])
    yield f"{head}  {usual}  id {uuid_text(topic.topic_id)}"
    for number, state in sorted(states.items()):
        text = partition_text(state)
        if text != usual:
            yield f"partition {topic.name}-{number}  {text}"


def partition_text(state: PartitionState) -> str:
    """Leader and replicas. The usual, all replicas in sync and none moving, is left out."""
    text = f"leader {leader_text(state.leader)}  replicas {ids(state.replicas)}"
    if sorted(state.isr) != sorted(state.replicas):
        text += f"  in sync {ids(state.isr)}"
    if state.adding:
        text += f"  adding {ids(state.adding)}"
    if state.removing:
        text += f"  removing {ids(state.removing)}"
    return text


def config_line(kind: int, name: str, key: str, value: str) -> str:
    """One setting of one resource."""
    return f"config {named(RESOURCES, kind)} {name or '<default>'}  {key} = {value}"


def entity_text(entity: Iterable[tuple[str, str | None]]) -> str:
    """Whom a quota is for, as `user=alice client-id=<default>`."""
    return " ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)


def user_line(record: UserScramCredentialRecord) -> str:
    """A user, without keys."""
    mechanism = named(MECHANISMS, record.mechanism)
    return f"user {record.name}  {mechanism}  {record.iterations} iterations"


def acl_line(record: AccessControlEntryRecord) -> str:
    """An entry as a sentence."""
    entry = acl_json(record)
    pattern = "" if record.pattern_type == 3 else f" ({entry['pattern']})"
    return (
        f"acl {entry['permission']} {entry['principal']} from {entry['host']} {entry['operation']} "
        f"on {entry['resource']} {entry['name']}{pattern}"
    )


def broker_line(record: RegisterBrokerRecord) -> str:
    """A registration."""
    state = "fenced" if record.fenced else "active"
    if record.in_controlled_shutdown:
        state += ", in controlled shutdown"
    rack = f"  rack {record.rack}" if record.rack else ""
    where = " ".join(_listeners(record.end_points))
    return f"broker {record.broker_id}  {where}  {state}  epoch {record.broker_epoch}{rack}"


def controller_line(record: RegisterControllerRecord) -> str:
    """A registration."""
    return f"controller {record.controller_id}  {' '.join(_listeners(record.end_points))}"
