"""The two requests of those who follow the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.logdata.metadata_names import METADATA_TOPIC, METADATA_TOPIC_ID
from protocol.messages.fetch import FetchRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest

if TYPE_CHECKING:
    from protocol.logdata.metadata_names import SnapshotId

FETCH_BYTES = 8 * 1024 * 1024
"""Asked of the log at once: as large as a batch of it may be."""


class Asker(NamedTuple):
    """The follower, as requests name it. An observer has the replica id -1 and zeros as its
    directory's (16 bytes); the cluster may be unknown."""

    cluster_id: str | None
    replica_id: int
    directory_id: bytes


def fetch_request(
    asker: Asker,
    *,
    leader_epoch: int,
    offset: int,
    last_epoch: int,
    high_watermark: int,
    max_wait_ms: int,
) -> FetchRequest:
    """For the log from `offset` on; `last_epoch` is that of the batch before it, 0 for none. The
    topic goes by its id, so this is for version 13 and later ones."""
    topic = FetchRequest.Topic
    partition = topic.Partition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=FETCH_BYTES,
        replica_directory_id=asker.directory_id,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=asker.cluster_id,
        replica_id=asker.replica_id,
        replica_state=FetchRequest.ReplicaState(replica_id=asker.replica_id),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[topic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def snapshot_request(
    asker: Asker, *, leader_epoch: int, snapshot_id: SnapshotId, position: int, max_bytes: int
) -> FetchSnapshotRequest:
    """For the bytes of a snapshot from `position` on."""
    topic = FetchSnapshotRequest.Topic
    partition = topic.Partition(
        partition=0,
        current_leader_epoch=leader_epoch,
        snapshot_id=topic.Partition.SnapshotId(
            end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch
        ),
        position=position,
        replica_directory_id=asker.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=asker.cluster_id,
        replica_id=asker.replica_id,
        max_bytes=max_bytes,
        topics=[topic(name=METADATA_TOPIC, partitions=[partition])],
    )
