"""OffsetForLeaderEpoch (23): where the records of a leader's time end.

0  the first
1  the answer tells the epoch it found
2  the client's idea of the leader epoch is checked; throttle time
3  the id of the follower that asks
4  flexible
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, int64, string


class OffsetForLeaderEpochRequest(Message, key=23, versions="0-4", flexible="4+"):
    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            current_leader_epoch: int = int32("2+", default=-1)
            leader_epoch: int = int32()

        topic: str = string()
        partitions: list[Partition] = array(Partition)

    # -1 a consumer, -2 a consumer that debugs, otherwise a follower.
    replica_id: int = int32("3+", default=-2)
    topics: list[Topic] = array(Topic)


class OffsetForLeaderEpochResponse(Message, key=23, versions="0-4", flexible="4+"):
    class Topic(Struct):
        class Partition(Struct):
            error_code: int = int16()
            partition: int = int32()
            leader_epoch: int = int32("1+", default=-1)
            end_offset: int = int64(default=-1)

        topic: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32("2+", default=0)
    topics: list[Topic] = array(Topic)


def refused(request: OffsetForLeaderEpochRequest, code: int) -> OffsetForLeaderEpochResponse:
    """The answer in which every partition asked for meets the same error."""
    topic = OffsetForLeaderEpochResponse.Topic
    return OffsetForLeaderEpochResponse(
        topics=[
            topic(
                topic=asked.topic,
                partitions=[
                    topic.Partition(error_code=code, partition=p.partition)
                    for p in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )
