"""The version in which a record is written at each level of metadata.version.

The expected numbers were printed by `MetadataVersion` of the released Kafka 3.9.1 (levels 1 to
21) and 4.4.0 (from 7 on).
"""

from __future__ import annotations

import pytest

from protocol.logdata import metadata
from protocol.logdata.metadata import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    decode_record,
    encode_record,
    record_version,
    release_of,
)
from protocol.logdata.metadata_levels import SINCE

DIRECTORY = bytes(range(16))
BROKER = RegisterBrokerRecord(
    broker_id=1,
    incarnation_id=bytes(16),
    broker_epoch=7,
    end_points=[],
    features=[],
    rack=None,
    in_controlled_shutdown=True,
    log_dirs=[DIRECTORY],
    cordoned_log_dirs=[DIRECTORY],
)
PARTITION = PartitionRecord(
    partition_id=0,
    topic_id=bytes(16),
    replicas=[1],
    isr=[1],
    directories=[DIRECTORY],
    last_known_elr=[2],
)
CHANGE = PartitionChangeRecord(
    partition_id=0, topic_id=bytes(16), directories=[DIRECTORY], eligible_leader_replicas=[3]
)

# Level, and the versions of RegisterBroker, Partition and PartitionChange.
OF_KAFKA = (
    *((level, 0, 0, 0) for level in range(1, 7)),
    (7, 1, 0, 0),
    *((level, 2, 0, 0) for level in range(8, 17)),
    *((level, 3, 1, 1) for level in range(17, 23)),
    *((level, 3, 2, 2) for level in range(23, 30)),
    *((level, 4, 2, 2) for level in range(30, 34)),
)


@pytest.mark.parametrize(("level", "broker", "partition", "change"), OF_KAFKA)
def test_a_record_is_written_in_the_version_that_kafka_writes_at_the_level(
    level: int, broker: int, partition: int, change: int
) -> None:
    for record, version in ((BROKER, broker), (PARTITION, partition), (CHANGE, change)):
        assert record_version(record, level) == version
        value = encode_record(record, level=level)
        assert value[2] == version
        assert value[3:] == record.encode(version)
        assert decode_record(value) == type(record).decode(version, value[3:])


def test_every_level_up_to_the_newest_known_has_its_release() -> None:
    assert list(metadata.RELEASES) == list(range(1, 34))
    assert (metadata.MIN_METADATA_VERSION, metadata.MAX_METADATA_VERSION) == (1, 33)
    named = {7: "3.3-IV3", 14: "3.6-IV2", 17: "3.7-IV2", 21: "3.9-IV0", 25: "4.0-IV3"}
    named |= {27: "4.1-IV1", 29: "4.2-IV1", 30: "4.3-IV0", 33: "4.4-IV2", 99: "99"}
    assert {level: release_of(level) for level in named} == named


def test_since_has_a_level_for_every_version_of_a_record() -> None:
    for kind in metadata.RECORD_KEYS.values():
        levels = SINCE.get(kind, (1,))
        assert len(levels) == kind.max_version + 1, kind
        assert list(levels) == sorted(levels), kind


def change_of(
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    log_dirs: tuple[bytes, ...] = (),
    cordoned_log_dirs: list[bytes] | None = None,
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=1,
        broker_epoch=7,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=list(log_dirs),
        cordoned_log_dirs=cordoned_log_dirs,
    )


@pytest.mark.parametrize(
    ("record", "version", "since"),
    [
        (change_of(), 0, 6),
        (change_of(fenced=1), 0, 6),
        (change_of(fenced=-1, in_controlled_shutdown=1), 1, 7),
        (change_of(fenced=1, log_dirs=(DIRECTORY,)), 2, 17),
        (change_of(cordoned_log_dirs=[]), 3, 30),
        (change_of(in_controlled_shutdown=1, cordoned_log_dirs=[DIRECTORY]), 3, 30),
    ],
)
def test_a_registration_change_is_written_in_the_lowest_version_that_has_all_of_it(
    record: BrokerRegistrationChangeRecord, version: int, since: int
) -> None:
    for level in range(since, 34):
        value = encode_record(record, level=level)
        assert value[:3] == bytes((1, 17, version))
        assert decode_record(value) == record
    with pytest.raises(
        ValueError, match=f"v{version} needs metadata.version {since} .*{since - 1}"
    ):
        encode_record(record, level=since - 1)


ONLY_SINCE: list[tuple[MetadataRecord, int]] = [
    (metadata.NoOpRecord(), 5),
    (metadata.ZkMigrationStateRecord(zk_migration_state=0), 8),
    (metadata.RemoveUserScramCredentialRecord(name="a", mechanism=1), 11),
    (metadata.BeginTransactionRecord(), 13),
    (metadata.EndTransactionRecord(), 13),
    (metadata.AbortTransactionRecord(), 13),
    (metadata.RemoveDelegationTokenRecord(token_id="a"), 14),
    (metadata.ClearElrRecord(topic_name=""), 23),
    (metadata.UnregisterControllerRecord(controller_id=2), 33),
]


@pytest.mark.parametrize(("record", "since"), ONLY_SINCE, ids=lambda value: type(value).__name__)
def test_a_record_that_the_level_does_not_know_is_not_written(
    record: MetadataRecord, since: int
) -> None:
    assert decode_record(encode_record(record, level=since)) == record
    with pytest.raises(ValueError, match=f"needs metadata.version {since} .*it is {since - 1} "):
        encode_record(record, level=since - 1)


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (metadata.TopicRecord(name="t", topic_id=b"short"), "topic_id"),
        (metadata.TopicRecord(name="t" * 32_768, topic_id=bytes(16)), "name"),
        (metadata.FeatureLevelRecord(name="a", feature_level=1 << 15), "feature_level"),
        (change_of(fenced=200), "fenced"),
    ],
)
def test_a_value_that_does_not_fit_is_named(record: MetadataRecord, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        encode_record(record)
