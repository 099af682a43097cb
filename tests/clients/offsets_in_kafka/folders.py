"""Partitions of `__consumer_offsets` carried from the directory of one broker to that of another.

Ids of topics are kept in the metadata log and in `partition.metadata`. So the folder stays, with
its id, and gets the files of the other.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from storage.disk import DiskFilesystem
from storage.identity import decode_partition_metadata
from storage.layout import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
)
from storage.metadata.snapshot_names import CHECKPOINT
from tests.support.group_caller import OFFSETS_TOPIC
from tests.support.topic_store import open_topics

if TYPE_CHECKING:
    from pathlib import Path

#: What says of a partition's files how far they reach, and that they are in order.
CHECKPOINTS = (CLEAN_SHUTDOWN, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS)
CARRIED = (*SEGMENT_SUFFIXES, SNAPSHOT, LEADER_EPOCHS, CHECKPOINT)


def replace_offsets(logs: Path, by: Path) -> None:
    """Have the directory `logs` of Kafka's hold the offsets topic of the directory `by`."""
    partitions = sorted(logs.glob(f"{OFFSETS_TOPIC}-*"))
    assert {path.name for path in partitions} == {p.name for p in by.glob(f"{OFFSETS_TOPIC}-*")}
    for partition in partitions:
        for path in partition.iterdir():
            if path.name != PARTITION_METADATA:
                path.unlink()
        for path in (by / partition.name).iterdir():
            if path.name.endswith(CARRIED):
                shutil.copy(path, partition)
    for name in CHECKPOINTS:
        (logs / name).unlink(missing_ok=True)
    shutil.copy(by / CLEANER_OFFSETS, logs)


def adopt(data: Path, logs: Path, topic: str) -> None:
    """Make `data` a directory of ours with this topic of the directory `logs` of Kafka's, under
    its id."""
    data.mkdir(parents=True)
    shutil.copy(logs / META_PROPERTIES, data)
    folders = sorted(logs.glob(f"{topic}-*"))
    metadata = folders[0] / PARTITION_METADATA
    topic_id = decode_partition_metadata(metadata.read_bytes(), str(metadata))
    store = open_topics(DiskFilesystem(), str(data))
    store.create(topic, topic_id, len(folders), {})
    for folder in folders:
        shutil.copytree(folder, data / folder.name)
