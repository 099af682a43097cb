"""Keys and values of the records of `__consumer_offsets`.

    key     int16 version, then the fields. The version says what kind of record it is:
            0, 1  offset of a partition     2  classic group     3..8, 16  consumer group (KIP-848)
    value   int16 version, then the fields; no value at all is a tombstone: the thing is gone

Keys 9 to 15 are those of share groups and of nobody else. Strings of the values of consumer groups
are compact, those of all keys are not. Kafka says what fields there are in its schemas of the group
coordinator (KIP-848 describes those from 3 on).
"""

from __future__ import annotations

import contextlib
from struct import Struct as Format
from typing import Any

from protocol.errors import Malformed
from protocol.logdata.commits import commit_batch as commit_batch
from protocol.schema import Struct, array, binary, int8, int32, int64, string, struct, uuid

Record = tuple[Struct, Struct | None]
"""A key and its value, None for a tombstone."""

_VERSION = Format(">h")


class UnknownRecord(Malformed):
    """The bytes are no key or value that we know: another product's, later Kafka's, or damaged."""


class OffsetCommitKey(Struct, versions="0-1"):
    """One partition of one group. Both versions have the same fields; 1 is written."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Struct, versions="0-4", flexible="4+"):
    """A committed offset. 1 has a time of its own to expire at, 2 dropped it, 3 has the epoch.

    Times in ms since 1970. `metadata` is what the consumer wants to remember, seldom anything.
    """

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)


class GroupMetadataKey(Struct, versions="2"):
    """A classic group."""

    group: str = string()


class GroupMetadataValue(Struct, versions="0-4", flexible="4+"):
    """A classic group as it was when it became Stable or Empty.

    Times in ms; `current_state_timestamp` is since 1970. Protocol and leader are null when Empty.
    `subscription` and `assignment` are the consumers' own bytes: see `membership`.
    """

    class Member(Struct):
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        client_id: str = string()
        client_host: str = string()
        rebalance_timeout: int = int32("1+", default=-1)
        session_timeout: int = int32()
        subscription: bytes = binary()
        assignment: bytes = binary()

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="")
    leader: str | None = string(nullable="")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[Member] = array(Member)


class ConsumerGroupMetadataKey(Struct, versions="3"):
    """A consumer group; its tombstone is the last record of the group."""

    group_id: str = string()


class ConsumerGroupMetadataValue(Struct, versions="0", flexible="0+"):
    """Its epoch, which grows with every change of members or topics."""

    epoch: int = int32()


class ConsumerGroupPartitionMetadataKey(Struct, versions="4"):
    """The topics that a consumer group subscribes to."""

    group_id: str = string()


class ConsumerGroupPartitionMetadataValue(Struct, versions="0", flexible="0+"):
    """As they were when the group's epoch last changed."""

    class TopicMetadata(Struct):
        class PartitionMetadata(Struct):
            partition: int = int32()
            racks: list[str] = array(string)

        topic_id: bytes = uuid()
        topic_name: str = string()
        num_partitions: int = int32()
        partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)

    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Struct, versions="5"):
    """The metadata of a member of a consumer group, as it stated them."""

    group_id: str = string()
    member_id: str = string()


class ConsumerGroupMemberMetadataValue(Struct, versions="0", flexible="0+"):
    """Times in ms. `classic_member_metadata` is that of a member that speaks the classic protocol.

    Kafka stores an empty regular expression, not null, for a member without one.
    """

    class ClassicMemberMetadata(Struct):
        class ClassicProtocol(Struct):
            name: str = string()
            metadata: bytes = binary()

        session_timeout_ms: int = int32()
        supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)

    instance_id: str | None = string(nullable="")
    rack_id: str | None = string(nullable="")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable="", default=None, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Struct, versions="6"):
    """The assignment that a consumer group is on its way to."""

    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Struct, versions="0", flexible="0+"):
    """The epoch of the group that it was computed for."""

    assignment_epoch: int = int32()


class ConsumerGroupTargetAssignmentMemberKey(Struct, versions="7"):
    """The part of one member in that assignment."""

    group_id: str = string()
    member_id: str = string()


class ConsumerGroupTargetAssignmentMemberValue(Struct, versions="0", flexible="0+"):
    """Partitions by topic."""

    class TopicPartition(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Struct, versions="8"):
    """The current assignment of a member."""

    group_id: str = string()
    member_id: str = string()


class ConsumerGroupCurrentMemberAssignmentValue(Struct, versions="0", flexible="0+"):
    """Its epoch, its partitions and those that it has yet to give up.

    `assignment_epochs` (Kafka 4.3) is the epoch of the member in which each of the partitions was
    assigned, null for that of the member now. Kafka takes its absence for an empty list, which is
    an error to it where there are partitions. 3.9 steps over it.
    """

    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)
        assignment_epochs: list[int] | None = array(int32, nullable="0+", default=(), tag=0)

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Struct, versions="16"):
    """A regular expression that members subscribe to (Kafka 4.0)."""

    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Struct, versions="0", flexible="0+"):
    """The topics that it matched at `version` of the metadata, seen at `timestamp` (ms)."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()


class _Kind:
    """A kind of record: its key, its value, and the versions that we write."""

    __slots__ = ("key", "key_version", "value", "value_version")

    def __init__(
        self, key: type[Struct], value: type[Struct], key_version: int, value_version: int
    ) -> None:
        self.key = key
        self.value = value
        self.key_version = key_version
        self.value_version = value_version


_OFFSET = _Kind(OffsetCommitKey, OffsetCommitValue, 1, 3)
_KINDS: dict[int, _Kind] = {
    0: _OFFSET,
    1: _OFFSET,
    2: _Kind(GroupMetadataKey, GroupMetadataValue, 2, 3),
    3: _Kind(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 3, 0),
    4: _Kind(ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, 4, 0),
    5: _Kind(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 5, 0),
    6: _Kind(
        ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, 6, 0
    ),
    7: _Kind(
        ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 7, 0
    ),
    8: _Kind(
        ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 8, 0
    ),
    16: _Kind(ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 16, 0),
}
_KIND_OF_KEY: dict[type[Struct], _Kind] = {kind.key: kind for kind in _KINDS.values()}

# To Kafka the absence of this tag is a classic member without protocols. So where there is none it
# writes the tag, with a zero for null, which is -1 everywhere else.
_NO_TAGS = b"\x00"
_NO_CLASSIC_MEMBER = b"\x01\x00\x01\x00"

_WITH_EXPIRY = 1
"""The only version of an offset's value that has a time to expire at."""


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value in the versions that Kafka 3.9 writes: keys of offsets in 1, their values in 3,
    or in 1 if one has a time to expire at; classic groups in 3; the rest in 0.

    Raises ValueError for what the format cannot hold, naming the field.
    """
    key, value = record
    kind = _KIND_OF_KEY[type(key)]
    raw_key = _VERSION.pack(kind.key_version) + key.encode(kind.key_version)
    if value is None:
        return raw_key, None
    assert type(value) is kind.value, f"{value!r} is no value of {key!r}"
    version = kind.value_version
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != -1:
        version = _WITH_EXPIRY
    raw = value.encode(version)
    if isinstance(value, ConsumerGroupMemberMetadataValue) and (
        value.classic_member_metadata is None
    ):
        raw = raw.removesuffix(_NO_TAGS) + _NO_CLASSIC_MEMBER
    return raw_key, _VERSION.pack(version) + raw


def decode_key(data: bytes | bytearray | memoryview | None) -> Any:
    """The key of a record, one of the structs above.

    Bytes after the last field mean nothing, as to Kafka. Raises UnknownRecord.
    """
    if data is None:
        raise UnknownRecord("a record without a key, and only a key says what a record is")
    version, raw = _version_of(data, "key")
    kind = _KINDS.get(version)
    if kind is None:
        raise UnknownRecord(f"a key of version {version}, known are 0 to 8 and 16")
    return _decode(kind.key, version, raw)


def decode_value(key: Struct, data: bytes | bytearray | memoryview) -> Any:
    """The value of a record with this key; the caller has seen that there is one.

    Bytes after the last field mean nothing, as to Kafka. Raises UnknownRecord.
    """
    value = _KIND_OF_KEY[type(key)].value
    version, raw = _version_of(data, "value")
    if not value.valid_versions.holds(version):
        raise UnknownRecord(
            f"{value.__name__} of version {version}, known are {value.valid_versions}"
        )
    if value is ConsumerGroupMemberMetadataValue and raw.endswith(_NO_CLASSIC_MEMBER):
        with contextlib.suppress(UnknownRecord):
            return _decode(value, version, raw.removesuffix(_NO_CLASSIC_MEMBER) + _NO_TAGS)
    return _decode(value, version, raw)


def _version_of(data: bytes | bytearray | memoryview, what: str) -> tuple[int, bytes]:
    raw = bytes(data)
    if len(raw) < _VERSION.size:
        raise UnknownRecord(f"a {what} of {len(raw)} bytes, the version alone has {_VERSION.size}")
    version: int = _VERSION.unpack_from(raw)[0]
    return version, raw


def _decode(cls: type[Struct], version: int, raw: bytes) -> Struct:
    try:
        return cls.decoder(version)(raw, _VERSION.size, len(raw))[0]
    except Malformed as error:
        raise UnknownRecord(f"{cls.__name__} v{version}: {error}") from None


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 31 h + u over the UTF-16 code units, a signed number of 32 bits."""
    units = (
        text.encode()
        if text.isascii()
        else memoryview(text.encode("utf-16-le" if _LITTLE else "utf-16-be", "surrogatepass")).cast(
            "H"
        )
    )
    number = 0
    for unit in units:
        number = (31 * number + unit) & 0xFFFF_FFFF
    return number - (number >> 31 << 32)


def shard_of(group: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that a group is in; -2^31 counts as 0, as in Java."""
    number = java_hash(group)
    return (0 if number == -(1 << 31) else abs(number)) % partition_count


_LITTLE = Format("=H").pack(1) == b"\x01\x00"
