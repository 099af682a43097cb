"""DescribeQuorum (55): who votes on the metadata log, and how far each has come.

0  the first
1  when each replica last fetched and was last level
2  error messages, directories, and the addresses of the voters
"""

from __future__ import annotations

from protocol.schema import (
    ZERO_UUID,
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class DescribeQuorumRequest(Message, key=55, versions="0-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()

        topic_name: str = string()
        partitions: list[Partition] = array(Partition)

    topics: list[Topic] = array(Topic)


class DescribeQuorumResponse(Message, key=55, versions="0-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class ReplicaState(Struct):
                replica_id: int = int32()
                replica_directory_id: bytes = uuid("2+", default=ZERO_UUID)
                log_end_offset: int = int64()
                last_fetch_timestamp: int = int64("1+", default=-1)
                last_caught_up_timestamp: int = int64("1+", default=-1)

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string("2+", nullable="2+", default=None)
            leader_id: int = int32()
            leader_epoch: int = int32()
            high_watermark: int = int64()
            current_voters: list[ReplicaState] = array(ReplicaState)
            observers: list[ReplicaState] = array(ReplicaState)

        topic_name: str = string()
        partitions: list[Partition] = array(Partition)

    class Node(Struct):
        class Listener(Struct):
            name: str = string()
            host: str = string()
            port: int = uint16()

        node_id: int = int32()
        listeners: list[Listener] = array(Listener)

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    topics: list[Topic] = array(Topic)
    nodes: list[Node] = array(Node, "2+", default=())


def refused(request: DescribeQuorumRequest, code: int) -> DescribeQuorumResponse:
    """An answer of an error and nothing else."""
    return DescribeQuorumResponse(error_code=code, topics=[])
