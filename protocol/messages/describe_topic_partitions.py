"""DescribeTopicPartitions (75): topics in pages, for admin clients of 3.8 and later (KIP-966).

0  the first
"""

from __future__ import annotations

from protocol.schema import (
    ZERO_UUID,
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    string,
    struct,
    uuid,
)


class DescribeTopicPartitionsRequest(Message, key=75, versions="0", flexible="0+"):
    class Topic(Struct):
        name: str = string()

    class Cursor(Struct):
        topic_name: str = string()
        partition_index: int = int32()

    topics: list[Topic] = array(Topic)
    response_partition_limit: int = int32(default=2000)
    # Null for the first page; a struct that may be null is led by one byte.
    cursor: Cursor | None = struct(Cursor, nullable="", default=None)


class DescribeTopicPartitionsResponse(Message, key=75, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            error_code: int = int16()
            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32(default=-1)
            replica_nodes: list[int] = array(int32)
            isr_nodes: list[int] = array(int32)
            eligible_leader_replicas: list[int] | None = array(int32, nullable="", default=None)
            last_known_elr: list[int] | None = array(int32, nullable="", default=None)
            offline_replicas: list[int] = array(int32)

        error_code: int = int16()
        name: str | None = string(nullable="")
        topic_id: bytes = uuid()
        is_internal: bool = boolean(default=False)
        partitions: list[Partition] = array(Partition)
        topic_authorized_operations: int = int32(default=-2147483648)

    class Cursor(Struct):
        topic_name: str = string()
        partition_index: int = int32()

    throttle_time_ms: int = int32(default=0)
    topics: list[Topic] = array(Topic)
    # Null on the last page.
    next_cursor: Cursor | None = struct(Cursor, nullable="", default=None)


def refused(request: DescribeTopicPartitionsRequest, code: int) -> DescribeTopicPartitionsResponse:
    """The answer in which every topic named meets the same error."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponse.Topic(
                error_code=code, name=asked.name, topic_id=ZERO_UUID, partitions=[]
            )
            for asked in request.topics
        ]
    )
