"""The lines of `triglot metadata` for a state and for changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.logdata.metadata import (
    RECORD_KEYS,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndPoint,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from protocol.schema import Struct
from storage.metadata.image import MetadataImage
from tests.tools.observer.scripted_controller import topic, topic_id_of
from tools.metadata.changes import Changes
from tools.metadata.facts import facts, lines

ENTITY = ClientQuotaRecord.EntityData
LISTENER = EndPoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
BROKER = RegisterBrokerRecord(
    broker_id=1,
    incarnation_id=bytes(16),
    broker_epoch=7,
    end_points=[LISTENER],
    features=[],
    rack=None,
    fenced=False,
)
ALICE = UserScramCredentialRecord(
    name="alice",
    mechanism=2,
    salt=b"saltsalt",
    stored_key=b"storedkey",
    server_key=b"serverkey",
    iterations=8192,
)
ACL = AccessControlEntryRecord(
    id=bytes(16),
    resource_type=2,
    resource_name="orders",
    pattern_type=4,
    principal="User:alice",
    host="*",
    operation=3,
    permission_type=3,
)


def config(kind: int, resource: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def quota(value: float, *, remove: bool = False) -> ClientQuotaRecord:
    entity = [
        ENTITY(entity_type="user", entity_name="alice"),
        ENTITY(entity_type="client-id", entity_name=None),
    ]
    return ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=value, remove=remove)


RECORDS: list[MetadataRecord] = [
    FeatureLevelRecord(name="metadata.version", feature_level=21),
    FeatureLevelRecord(name="group.version", feature_level=1),
    BROKER,
    RegisterControllerRecord(
        controller_id=1,
        incarnation_id=bytes(16),
        zk_migration_ready=False,
        end_points=[LISTENER],
        features=[],
    ),
    *topic("orders", 3),
    config(2, "orders", "cleanup.policy", "compact"),
    config(4, "", "ssl.keystore.password", "do not tell"),
    config(4, "1", "log.retention.ms", "5"),
    quota(1000.0),
    ALICE,
    ACL,
    ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=2000),
]
SECRETS = ("do not tell", "storedkey", "serverkey", "saltsalt", b"storedkey".hex(), b"salt".hex())


@pytest.fixture
def image() -> MetadataImage:
    made = MetadataImage()
    for record in RECORDS:
        made.replay(record)
    return made


def test_the_whole_state_is_a_line_for_each_thing(image: MetadataImage) -> None:
    assert list(lines(image)) == [
        "metadata.version 21 (3.9-IV0)",
        "feature group.version 1",
        "topic orders  3 partitions  leader 1  replicas 1  id AQEBAQEBAQEBAW9yZGVycw",
        "config topic orders  cleanup.policy = compact",
        "config broker <default>  ssl.keystore.password = (hidden)",
        "config broker 1  log.retention.ms = 5",
        "quota client-id=<default> user=alice  producer_byte_rate = 1000",
        "user alice  SCRAM-SHA-512  8192 iterations",
        "acl allow User:alice from * read on topic orders (prefixed)",
        "producer ids below 2000 are given out",
        "broker 1  PLAINTEXT://h:9092  active  epoch 7",
        "controller 1  PLAINTEXT://h:9092",
    ]


def test_a_partition_that_is_unlike_the_first_has_a_line_of_its_own(image: MetadataImage) -> None:
    image.replay(
        PartitionChangeRecord(partition_id=2, topic_id=topic_id_of("orders"), leader=-1, isr=[])
    )
    assert "partition orders-2  leader none  replicas 1  in sync none" in list(lines(image))


def test_no_key_and_no_password_is_shown(image: MetadataImage) -> None:
    changes = Changes()
    shown = "\n".join(lines(image)) + json.dumps(facts(image))
    for record in RECORDS:
        shown += f"{changes.line(record, image)} {json.dumps(changes.json(record, image))}"
    assert not [secret for secret in SECRETS if str(secret) in shown]
    assert "alice" in shown


def changed(image: MetadataImage, *records: MetadataRecord) -> list[str | None]:
    """What is said of each, before it is replayed."""
    changes, told = Changes(), []
    for record in records:
        told.append(changes.line(record, image))
        changes.remember(record)
        image.replay(record)
    return told


def test_changes_are_lines_too(image: MetadataImage) -> None:
    orders = topic_id_of("orders")
    assert changed(
        image,
        NoOpRecord(),
        *topic("new"),
        PartitionChangeRecord(partition_id=0, topic_id=orders, leader=2, isr=[1, 2]),
        config(2, "orders", "cleanup.policy", None),
        config(4, "", "ssl.key.password", "do not tell"),
        quota(0.0, remove=True),
        RemoveUserScramCredentialRecord(name="alice", mechanism=2),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=1),
        RemoveTopicRecord(topic_id=orders),
    ) == [
        None,
        "topic new created  id AQEBAQEBAQEBAQEBAW5ldw",
        "partition new-0 created  leader 1  replicas 1",
        "partition orders-0  leader 1 -> 2  in sync 1 -> 1,2",
        "config topic orders  cleanup.policy = (removed)",
        "config broker <default>  ssl.key.password = (hidden)",
        "quota user=alice client-id=<default>  producer_byte_rate = (removed)",
        "user alice  SCRAM-SHA-512  removed",
        "broker 1  fenced",
        "topic orders deleted",
    ]


def test_records_of_one_transaction_know_the_names_of_its_topics() -> None:
    changes, before = Changes(), MetadataImage()
    told = []
    for record in topic("new"):
        told.append(changes.line(record, before))
        changes.remember(record)
    assert told[1] == "partition new-0 created  leader 1  replicas 1"


@pytest.mark.parametrize("kind", RECORD_KEYS.values(), ids=lambda kind: kind.__name__)
def test_there_is_something_to_say_of_every_record(kind: type[Struct]) -> None:
    record: Any = kind(**{field.name: _any(field) for field in kind._fields})
    changes, image = Changes(), MetadataImage()
    line, plain = changes.line(record, image), changes.json(record, image)
    if kind is NoOpRecord:
        assert line is None
        assert plain is None
    else:
        assert line
        assert "\n" not in line
        assert plain is not None
        assert plain["type"] == kind.__name__
        json.dumps(plain)


def _any(field: Any) -> Any:
    if field.kind == "array":
        return []
    return {"uuid": bytes(16), "string": "s", "binary": b"b", "boolean": True}.get(field.kind, 1)
