"""Records and batches of the metadata log, against bytes that Kafka 3.9 wrote."""

from __future__ import annotations

import pytest

from protocol.logdata.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControlRecord,
    EndPoint,
    EndTransactionRecord,
    Feature,
    FeatureLevelRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    UserScramCredentialRecord,
    VotersRecord,
    ZkMigrationStateRecord,
    control_batch,
    decode_control,
    decode_record,
    encode_control,
    encode_record,
    metadata_batch,
    read_batch,
)
from protocol.records.walk import walk

T1 = bytes.fromhex("481b05ce24a94319bb6b7ecd8b0bd251")
DIRECTORY = bytes.fromhex("06ae99d5510463f50a48a30be59c2098")
ACL = bytes.fromhex("68d863bde4844e49bf6584158c4617e0")

_Quota = ClientQuotaRecord.EntityData
_Voter = LeaderChangeMessage.Voter
_Member = VotersRecord.Voter
FEATURES = [
    Feature(name="kraft.version", min_supported_version=0, max_supported_version=1),
    Feature(name="metadata.version", min_supported_version=1, max_supported_version=21),
]


def change(*, fenced: int = 0, shutdown: int = 0) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=7, fenced=fenced, in_controlled_shutdown=shutdown
    )


RECORDS: dict[str, tuple[MetadataRecord, str]] = {
    "begin": (
        BeginTransactionRecord(name="Bootstrap records"),
        "01170001001212426f6f747374726170207265636f726473",
    ),
    "end": (EndTransactionRecord(), "01180000"),
    "abort": (
        AbortTransactionRecord(reason="Controller failover"),
        "01190001001414436f6e74726f6c6c6572206661696c6f766572",
    ),
    "feature": (
        FeatureLevelRecord(name="metadata.version", feature_level=21),
        "010c00116d657461646174612e76657273696f6e001500",
    ),
    "migration": (ZkMigrationStateRecord(zk_migration_state=0), "0115000000"),
    "no-op": (NoOpRecord(), "01140000"),
    "controller": (
        RegisterControllerRecord(
            controller_id=1,
            incarnation_id=bytes.fromhex("c8dbbbce25014fa4bcb0bbba745e4e9c"),
            zk_migration_ready=False,
            end_points=[
                EndPoint(name="CONTROLLER", host="127.0.0.1", port=31893, security_protocol=0)
            ],
            features=FEATURES,
        ),
        "011b0000000001c8dbbbce25014fa4bcb0bbba745e4e9c00020b434f4e54524f4c4c45520a3132372e302e30"
        "2e317c95000000030e6b726166742e76657273696f6e0000000100116d657461646174612e76657273696f6e"
        "000100150000",
    ),
    "broker": (
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=bytes.fromhex("f2f84a14e28b4467a493ad7e225c1f59"),
            broker_epoch=7,
            end_points=[
                EndPoint(name="PLAINTEXT", host="127.0.0.1", port=31892, security_protocol=0)
            ],
            features=FEATURES,
            rack=None,
            fenced=True,
            log_dirs=[DIRECTORY],
        ),
        "0100030000000100f2f84a14e28b4467a493ad7e225c1f590000000000000007020a504c41494e544558540a"
        "3132372e302e302e317c94000000030e6b726166742e76657273696f6e0000000100116d657461646174612e"
        "76657273696f6e00010015000001000100110206ae99d5510463f50a48a30be59c2098",
    ),
    "unfence": (change(fenced=-1), "011100000000010000000000000007010001ff"),
    "controlled shutdown": (
        change(shutdown=1),
        "01110100000001000000000000000701010101",
    ),
    "fence": (change(fenced=1), "01110000000001000000000000000701000101"),
    "topic": (
        TopicRecord(name="t1", topic_id=T1),
        "010200037431481b05ce24a94319bb6b7ecd8b0bd25100",
    ),
    "config": (
        ConfigRecord(resource_type=2, resource_name="t1", name="cleanup.policy", value="compact"),
        "010400020374310f636c65616e75702e706f6c69637908636f6d7061637400",
    ),
    "config removed": (
        ConfigRecord(resource_type=2, resource_name="t1", name="segment.ms", value=None),
        "010400020374310b7365676d656e742e6d730000",
    ),
    "partition": (
        PartitionRecord(
            partition_id=0,
            topic_id=T1,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY],
        ),
        "01030100000000481b05ce24a94319bb6b7ecd8b0bd251020000000102000000010101000000010000000000"
        "0000000206ae99d5510463f50a48a30be59c209800",
    ),
    "no leader": (
        PartitionChangeRecord(
            partition_id=0, topic_id=bytes.fromhex("21439e4a141e428499d51733ccf92968"), leader=-1
        ),
        "0105010000000021439e4a141e428499d51733ccf92968010104ffffffff",
    ),
    "leader": (
        PartitionChangeRecord(
            partition_id=0, topic_id=bytes.fromhex("f1e440efff7042858b0edbcd3bba6a66"), leader=1
        ),
        "01050100000000f1e440efff7042858b0edbcd3bba6a6601010400000001",
    ),
    "remove topic": (
        RemoveTopicRecord(topic_id=bytes.fromhex("3fd10b1073ed464da115c550d58a7c7d")),
        "0109003fd10b1073ed464da115c550d58a7c7d00",
    ),
    "producer ids": (
        ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=1000),
        "010f0000000001000000000000000700000000000003e800",
    ),
    "quota": (
        ClientQuotaRecord(
            entity=[
                _Quota(entity_type="client-id", entity_name=None),
                _Quota(entity_type="user", entity_name="alice"),
            ],
            key="consumer_byte_rate",
            value=2048.0,
            remove=False,
        ),
        "010e00030a636c69656e742d69640000057573657206616c6963650013636f6e73756d65725f627974655f72"
        "61746540a00000000000000000",
    ),
    "quota removed": (
        ClientQuotaRecord(
            entity=[_Quota(entity_type="user", entity_name=None)],
            key="producer_byte_rate",
            value=0.0,
            remove=True,
        ),
        "010e0002057573657200001370726f64756365725f627974655f7261746500000000000000000100",
    ),
    "ip quota": (
        ClientQuotaRecord(
            entity=[_Quota(entity_type="ip", entity_name="127.0.0.9")],
            key="connection_creation_rate",
            value=10.0,
            remove=False,
        ),
        "010e00020369700a3132372e302e302e390019636f6e6e656374696f6e5f6372656174696f6e5f7261746540"
        "240000000000000000",
    ),
    "scram": (
        UserScramCredentialRecord(
            name="alice",
            mechanism=1,
            salt=b"123",
            stored_key=bytes.fromhex(
                "11c8d58f73b2dc7e4876538a2c390e4181ef3ed048a8bc16ceed16d57c6a386a"
            ),
            server_key=bytes.fromhex(
                "1f655c66de3267e37cc29618d7887bcc646b665b4f29b20cd6f31867100053e4"
            ),
            iterations=8192,
        ),
        "010b0006616c69636501043132332111c8d58f73b2dc7e4876538a2c390e4181ef3ed048a8bc16ceed16d57c"
        "6a386a211f655c66de3267e37cc29618d7887bcc646b665b4f29b20cd6f31867100053e40000200000",
    ),
    "scram removed": (
        RemoveUserScramCredentialRecord(name="alice", mechanism=1),
        "01160006616c6963650100",
    ),
    "acl": (
        AccessControlEntryRecord(
            id=ACL,
            resource_type=2,
            resource_name="a2",
            pattern_type=3,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        ),
        "01120068d863bde4844e49bf6584158c4617e002036132030b557365723a616c696365022a030300",
    ),
    "acl removed": (
        RemoveAccessControlEntryRecord(id=ACL),
        "01130068d863bde4844e49bf6584158c4617e000",
    ),
}

LEADER_CHANGE = LeaderChangeMessage(
    leader_id=1, voters=[_Voter(voter_id=1)], granting_voters=[_Voter(voter_id=1)]
)
CONTROL: dict[str, tuple[ControlRecord, str, str]] = {
    "leader": (LEADER_CHANGE, "00000002", "00000000000102000000010002000000010000"),
    "kraft.version": (KRaftVersionRecord(k_raft_version=1), "00000005", "0000000100"),
    "voters": (
        VotersRecord(
            voters=[
                _Member(
                    voter_id=1,
                    voter_directory_id=bytes.fromhex("4e155846aaca4559af51f8c8c7b59984"),
                    endpoints=[_Member.Endpoint(name="CONTROLLER", host="127.0.0.1", port=31893)],
                    k_raft_version_feature=_Member.KRaftVersionFeature(
                        min_supported_version=0, max_supported_version=1
                    ),
                )
            ]
        ),
        "00000006",
        "000002000000014e155846aaca4559af51f8c8c7b59984020b434f4e54524f4c4c45520a3132372e302e302e"
        "317c950000000001000000",
    ),
}

LEADER_BATCH = bytes.fromhex(
    "00000000000000000000004f000000010201fd893d002000000000000001a1f8862fc7000001a1f8862fc7ffff"
    "ffffffffffffffffffffffff000000013a0000000800000002260000000000010200000001000200000001000000"
)
BOOTSTRAP_BATCH = bytes.fromhex(
    "000000000000000100000085000000010244527157000000000003000001a1f8863057000001a1f8863057ffff"
    "ffffffffffffffffffffffff000000043c000000013001170001001212426f6f747374726170207265636f7264"
    "73003a000002012e010c00116d657461646174612e76657273696f6e0015000016000004010a01150000000014"
    "00000601080118000000"
)
CHECKPOINT = bytes.fromhex(
    "0000000000000000000000470000000002994a40c7002000000000000001a1f88620a7000001a1f88620a7ffff"
    "ffffffffffffffffffffffff000000012a00000008000000031600000000000000000000000000000000000000"
    "010000004f0000000002347a3470000000000000000001a1f88620d0000001a1f88620d0ffffffffffffffffff"
    "ffffffffff000000013a000000012e010c00116d657461646174612e76657273696f6e00150000000000000000"
    "00020000003f00000000023b328483002000000000000001a1f88620d1000001a1f88620d1ffffffffffffffff"
    "ffffffffffff000000011a00000008000000040600000000"
)


@pytest.mark.parametrize(("record", "value"), RECORDS.values(), ids=RECORDS)
def test_a_record_of_kafka_is_read_and_written_as_kafka_wrote_it(
    record: MetadataRecord, value: str
) -> None:
    raw = bytes.fromhex(value)
    assert decode_record(raw) == record
    assert type(decode_record(raw)) is type(record)
    assert encode_record(record) == raw


@pytest.mark.parametrize(("record", "key", "value"), CONTROL.values(), ids=CONTROL)
def test_a_control_record_of_kafka_is_read_and_written_as_kafka_wrote_it(
    record: ControlRecord, key: str, value: str
) -> None:
    assert decode_control(bytes.fromhex(key), bytes.fromhex(value)) == record
    assert encode_control(record) == (bytes.fromhex(key), bytes.fromhex(value))


def test_a_leaders_first_batch_is_kafkas() -> None:
    batch = read_batch(LEADER_BATCH)
    assert batch == (0, 0, 1, 0x1A1F8862FC7, True, [LEADER_CHANGE])
    made = control_batch([LEADER_CHANGE], base_offset=0, epoch=1, timestamp_ms=0x1A1F8862FC7)
    assert made == LEADER_BATCH


def test_the_bootstrap_transaction_is_kafkas() -> None:
    records = [RECORDS[name][0] for name in ("begin", "feature", "migration", "end")]
    batch = read_batch(memoryview(BOOTSTRAP_BATCH))
    assert batch == (1, 4, 1, 0x1A1F8863057, False, records)
    values = [encode_record(record) for record in records]
    made = metadata_batch(values, base_offset=1, epoch=1, timestamp_ms=0x1A1F8863057)
    assert made == BOOTSTRAP_BATCH


def test_the_bootstrap_checkpoint_is_kafkas() -> None:
    assert len(CHECKPOINT) == 249
    parts = [CHECKPOINT[at : at + size] for at, size, _ in walk(CHECKPOINT)]
    header, data, footer = map(read_batch, parts)
    assert header.records == [SnapshotHeaderRecord(last_contained_log_timestamp=0)]
    assert data.records == [RECORDS["feature"][0]]
    assert footer.records == [SnapshotFooterRecord()]
    assert [batch.base_offset for batch in (header, data, footer)] == [0, 1, 2]
    made = bytearray()
    made += control_batch(
        [SnapshotHeaderRecord(last_contained_log_timestamp=0)],
        base_offset=0,
        epoch=0,
        timestamp_ms=header.timestamp_ms,
    )
    made += metadata_batch(
        [encode_record(RECORDS["feature"][0])],
        base_offset=1,
        epoch=0,
        timestamp_ms=data.timestamp_ms,
    )
    made += control_batch(
        [SnapshotFooterRecord()], base_offset=2, epoch=0, timestamp_ms=footer.timestamp_ms
    )
    assert made == CHECKPOINT


def test_a_header_of_a_dynamic_quorum_is_as_long_as_kafkas() -> None:
    first = [
        SnapshotHeaderRecord(last_contained_log_timestamp=0),
        CONTROL["kraft.version"][0],
        CONTROL["voters"][0],
    ]
    made = control_batch(first, base_offset=0, epoch=0, timestamp_ms=0x1A1F88620A7)
    assert len(made) == 166
    assert read_batch(made).records == first
