"""Metadata that Apache Kafka itself wrote, loaded by us: kafka_written/README.md says how.

What it should come to is beside the files. Kafka's dump tool decoded every record for that, and
the Kafka that wrote them said the same of its topics, configs, quotas, users and rights.
"""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from protocol.logdata.metadata import decode_record, encode_record
from storage.disk import DiskFilesystem
from storage.identity import uuid_text
from storage.metadata.image import MetadataImage, PartitionState
from storage.metadata.loading import Loaded, load

FOLDER = Path(__file__).parent / "kafka_written"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/expected.json"))

Json = dict[str, Any]


def loaded_and_expected(name: str) -> tuple[Loaded, Json]:
    expected: Json = json.loads((FOLDER / name / "expected.json").read_text())
    return load(DiskFilesystem(), str(FOLDER / name)), expected


def shown_state(state: PartitionState) -> Json:
    fields: Json = {
        field: list(value) if isinstance(value, tuple) else value
        for field, value in state._asdict().items()
    }
    assert fields.pop("process") == 0  # Kafka's partitions have none
    return fields | {"directories": [uuid_text(raw) for raw in state.directories]}


def topics_of(image: MetadataImage) -> Json:
    return {
        name: {
            "topic_id": uuid_text(topic.topic_id),
            "partitions": [shown_state(state) for _, state in sorted(topic.partitions.items())],
        }
        for name, topic in image.topics.items()
    }


def brokers_of(image: MetadataImage) -> Json:
    return {
        str(number): {
            "epoch": broker.broker_epoch,
            "incarnation_id": uuid_text(broker.incarnation_id),
            "fenced": broker.fenced,
            "in_controlled_shutdown": broker.in_controlled_shutdown,
            "log_dirs": [uuid_text(raw) for raw in broker.log_dirs or ()],
        }
        for number, broker in image.brokers.items()
    }


def acls_of(image: MetadataImage) -> Json:
    return {
        uuid_text(raw): {
            "resourceType": acl.resource_type,
            "resourceName": acl.resource_name,
            "patternType": acl.pattern_type,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permissionType": acl.permission_type,
        }
        for raw, acl in image.acls.by_id.items()
    }


def test_every_release_and_way_to_end_is_here() -> None:
    assert {name.partition("-")[0] for name in NAMES} == {"3.9", "4"}
    kinds = {kind for name in NAMES for kind in loaded_and_expected(name)[1]["record_kinds"]}
    assert {"PARTITION_RECORD 0", "PARTITION_RECORD 1", "PARTITION_RECORD 2"} <= kinds
    assert len(NAMES) == 15
    assert len(kinds) == 28


@pytest.mark.parametrize("name", NAMES)
def test_what_kafka_wrote_is_loaded_to_the_last_record(name: str) -> None:
    loaded, expected = loaded_and_expected(name)

    assert (loaded.end_offset, loaded.epoch) == (expected["end_offset"], expected["epoch"])
    assert loaded.torn is None
    assert loaded.damaged == []
    voters = loaded.voters.voters if loaded.voters else []
    assert [voter.voter_id for voter in voters] == [v["voterId"] for v in expected["voters"]]
    assert loaded.kraft_version == int(bool(voters))


@pytest.mark.parametrize("name", NAMES)
def test_topics_of_kafka_have_their_ids_leaders_and_epochs(name: str) -> None:
    loaded, expected = loaded_and_expected(name)

    assert topics_of(loaded.image) == expected["topics"]
    assert {uuid_text(raw) for raw in loaded.image.topics_by_id} == {
        topic["topic_id"] for topic in expected["topics"].values()
    }
    assert brokers_of(loaded.image) == expected["brokers"]


@pytest.mark.parametrize("name", NAMES)
def test_settings_quotas_users_and_rights_of_kafka_are_those_that_it_had(name: str) -> None:
    loaded, expected = loaded_and_expected(name)
    image = loaded.image

    assert image.configs == {(kind, key): value for kind, key, value in expected["configs"]}
    assert image.client_quotas == {
        tuple((kind, who) for kind, who in entity): value for entity, value in expected["quotas"]
    }
    users = {
        (user, mechanism): {
            "salt": bytes(found.salt),
            "stored_key": bytes(found.stored_key),
            "server_key": bytes(found.server_key),
            "iterations": found.iterations,
        }
        for (user, mechanism), found in image.scram_credentials.items()
    }
    assert users == {
        (user, mechanism): {
            field: b64decode(value) if isinstance(value, str) else value
            for field, value in found.items()
        }
        for user, mechanism, found in expected["users"]
    }
    assert acls_of(image) == expected["acls"]
    assert image.features == expected["features"]
    assert image.next_producer_id == expected["next_producer_id"]


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_of_it_in_its_own_level_gives_the_same(name: str) -> None:
    image = loaded_and_expected(name)[0].image
    level = image.metadata_version

    again = MetadataImage()
    for record in image.records():
        again.replay(decode_record(encode_record(record, level=level)))

    assert again.topics == image.topics
    for part in ("configs", "client_quotas", "features", "next_producer_id"):
        assert getattr(again, part) == getattr(image, part)
    for part in ("scram_credentials", "brokers", "controllers"):
        assert shown(getattr(again, part)) == shown(getattr(image, part))
    assert shown(again.acls.by_id) == shown(image.acls.by_id)


def shown(records: dict[Any, Any]) -> dict[Any, bytes]:
    return {key: encode_record(record) for key, record in records.items()}
