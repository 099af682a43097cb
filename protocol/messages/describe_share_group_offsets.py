"""DescribeShareGroupOffsets (90): where share groups stand (KIP-932).

0  the first
1  the answer tells the lag
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, int64, string, uuid


class DescribeShareGroupOffsetsRequest(Message, key=90, versions="0-1", flexible="0+"):
    class Group(Struct):
        class Topic(Struct):
            topic_name: str = string()
            partitions: list[int] = array(int32)

        group_id: str = string()
        topics: list[Topic] | None = array(Topic, nullable="")

    groups: list[Group] = array(Group)


class DescribeShareGroupOffsetsResponse(Message, key=90, versions="0-1", flexible="0+"):
    class Group(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int = int32()
                start_offset: int = int64()
                leader_epoch: int = int32()
                lag: int = int64("1+", default=-1)
                error_code: int = int16()
                error_message: str | None = string(nullable="", default=None)

            topic_name: str = string()
            topic_id: bytes = uuid()
            partitions: list[Partition] = array(Partition)

        group_id: str = string()
        topics: list[Topic] = array(Topic)
        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)

    throttle_time_ms: int = int32(default=0)
    groups: list[Group] = array(Group)


def refused(
    request: DescribeShareGroupOffsetsRequest, code: int
) -> DescribeShareGroupOffsetsResponse:
    """The answer in which every group asked for meets the same error."""
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponse.Group(
                group_id=asked.group_id, topics=[], error_code=code
            )
            for asked in request.groups
        ]
    )
