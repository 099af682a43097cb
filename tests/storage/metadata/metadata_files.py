"""Metadata logs and their snapshots in memory, byte by byte what a broker would have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata import (
    METADATA_VERSION,
    FeatureLevelRecord,
    LeaderChangeMessage,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    control_batch,
    encode_record,
    metadata_batch,
)
from storage.metadata.image import MetadataImage
from storage.metadata.snapshots import SnapshotId, SnapshotWriter
from tests.storage.metadata.snapshot_files import FOLDER, NOW_MS, memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.logdata.metadata import MetadataRecord
    from storage.filesystem import Filesystem
    from tests.support.memory_filesystem import MemoryFilesystem

PATH = FOLDER.rpartition("/")[0]
NODE_ID = 1
DIRECTORY = bytes(range(100, 116))
LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION)


def topic_id(number: int) -> bytes:
    return b"topic id" + number.to_bytes(8, "big")


def topic(number: int, partitions: int = 1) -> list[MetadataRecord]:
    """The records that make the topic `t<number>`."""
    made: list[MetadataRecord] = [TopicRecord(name=f"t{number}", topic_id=topic_id(number))]
    made += [
        PartitionRecord(
            partition_id=index,
            topic_id=topic_id(number),
            replicas=[NODE_ID],
            isr=[NODE_ID],
            leader=NODE_ID,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY],
        )
        for index in range(partitions)
    ]
    return made


def removal(number: int) -> list[MetadataRecord]:
    return [RemoveTopicRecord(topic_id=topic_id(number))]


def leader_change(offset: int = 0, epoch: int = 1) -> bytes:
    voter = LeaderChangeMessage.Voter(voter_id=NODE_ID)
    change = LeaderChangeMessage(leader_id=NODE_ID, voters=[voter], granting_voters=[voter])
    batch = control_batch([change], base_offset=offset, epoch=epoch, timestamp_ms=NOW_MS)
    return bytes(batch)


def batch(offset: int, records: Sequence[MetadataRecord], epoch: int = 1) -> bytes:
    values = [encode_record(record) for record in records]
    return raw_batch(offset, values, epoch)


def raw_batch(offset: int, values: Sequence[bytes], epoch: int = 1) -> bytes:
    """Of values that nobody encodes."""
    made = metadata_batch(values, base_offset=offset, epoch=epoch, timestamp_ms=NOW_MS)
    return bytes(made)


BATCHES = [
    leader_change(),
    batch(1, [LEVEL, *topic(0)]),
    batch(4, topic(1, 2)),
    batch(7, topic(2)),
]
"""A small log: after it there are the topics t0, t1 and t2; it ends at offset 9."""
ENDS = [1, 4, 7, 9]


def topics_after(count: int) -> list[str]:
    """The topics that the first `count` of the batches make."""
    return [f"t{number}" for number in range(max(count - 1, 0))]


def log_path(base: int = 0) -> str:
    return f"{FOLDER}/{base:020d}.log"


def with_log(data: bytes, base: int = 0) -> MemoryFilesystem:
    """A file system with one segment."""
    files = memory()
    files.write_bytes(log_path(base), data)
    return files


def write_snapshot(
    files: Filesystem, end_offset: int, records: Sequence[MetadataRecord], epoch: int = 1
) -> str:
    """A snapshot of the state that these records give; its path."""
    image = MetadataImage()
    for record in records:
        image.replay(record)
    writer = SnapshotWriter(
        files,
        FOLDER,
        SnapshotId(end_offset, epoch),
        last_contained_ms=NOW_MS,
        unique="x",
        now_ms=NOW_MS,
    )
    with writer:
        writer.append([(None, encode_record(record)) for record in image.records()])
        writer.finish()
    return writer.path


def flipped(data: bytes, position: int, bit: int) -> bytes:
    spoilt = bytearray(data)
    spoilt[position] ^= 1 << bit
    return bytes(spoilt)
