"""The contents of a snapshot of a shard: groups and offsets as records of our own.

Nobody else reads them, and a start that does not understand them replays the log instead. A record
has a key of one byte for its kind, and what follows; big-endian where nothing else is said:

    key                      value
    0                        the first: u16 format version, 16 bytes topic id, i64 end offset,
                             i64 timestamp of the last batch (-1 none), u64 offsets, u32 groups,
                             then the partition's name
    1                        topics, many of: u32 number, u16 size, name
    2, key of a group        value of it, both as in the log
    3                        offsets of groups that have few: u32 count, count * u16 address of a
                             record, little-endian, then up to 16 pages with them (offsets.buckets)
    4, group id              columns of a group that has many (offsets.columns), little-endian:
                             n * u64 keys, n * i64 offsets, n * u32 seconds, n * i32 leader epochs
    5                        metadata, groups with many of: u16 size, group id, u32 count,
                             count * (u64 key, u16 size, text)
    6                        times to expire at, the same with count * (u64 key, i64 ms)
    7, i64 producer id,      offset of an open transaction, both as in the log; no value: something
    i64 offset, key          newer is in force

A key of 3 to 6 is (topic number << 32) + partition; the numbers are those of this file.
What if it is lost: a start takes longer (docs/formats/groups-snapshot.md).
"""

from __future__ import annotations

import sys
from array import array
from itertools import chain, islice
from struct import Struct
from struct import error as TooShort
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from broker.coordinator.consumer.members import (
    NEW,
    UNHEARD,
    current_record,
    facts_record,
    target_record,
)
from broker.coordinator.offsets.buckets import PAGE_BYTES, encoded
from protocol.logdata.offsets import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from broker.coordinator.consumer.state import SharedGroup
    from broker.coordinator.offsets.columns import Columns
    from broker.coordinator.offsets.committed import SharedOffsets
    from broker.coordinator.shard_state import SharedState
    from protocol.logdata.offsets import Record

    SnapshotRecord = tuple[bytes | None, bytes]

Value = TypeVar("Value")

FORMAT_VERSION = 1
ABOUT, TOPICS, GROUP, PAGES, COLUMNS, METADATA, EXPIRY, PENDING = range(8)

PAGES_AT_ONCE = 16
BLOCK_BYTES = PAGES_AT_ONCE * PAGE_BYTES
"""Of a record. All addresses in it are u16; nothing that is done with it holds the interpreter for
more than some dozen microseconds, so that it can be done beside a running broker."""
RARE_AT_ONCE = 64
"""Entries with metadata in one part: each may have 32 KB."""
APPEND_BYTES = 1 << 20
"""About what is handed on at a time."""

HEAD = Struct(">H16sqqQI")
TOPIC = Struct(">IH")
COUNT = Struct(">I")
NAME_SIZE = Struct(">H")
METADATA_HEAD = Struct(">QH")
EXPIRY_ENTRY = Struct(">Qq")
PENDING_HEAD = Struct(">Bqq")
COLUMN_ENTRY_BYTES = 24

assert HEAD.size == 46
assert BLOCK_BYTES == 1 << 16


class Origin(NamedTuple):
    """The source of a snapshot: a partition's log up to an offset.

    `last_ms` is the largest timestamp of the batch before the end offset, -1 if there is none.
    """

    topic_id: bytes
    name: str
    end_offset: int
    last_ms: int


class About(NamedTuple):
    """The head of a snapshot: its source, and how many committed offsets and groups with records of
    their own it has."""

    origin: Origin
    offsets: int
    groups: int

    def encode(self) -> SnapshotRecord:
        topic_id, name, end_offset, last_ms = self.origin
        numbers = (topic_id, end_offset, last_ms, self.offsets, self.groups)
        return _kind(ABOUT), HEAD.pack(FORMAT_VERSION, *numbers) + name.encode()

    @classmethod
    def decode(cls, record: SnapshotRecord) -> About:
        """Raises ValueError for another kind of record, or another version."""
        key, value = record
        if key != _kind(ABOUT):
            raise ValueError("the first record does not say what the snapshot is of")
        try:
            version, topic_id, end_offset, last_ms, offsets, groups = HEAD.unpack_from(value)
        except TooShort:
            raise ValueError(f"{len(value)} bytes of what the snapshot is of") from None
        if version != FORMAT_VERSION:
            raise ValueError(f"format version {version}, known is {FORMAT_VERSION}")
        name = value[HEAD.size :].decode("utf-8", "replace")
        return cls(Origin(topic_id, name, end_offset, last_ms), offsets, groups)


def records_of(state: SharedState, origin: Origin) -> Iterator[list[SnapshotRecord]]:
    """The records of a snapshot, a list of about a megabyte at a time.

    Raises ValueError for what another product has written and ordinary records have no room for.
    """
    offsets = state.offsets
    about = About(origin, offsets.table.entry_count, len(state.groups))
    together: list[SnapshotRecord] = []
    size = 0
    for record in chain(
        [about.encode()],
        _topics(offsets.topics),
        _groups(state),
        _pages(offsets),
        _columns(offsets),
        _packed(METADATA, offsets.metadata, _metadata_entry),
        _packed(EXPIRY, offsets.expire_ms, EXPIRY_ENTRY.pack),
        _pending(offsets),
    ):
        together.append(record)
        size += len(record[1])
        if size >= APPEND_BYTES:
            yield together
            together, size = [], 0
    yield together


def _kind(kind: int) -> bytes:
    return bytes((kind,))


def _topics(topics: dict[int, str]) -> Iterator[SnapshotRecord]:
    parts = []
    for number, name in topics.items():
        raw = encoded(name)
        parts.append(TOPIC.pack(number, len(raw)) + raw)
    return _blocks(TOPICS, parts)


def _blocks(kind: int, parts: Iterable[bytes]) -> Iterator[SnapshotRecord]:
    """Parts, as many as make about a block, in a record."""
    together: list[bytes] = []
    size = 0
    for part in parts:
        together.append(part)
        size += len(part)
        if size >= BLOCK_BYTES:
            yield _kind(kind), b"".join(together)
            together, size = [], 0
    if together:
        yield _kind(kind), b"".join(together)


def _groups(state: SharedState) -> Iterator[SnapshotRecord]:
    for group in state.groups:
        records: Iterable[Record]
        if len(group) == 2:
            group_id, value = group
            records = [(GroupMetadataKey(group=group_id), value)]
        else:
            records = consumer_records(group)
        for record in records:
            key, value_bytes = encode_record(record)
            assert value_bytes is not None
            yield _kind(GROUP) + key, value_bytes


def consumer_records(group: SharedGroup) -> Iterator[Record]:
    """Records of a consumer group that give it again. The first makes it one."""
    group_id = group.group_id
    yield (
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=group.group_epoch),
    )
    if group.metadata:
        topic = ConsumerGroupPartitionMetadataValue.TopicMetadata
        topics = [
            topic(topic_id=topic_id, topic_name=name, num_partitions=count, partition_metadata=[])
            for name, (topic_id, count) in group.metadata.items()
        ]
        yield (
            ConsumerGroupPartitionMetadataKey(group_id=group_id),
            ConsumerGroupPartitionMetadataValue(topics=topics),
        )
    for regex, names in group.resolved.items():
        yield (
            ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
            # Version and time of the metadata are for the coordinator that wrote it.
            ConsumerGroupRegularExpressionValue(topics=sorted(names), version=0, timestamp=0),
        )
    for member_id, facts, current in group.members:
        if facts is not UNHEARD:
            yield facts_record(group_id, member_id, facts)
        if current is not NEW or facts is UNHEARD:
            yield current_record(group_id, member_id, current)
    yield (
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.target_epoch),
    )
    for member_id, target in group.targets.items():
        yield target_record(group_id, member_id, target)


def _pages(offsets: SharedOffsets) -> Iterator[SnapshotRecord]:
    for pages, slots in offsets.table.buckets:
        for first in range(0, len(pages), PAGES_AT_ONCE):
            addresses = _addresses(slots, first, len(pages))
            if addresses:
                head = COUNT.pack(len(addresses)) + little(addresses)
                yield _kind(PAGES), b"".join((head, *pages[first : first + PAGES_AT_ONCE]))


def _addresses(slots: array[int], first: int, page_count: int) -> array[int]:
    """The addresses in slots, relative to the first of `PAGES_AT_ONCE` pages."""
    if page_count <= PAGES_AT_ONCE:
        lowest = 0 if sys.byteorder == "little" else 3
        return array("H", slots.tobytes())[lowest::4]
    start = first * PAGE_BYTES
    addresses = (slot % (1 << 24) - start for slot in slots)
    return array("H", [each for each in addresses if 0 <= each < BLOCK_BYTES])


def _columns(offsets: SharedOffsets) -> Iterator[SnapshotRecord]:
    """Each part of a group in a record of its own."""
    for group, parts in offsets.table.wide:
        key = _kind(COLUMNS) + encoded(group)
        for part in parts:
            yield key, b"".join(map(little, _each(part)))


def _each(columns: Columns) -> tuple[array[int], ...]:
    return columns.keys, columns.offsets, columns.seconds, columns.epochs


def little(numbers: array[int]) -> bytes:
    """The numbers in little-endian order."""
    if sys.byteorder != "little":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _metadata_entry(key: int, text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return METADATA_HEAD.pack(key, len(raw)) + raw


def _packed(
    kind: int, groups: dict[str, dict[int, Value]], pack: Callable[[int, Value], bytes]
) -> Iterator[SnapshotRecord]:
    """Values that few entries have, by group and key; in several parts for a group with many."""

    def parts() -> Iterator[bytes]:
        for group, values in groups.items():
            raw = encoded(group)
            head = NAME_SIZE.pack(len(raw)) + raw
            rest = iter(values.items())
            while some := [pack(*item) for item in islice(rest, RARE_AT_ONCE)]:
                yield b"".join((head, COUNT.pack(len(some)), *some))

    return _blocks(kind, parts())


def _pending(offsets: SharedOffsets) -> Iterator[SnapshotRecord]:
    for producer_id, log_offset, place, committed in offsets.pending:
        group, topic, partition = place
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        value = None
        if committed is not None:
            value = OffsetCommitValue(
                offset=committed.offset,
                leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                commit_timestamp=committed.commit_ms,
                expire_timestamp=committed.expire_ms,
            )
        raw_key, raw_value = encode_record((key, value))
        yield PENDING_HEAD.pack(PENDING, producer_id, log_offset) + raw_key, raw_value or b""
