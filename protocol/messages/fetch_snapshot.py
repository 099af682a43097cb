"""FetchSnapshot (59): a broker downloads a snapshot of the metadata log (KIP-630).

0  the first
1  the directory of a replica; the addresses of leaders that are named
"""

from __future__ import annotations

from typing import Any

from protocol.schema import (
    ZERO_UUID,
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uuid,
)


class FetchSnapshotRequest(Message, key=59, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class SnapshotId(Struct):
                end_offset: int = int64()
                epoch: int = int32()

            partition: int = int32()
            current_leader_epoch: int = int32()
            snapshot_id: SnapshotId = struct(SnapshotId)
            position: int = int64()
            replica_directory_id: bytes = uuid("1+", tag=0, default=ZERO_UUID)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2147483647)
    topics: list[Topic] = array(Topic)
    cluster_id: str | None = string(nullable="", tag=0, default=None)


class FetchSnapshotResponse(Message, key=59, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class SnapshotId(Struct):
                end_offset: int = int64()
                epoch: int = int32()

            class LeaderIdAndEpoch(Struct):
                leader_id: int = int32(default=0)
                leader_epoch: int = int32(default=0)

            index: int = int32()
            error_code: int = int16()
            snapshot_id: SnapshotId = struct(SnapshotId)
            size: int = int64()
            position: int = int64()
            # Bytes, or a slice of the file from `position` on; need not begin or end with a batch.
            unaligned_records: Any = records()
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=0, default=())

        name: str = string()
        partitions: list[Partition] = array(Partition)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = uint16()

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    topics: list[Topic] = array(Topic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0, default=())


def refused(request: FetchSnapshotRequest, code: int) -> FetchSnapshotResponse:
    """An answer of an error and nothing else."""
    return FetchSnapshotResponse(error_code=code, topics=[])
