"""Keys and values of `__consumer_offsets`, against bytes that Kafka wrote."""

from __future__ import annotations

import random

import pytest

from protocol.logdata.offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    Record,
    UnknownRecord,
    decode_key,
    decode_value,
    encode_record,
    java_hash,
    shard_of,
)

TOPIC = bytes.fromhex("ea6d84ea43b14048aeea0b0a483952a1")

_Member = ConsumerGroupMemberMetadataValue
_Topic = ConsumerGroupPartitionMetadataValue.TopicMetadata
_Target = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
_Held = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions

# Written by Kafka 3.9.
GOLDEN: dict[str, tuple[Record, str, str | None]] = {
    "offset": (
        (
            OffsetCommitKey(group="g1", topic="t2", partition=0),
            OffsetCommitValue(
                offset=9, leader_epoch=0, metadata="", commit_timestamp=0x1A1F886E9A1
            ),
        ),
        "0001000267310002743200000000",
        "00030000000000000009000000000000000001a1f886e9a1",
    ),
    "empty classic group": (
        (
            GroupMetadataKey(group="g1"),
            GroupMetadataValue(
                protocol_type="consumer",
                generation=2,
                protocol=None,
                leader=None,
                current_state_timestamp=0x1A1F886E9B2,
                members=[],
            ),
        ),
        "000200026731",
        "00030008636f6e73756d657200000002ffffffff000001a1f886e9b200000000",
    ),
    "member": (
        (
            ConsumerGroupMemberMetadataKey(group_id="g848", member_id="RvaPOOfASCmLBb8NiXbIdg"),
            _Member(
                instance_id=None,
                rack_id=None,
                client_id="console-consumer",
                client_host="/127.0.0.1",
                subscribed_topic_names=["a2"],
                subscribed_topic_regex="",
                rebalance_timeout_ms=300_000,
                server_assignor=None,
            ),
        ),
        "00050004673834380016527661504f4f664153436d4c4262384e695862496467",
        "0000000011636f6e736f6c652d636f6e73756d65720b2f3132372e302e302e310203613201000493e0"
        "0001000100",
    ),
    "topics": (
        (
            ConsumerGroupPartitionMetadataKey(group_id="g848"),
            ConsumerGroupPartitionMetadataValue(
                topics=[
                    _Topic(topic_id=TOPIC, topic_name="a2", num_partitions=3, partition_metadata=[])
                ]
            ),
        ),
        "0004000467383438",
        "000002ea6d84ea43b14048aeea0b0a483952a103613200000003010000",
    ),
    "no topics": (
        (
            ConsumerGroupPartitionMetadataKey(group_id="g848"),
            ConsumerGroupPartitionMetadataValue(topics=[]),
        ),
        "0004000467383438",
        "00000100",
    ),
    "epoch": (
        (ConsumerGroupMetadataKey(group_id="g848"), ConsumerGroupMetadataValue(epoch=1)),
        "0003000467383438",
        "00000000000100",
    ),
    "target epoch": (
        (
            ConsumerGroupTargetAssignmentMetadataKey(group_id="g848"),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=1),
        ),
        "0006000467383438",
        "00000000000100",
    ),
    "target of a member": (
        (
            ConsumerGroupTargetAssignmentMemberKey(
                group_id="g848", member_id="RvaPOOfASCmLBb8NiXbIdg"
            ),
            ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[_Target(topic_id=TOPIC, partitions=[0, 1, 2])]
            ),
        ),
        "00070004673834380016527661504f4f664153436d4c4262384e695862496467",
        "000002ea6d84ea43b14048aeea0b0a483952a1040000000000000001000000020000",
    ),
    "held by a member": (
        (
            ConsumerGroupCurrentMemberAssignmentKey(
                group_id="g848", member_id="RvaPOOfASCmLBb8NiXbIdg"
            ),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=1,
                previous_member_epoch=0,
                state=0,
                assigned_partitions=[_Held(topic_id=TOPIC, partitions=[0, 1, 2])],
                partitions_pending_revocation=[],
            ),
        ),
        "00080004673834380016527661504f4f664153436d4c4262384e695862496467",
        "000000000001000000000002ea6d84ea43b14048aeea0b0a483952a104000000000000000100000002000100",
    ),
    "tombstone": (
        (ConsumerGroupMetadataKey(group_id="g848"), None),
        "0003000467383438",
        None,
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_of_kafka_is_read_and_written_to_the_byte(name: str) -> None:
    record, key, value = GOLDEN[name]
    raw_key, raw_value = encode_record(record)
    assert raw_key.hex() == key
    assert (None if raw_value is None else raw_value.hex()) == value
    found = decode_key(bytes.fromhex(key))
    assert found == record[0]
    if value is not None:
        assert decode_value(found, bytes.fromhex(value)) == record[1]


def test_a_member_that_speaks_the_classic_protocol_keeps_its_protocols() -> None:
    classic = _Member.ClassicMemberMetadata(
        session_timeout_ms=45_000,
        supported_protocols=[
            _Member.ClassicMemberMetadata.ClassicProtocol(name="range", metadata=b"\x01\x00\x01")
        ],
    )
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    value = _Member(
        instance_id="i",
        rack_id="r",
        client_id="c",
        client_host="/h",
        subscribed_topic_names=[],
        subscribed_topic_regex=None,
        server_assignor="",
        rebalance_timeout_ms=0x0100,  # the end then looks like that of Kafka's null
        classic_member_metadata=classic,
    )
    raw = encode_record((key, value))[1]
    assert raw is not None
    assert decode_value(key, raw) == value
    value.classic_member_metadata = None
    assert decode_value(key, b"\x00\x00" + value.encode(0)) == value


def test_an_offset_that_expires_is_written_in_version_1_and_keeps_no_epoch() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    value = OffsetCommitValue(
        offset=5, leader_epoch=3, metadata="m", commit_timestamp=7, expire_timestamp=9
    )
    raw = encode_record((key, value))[1]
    assert raw is not None
    assert raw[:2] == b"\x00\x01"
    found = decode_value(key, raw)
    assert (found.offset, found.leader_epoch, found.expire_timestamp) == (5, -1, 9)


def test_keys_and_values_of_old_kafka_are_read() -> None:
    key = decode_key(bytes.fromhex("000000016700017400000003"))
    assert key == OffsetCommitKey(group="g", topic="t", partition=3)
    value = decode_value(key, bytes.fromhex("0000000000000000000b00000000000000000007"))
    assert (value.offset, value.leader_epoch, value.commit_timestamp) == (11, -1, 7)


def test_bytes_after_the_last_field_mean_nothing_as_to_kafka() -> None:
    (key, value), raw_key, raw_value = GOLDEN["offset"]
    assert raw_value is not None
    assert decode_key(bytes.fromhex(raw_key) + b"more") == key
    assert decode_value(key, bytes.fromhex(raw_value) + b"more") == value


@pytest.mark.parametrize("version", [-1, 9, 10, 11, 12, 13, 14, 15, 17, 99])
def test_a_key_of_another_kind_is_refused_with_its_number(version: int) -> None:
    with pytest.raises(UnknownRecord, match=f"version {version}"):
        decode_key(version.to_bytes(2, "big", signed=True) + b"\x00\x01g\x00\x01m")


@pytest.mark.parametrize("data", [None, b"", b"\x00", b"\x00\x01", b"\x00\x01\x7f\xff"])
def test_what_is_no_key_is_refused(data: bytes | None) -> None:
    with pytest.raises(UnknownRecord):
        decode_key(data)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x03", b"\x00\x05" + bytes(40), b"\xff\xff"])
def test_what_is_no_value_is_refused(data: bytes) -> None:
    with pytest.raises(UnknownRecord):
        decode_value(GOLDEN["offset"][0][0], data)


def test_a_regular_expression_of_kafka_4_is_known() -> None:
    key = decode_key(bytes.fromhex("00100001670002612a"))
    assert key == ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="a*")


@pytest.mark.parametrize(
    ("group", "partition"), [("g1", 42), ("app-group", 35), ("tx1", 45), ("g848", 7)]
)
def test_groups_go_where_kafka_puts_them(group: str, partition: int) -> None:
    assert shard_of(group, 50) == partition


def java(text: str) -> int:
    """The definition, unit by unit."""
    raw = text.encode("utf-16-be", "surrogatepass")
    number = 0
    for at in range(0, len(raw), 2):
        number = number * 31 + int.from_bytes(raw[at : at + 2], "big")
    number %= 1 << 32
    return number - (1 << 32) if number >= 1 << 31 else number


def test_a_hash_is_that_of_java() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322  # documented by many
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert shard_of("polygenelubricants", 50) == 0
    chance = random.Random(5)
    for _ in range(2000):
        text = "".join(
            chance.choice("abcz019._-äß→日\U0001f600\udc80") for _ in range(chance.randrange(40))
        )
        assert java_hash(text) == java(text), repr(text)
