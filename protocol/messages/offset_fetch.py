"""OffsetFetch (9): how far a consumer group has read.

0   the oldest clients; an offset that is not there is an error with offset -1
1   an offset that is not there is -1 without an error
2   an error for the whole request; null topics means all that the group has
3   throttle time
4   a throttled client waits by itself
5   leader epochs
6   flexible
7   offsets of an open transaction may be waited for
8   several groups at once, each with its own error
9   member and epoch of the newer group protocol (KIP-848)
10  topics go by id only
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
    int64,
    string,
    uuid,
)


class OffsetFetchRequest(Message, key=9, versions="0-10", flexible="6+"):
    class Group(Struct):
        class Topic(Struct):
            topic_id: bytes = uuid("10+", default=ZERO_UUID)
            name: str = string("8-9", default="")
            partition_indexes: list[int] = array(int32)

        group_id: str = string()
        member_id: str | None = string("9+", nullable="9+", default=None)
        member_epoch: int = int32("9+", default=-1)
        topics: list[Topic] | None = array(Topic, nullable="")

    class Topic(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    groups: list[Group] = array(Group, "8+", default=())
    group_id: str = string("0-7", default="")
    # Null is all that the group has, from version 2.
    topics: list[Topic] | None = array(Topic, "0-7", nullable="2-7", default=())
    require_stable: bool = boolean("7+", default=False)


class OffsetFetchResponse(Message, key=9, versions="0-10", flexible="6+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            # -1 if there is none.
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("5-7", default=-1)
            metadata: str | None = string(nullable="")
            error_code: int = int16()

        name: str = string()
        partitions: list[Partition] = array(Partition)

    class Group(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int = int32()
                committed_offset: int = int64()
                committed_leader_epoch: int = int32(default=-1)
                metadata: str | None = string(nullable="")
                error_code: int = int16()

            topic_id: bytes = uuid("10+", default=ZERO_UUID)
            name: str = string("8-9", default="")
            partitions: list[Partition] = array(Partition)

        group_id: str = string()
        topics: list[Topic] = array(Topic)
        error_code: int = int16(default=0)

    throttle_time_ms: int = int32("3+", default=0)
    topics: list[Topic] = array(Topic, "0-7", default=())
    error_code: int = int16("2-7", default=0)
    groups: list[Group] = array(Group, "8+", default=())


def refused(request: OffsetFetchRequest, code: int) -> OffsetFetchResponse:
    """The answer in which every group and every partition asked for meet the same error."""
    answer = OffsetFetchResponse
    return answer(
        error_code=code,
        topics=[
            answer.Topic(
                name=asked.name,
                partitions=[
                    answer.Topic.Partition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in asked.partition_indexes
                ],
            )
            for asked in request.topics or ()
        ],
        groups=[
            answer.Group(group_id=asked.group_id, topics=[], error_code=code)
            for asked in request.groups
        ],
    )
