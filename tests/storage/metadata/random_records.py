"""Records of a cluster that lives: some make sense after those before them, some do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndPoint,
    Feature,
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

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from protocol.logdata.metadata import MetadataRecord

    Make = Callable[[random.Random], MetadataRecord]

END_POINT = EndPoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)
FEATURE = Feature(name="metadata.version", min_supported_version=1, max_supported_version=21)


def uuid(number: int) -> bytes:
    """Sixteen bytes that say which."""
    return bytes(14) + bytes((1 + number // 256, number % 256))


def _ids(rng: random.Random) -> list[int]:
    return rng.sample(range(1, 5), rng.randrange(1, 4))


def _partition(rng: random.Random) -> PartitionRecord:
    replicas = _ids(rng)
    return PartitionRecord(
        partition_id=rng.randrange(3),
        topic_id=uuid(rng.randrange(4)),
        replicas=replicas,
        isr=replicas[:1],
        removing_replicas=_ids(rng) if rng.random() < 0.2 else [],
        adding_replicas=_ids(rng) if rng.random() < 0.2 else [],
        leader=rng.choice([-1, *replicas]),
        leader_recovery_state=rng.randrange(2),
        leader_epoch=rng.randrange(9),
        partition_epoch=rng.randrange(9),
        directories=rng.choice([[], [uuid(90 + one) for one in replicas]]),
        eligible_leader_replicas=rng.choice([None, _ids(rng)]),
        last_known_elr=rng.choice([None, _ids(rng)]),
    )


def _partition_change(rng: random.Random) -> PartitionChangeRecord:
    replicas = rng.choice([None, _ids(rng)])
    return PartitionChangeRecord(
        partition_id=rng.randrange(3),
        topic_id=uuid(rng.randrange(4)),
        isr=rng.choice([None, _ids(rng)]),
        leader=rng.choice([-2, -1, 1]),
        replicas=replicas,
        removing_replicas=rng.choice([None, [], _ids(rng)]),
        adding_replicas=rng.choice([None, [], _ids(rng)]),
        leader_recovery_state=rng.choice([-1, 0, 1]),
        directories=[uuid(80 + one) for one in replicas]
        if replicas and rng.random() < 0.5
        else None,
        eligible_leader_replicas=rng.choice([None, [], _ids(rng)]),
        last_known_elr=rng.choice([None, [], _ids(rng)]),
    )


def _quota(rng: random.Random) -> ClientQuotaRecord:
    entity = ClientQuotaRecord.EntityData
    kinds = rng.sample(["user", "client-id", "ip"], rng.randrange(1, 3))
    remove = rng.random() < 0.3
    return ClientQuotaRecord(
        entity=[
            entity(entity_type=kind, entity_name=rng.choice([None, "a", "b"])) for kind in kinds
        ],
        key=rng.choice(["producer_byte_rate", "consumer_byte_rate"]),
        value=0.0 if remove else rng.random(),
        remove=remove,
    )


MAKERS: list[Make] = [
    lambda r: TopicRecord(name=f"t{r.randrange(4)}", topic_id=uuid(r.randrange(4))),
    lambda r: RemoveTopicRecord(topic_id=uuid(r.randrange(4))),
    _partition,
    _partition,
    _partition_change,
    _partition_change,
    lambda r: ConfigRecord(
        resource_type=r.choice([2, 4, 16, 32]),
        resource_name=r.choice(["", "1", "t0", "t1"]),
        name=r.choice(["a", "b"]),
        value=r.choice([None, "", "1", "2"]),
    ),
    _quota,
    lambda r: ProducerIdsRecord(
        broker_id=1, broker_epoch=3, next_producer_id=r.randrange(9) * 1000
    ),
    lambda r: RegisterBrokerRecord(
        broker_id=r.randrange(1, 4),
        incarnation_id=uuid(r.randrange(9)),
        broker_epoch=r.randrange(99),
        end_points=[END_POINT],
        features=[FEATURE],
        rack=r.choice([None, "r"]),
        fenced=r.random() < 0.5,
        in_controlled_shutdown=r.random() < 0.5,
        log_dirs=[uuid(91)],
        cordoned_log_dirs=r.choice([None, [uuid(92)]]),
    ),
    lambda r: UnregisterBrokerRecord(broker_id=r.randrange(1, 4), broker_epoch=1),
    lambda r: BrokerRegistrationChangeRecord(
        broker_id=r.randrange(1, 4),
        broker_epoch=1,
        fenced=r.choice([-1, 0, 1]),
        in_controlled_shutdown=r.choice([0, 1]),
        log_dirs=r.choice([[], [uuid(93)]]),
        cordoned_log_dirs=r.choice([None, [], [uuid(94)]]),
    ),
    lambda r: FenceBrokerRecord(id=r.randrange(1, 4), epoch=1),
    lambda r: UnfenceBrokerRecord(id=r.randrange(1, 4), epoch=1),
    lambda r: RegisterControllerRecord(
        controller_id=r.randrange(1, 4),
        incarnation_id=uuid(r.randrange(9)),
        zk_migration_ready=False,
        end_points=[END_POINT],
        features=[FEATURE],
    ),
    lambda r: UnregisterControllerRecord(controller_id=r.randrange(1, 4)),
    lambda r: UserScramCredentialRecord(
        name=r.choice("ab"),
        mechanism=r.choice([1, 2]),
        salt=b"salt",
        stored_key=b"stored",
        server_key=b"server",
        iterations=4096 + r.randrange(3),
    ),
    lambda r: RemoveUserScramCredentialRecord(name=r.choice("ab"), mechanism=r.choice([1, 2])),
    lambda r: AccessControlEntryRecord(
        id=uuid(r.randrange(4)),
        resource_type=2,
        resource_name="t0",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=r.choice([3, 4]),
        permission_type=3,
    ),
    lambda r: RemoveAccessControlEntryRecord(id=uuid(r.randrange(4))),
    lambda r: DelegationTokenRecord(
        owner="User:a",
        requester="User:b",
        renewers=["User:c"],
        issue_timestamp=1,
        max_timestamp=3,
        expiration_timestamp=r.randrange(3),
        token_id=r.choice("xy"),
    ),
    lambda r: RemoveDelegationTokenRecord(token_id=r.choice("xy")),
    lambda r: FeatureLevelRecord(
        name=r.choice(["metadata.version", "group.version"]), feature_level=r.choice([0, 1, 33])
    ),
    lambda r: ZkMigrationStateRecord(zk_migration_state=r.randrange(4)),
    lambda r: ClearElrRecord(topic_name=r.choice(["", "t0", "t1"])),
    lambda _: NoOpRecord(),
]
