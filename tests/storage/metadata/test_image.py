"""The effect of each record of the metadata log on the state, and that of nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.logdata.metadata import (
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
from storage.metadata.contradictions import require_sense
from storage.metadata.image import MetadataError, MetadataImage, PartitionState, quota_record
from storage.steps import run_here
from tests.storage.metadata.image_states import frozen, image_of, state_of
from tests.storage.metadata.random_records import uuid

if TYPE_CHECKING:
    from protocol.logdata.metadata import MetadataRecord

ID, OTHER_ID = uuid(1), uuid(2)
DIRECTORY, SECOND_DIRECTORY = uuid(91), uuid(92)


def partition(number: int = 0, *, topic_id: bytes = ID, **fields: Any) -> PartitionRecord:
    given: dict[str, Any] = {
        "replicas": [1],
        "isr": [1],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": [DIRECTORY],
    }
    return PartitionRecord(partition_id=number, topic_id=topic_id, **(given | fields))


def one_topic() -> MetadataImage:
    return image_of(
        TopicRecord(name="t", topic_id=ID),
        partition(),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
    )


def change(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=ID, **fields)


def broker(**fields: Any) -> RegisterBrokerRecord:
    given: dict[str, Any] = {
        "broker_id": 1,
        "incarnation_id": uuid(5),
        "broker_epoch": 7,
        "end_points": [],
        "features": [],
        "rack": None,
        "fenced": True,
        "log_dirs": [DIRECTORY],
    }
    return RegisterBrokerRecord(**(given | fields))


def credential(name: str = "alice") -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name, mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )


def acl(acl_id: bytes = ID) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )


# Topics


def test_a_topic_is_there_by_its_name_and_by_its_id() -> None:
    image = one_topic()

    assert image.topics["t"] is image.topics_by_id[ID]
    assert image.topics["t"].partitions == {0: PartitionState((1,), (1,), 1, 0, 0, (DIRECTORY,))}
    assert image.configs == {(2, "t"): {"retention.ms": "1"}}


def test_any_change_of_a_partition_adds_to_its_epoch_and_one_with_a_leader_to_the_leaders() -> None:
    image = one_topic()
    seen = []
    for record in (change(isr=[1]), change(leader=1), change(leader=-1), change()):
        image.replay(record)
        state = image.topics["t"].partitions[0]
        seen.append((state.leader, state.leader_epoch, state.partition_epoch))

    assert seen == [(1, 0, 1), (1, 1, 2), (-1, 2, 3), (-1, 2, 4)]


def test_a_change_says_only_what_is_different() -> None:
    image = one_topic()
    image.replay(
        change(
            replicas=[1, 2],
            directories=[DIRECTORY, SECOND_DIRECTORY],
            adding_replicas=[2],
            removing_replicas=[1],
            leader_recovery_state=1,
            eligible_leader_replicas=[2],
            last_known_elr=[1],
        )
    )
    changed = PartitionState(
        (1, 2), (1,), 1, 0, 1, (DIRECTORY, SECOND_DIRECTORY), (1,), (2,), 1, (2,), (1,)
    )
    assert image.topics["t"].partitions[0] == changed

    image.replay(change(isr=[1, 2], adding_replicas=[], removing_replicas=[]))
    assert image.topics["t"].partitions[0] == changed._replace(
        isr=(1, 2), adding=(), removing=(), partition_epoch=2
    )


def test_new_replicas_are_in_no_directory_until_one_is_said() -> None:
    image = one_topic()

    image.replay(change(replicas=[1, 2]))

    assert image.topics["t"].partitions[0].directories == ()


def test_the_removal_of_a_topic_takes_its_partitions_and_settings_but_is_remembered() -> None:
    image = one_topic()
    image.replay(ConfigRecord(resource_type=4, resource_name="t", name="a", value="of a broker"))

    image.replay(RemoveTopicRecord(topic_id=ID))

    assert not image.topics
    assert not image.topics_by_id
    assert image.configs == {(4, "t"): {"a": "of a broker"}}
    assert [topic.name for topic in image.removed.values()] == ["t"]
    image.replay(TopicRecord(name="t", topic_id=OTHER_ID))
    assert image.topics["t"].partitions == {}
    image.forget_removed(ID)
    image.forget_removed(ID)
    assert image.removed == {}


def test_eligible_leaders_are_cleared_of_one_topic_or_of_all() -> None:
    def two() -> MetadataImage:
        elr: dict[str, Any] = {"eligible_leader_replicas": [2], "last_known_elr": [3]}
        return image_of(
            TopicRecord(name="t", topic_id=ID),
            partition(**elr),
            partition(1, **elr),
            TopicRecord(name="u", topic_id=OTHER_ID),
            partition(topic_id=OTHER_ID, **elr),
        )

    image = two()
    image.replay(ClearElrRecord(topic_name="t"))
    left = {
        name: [(state.elr, state.last_known_elr) for state in topic.partitions.values()]
        for name, topic in image.topics.items()
    }
    assert left == {"t": [((), ())] * 2, "u": [((2,), (3,))]}

    image = two()
    image.replay(ClearElrRecord(topic_name=""))
    assert all(not s.elr for topic in image.topics.values() for s in topic.partitions.values())


# Settings, rights and numbers


def test_a_setting_without_a_value_is_no_setting_and_an_empty_text_is_one() -> None:
    image = MetadataImage()
    for value in ("1", "", None):
        image.replay(ConfigRecord(resource_type=4, resource_name="", name="k", value=value))
        expected = {} if value is None else {(4, ""): {"k": value}}
        assert image.configs == expected
    image.replay(ConfigRecord(resource_type=4, resource_name="", name="k", value=None))
    assert image.configs == {}


def test_a_quota_is_one_entitys_whatever_the_order_of_its_parts() -> None:
    entity = ClientQuotaRecord.EntityData
    parts = [
        entity(entity_type="user", entity_name="alice"),
        entity(entity_type="client-id", entity_name=None),
    ]
    image = image_of(ClientQuotaRecord(entity=parts, key="k", value=2.0, remove=False))
    key = (("client-id", None), ("user", "alice"))
    assert image.client_quotas == {key: {"k": 2.0}}
    image.replay(ClientQuotaRecord(entity=parts[::-1], key="other", value=3.0, remove=False))
    assert image.client_quotas == {key: {"k": 2.0, "other": 3.0}}

    image.replay(quota_record(key, "k", None))
    image.replay(quota_record(key, "other", None))
    assert image.client_quotas == {}


def test_credentials_rights_and_tokens_come_and_go() -> None:
    token = DelegationTokenRecord(
        owner="a", requester="a", renewers=[], issue_timestamp=1, max_timestamp=2,
        expiration_timestamp=2, token_id="x",
    )  # fmt: skip
    image = image_of(credential(), acl(), token)
    assert image.scram_credentials == {("alice", 1): credential()}
    assert image.acls.by_id == {ID: acl()}
    assert image.delegation_tokens == {"x": token}

    image.replay(RemoveUserScramCredentialRecord(name="alice", mechanism=1))
    image.replay(RemoveAccessControlEntryRecord(id=ID))
    image.replay(RemoveDelegationTokenRecord(token_id="x"))
    assert state_of(image) == state_of(MetadataImage())


def test_features_have_a_level_or_none_and_a_log_that_names_none_is_of_kafka_3_0() -> None:
    image = MetadataImage()
    assert image.metadata_version == 1
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=21))
    image.replay(FeatureLevelRecord(name="group.version", feature_level=1))
    assert image.metadata_version == 21
    image.replay(FeatureLevelRecord(name="group.version", feature_level=0))
    assert image.features == {"metadata.version": 21}


def test_producer_ids_migration_and_nothing_are_taken_as_said() -> None:
    state = ZkMigrationStateRecord(zk_migration_state=3)
    image = image_of(
        ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1000), state, NoOpRecord()
    )
    assert image.next_producer_id == 1000
    assert image.zk_migration == state


# Nodes


def test_a_registration_is_what_it_said_with_all_changes_since() -> None:
    image = image_of(broker())

    def changed(**fields: Any) -> RegisterBrokerRecord:
        record = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, **fields)
        image.replay(record)
        return image.brokers[1]

    assert changed(fenced=-1) == broker(fenced=False)
    assert changed(in_controlled_shutdown=1) == broker(fenced=False, in_controlled_shutdown=True)
    assert changed(fenced=1, log_dirs=[SECOND_DIRECTORY]) == broker(
        in_controlled_shutdown=True, log_dirs=[SECOND_DIRECTORY]
    )
    assert changed(cordoned_log_dirs=[DIRECTORY]).cordoned_log_dirs == [DIRECTORY]
    fenced = []
    for record in (UnfenceBrokerRecord(id=1, epoch=7), FenceBrokerRecord(id=1, epoch=7)):
        image.replay(record)
        fenced.append(image.brokers[1].fenced)
    assert fenced == [False, True]
    image.replay(UnregisterBrokerRecord(broker_id=1, broker_epoch=7))
    assert image.brokers == {}


def test_controllers_come_and_go() -> None:
    record = RegisterControllerRecord(
        controller_id=3,
        incarnation_id=uuid(1),
        zk_migration_ready=False,
        end_points=[],
        features=[],
    )
    image = image_of(record)
    assert image.controllers == {3: record}
    image.replay(UnregisterControllerRecord(controller_id=3))
    assert image.controllers == {}


# Transactions


def test_a_transaction_counts_when_it_ends_and_not_before() -> None:
    image = one_topic()
    before = frozen(image)
    records: list[MetadataRecord] = [
        TopicRecord(name="u", topic_id=OTHER_ID),
        partition(topic_id=OTHER_ID),
        RemoveTopicRecord(topic_id=ID),
    ]
    image.replay(BeginTransactionRecord(name="two things"))
    for record in records:
        image.replay(record)
    assert image.transaction == records
    image.transaction = None
    assert frozen(image) == before
    image.transaction = records

    image.replay(EndTransactionRecord())

    assert list(image.topics) == ["u"]
    assert image.transaction is None


def test_an_aborted_transaction_has_not_happened() -> None:
    image = one_topic()
    before = frozen(image)
    for record in (
        BeginTransactionRecord(),
        RemoveTopicRecord(topic_id=ID),
        AbortTransactionRecord(reason="why not"),
    ):
        image.replay(record)

    assert frozen(image) == before


# Nonsense

NONSENSE: list[tuple[str, MetadataRecord]] = [
    ("made twice", TopicRecord(name="t", topic_id=OTHER_ID)),
    ("given twice", TopicRecord(name="u", topic_id=ID)),
    ("partition 0 of an unknown topic", partition(topic_id=OTHER_ID)),
    ("partition -1", partition(-1)),
    ("2 replicas in 1 directories", partition(replicas=[1, 2])),
    ("1 replicas in 2 directories", change(directories=[DIRECTORY, SECOND_DIRECTORY])),
    ("of an unknown topic", PartitionChangeRecord(partition_id=0, topic_id=OTHER_ID)),
    ("does not have", PartitionChangeRecord(partition_id=1, topic_id=ID)),
    ("a removal of an unknown topic", RemoveTopicRecord(topic_id=OTHER_ID)),
    ("which there is not", ClearElrRecord(topic_name="u")),
    ("no such credential", RemoveUserScramCredentialRecord(name="alice", mechanism=1)),
    ("no access control entry", RemoveAccessControlEntryRecord(id=ID)),
    ("broker 1 is not registered", UnregisterBrokerRecord(broker_id=1, broker_epoch=1)),
    (
        "broker 1 is not registered",
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1),
    ),
    ("broker 1 is not registered", FenceBrokerRecord(id=1, epoch=1)),
    ("broker 1 is not registered", UnfenceBrokerRecord(id=1, epoch=1)),
    ("EndTransactionRecord without", EndTransactionRecord()),
    ("AbortTransactionRecord without", AbortTransactionRecord()),
    (
        "wanted each once",
        ClientQuotaRecord(
            entity=[
                ClientQuotaRecord.EntityData(entity_type="user", entity_name=name)
                for name in ("a", None)
            ],
            key="k",
            value=1.0,
            remove=False,
        ),
    ),
    ("wanted each once", ClientQuotaRecord(entity=[], key="k", value=1.0, remove=False)),
]


@pytest.mark.parametrize(("told", "record"), NONSENSE)
def test_what_contradicts_the_log_is_refused_and_changes_nothing(
    told: str, record: MetadataRecord
) -> None:
    image = one_topic()
    before = frozen(image)

    with pytest.raises(MetadataError, match=told):
        image.replay(record)
    assert frozen(image) == before
    with pytest.raises(MetadataError, match=told):
        run_here(require_sense(image, [NoOpRecord(), record]))
    assert frozen(image) == before


def test_a_transaction_within_a_transaction_is_nonsense() -> None:
    image = image_of(BeginTransactionRecord())
    with pytest.raises(MetadataError, match="within a transaction"):
        image.replay(BeginTransactionRecord())
