"""OffsetCommit (8): a consumer group records how far it has read.

0   the oldest clients; Kafka of that age kept these in ZooKeeper, we keep them here
1   generation and member; a timestamp for each partition, in this version only
2   a retention time for the whole request takes the timestamp's place
3   throttle time
4   a throttled client waits by itself
5   retention is gone: offsets live as long as their group does
6   leader epochs, to notice a log that was truncated
7   static members
8   flexible
9   the generation may be the epoch of a member of the newer group protocol (KIP-848)
10  topics go by id only
"""

from __future__ import annotations

from protocol.schema import ZERO_UUID, Message, Struct, array, int16, int32, int64, string, uuid

ANY_OFFSET = -2
"""No condition: whatever is committed now is replaced."""


class OffsetCommitRequest(Message, key=8, versions="0-10", flexible="8+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("6+", default=-1)
            # -1 is now.
            commit_timestamp: int = int64("1", default=-1)
            committed_metadata: str | None = string(nullable="")
            # Ours, experimental: the offset that this one is to replace, -1 for none. No other
            # broker looks at it.
            expected_offset: int = int64("8+", tag=10000, default=ANY_OFFSET)

        topic_id: bytes = uuid("10+", default=ZERO_UUID)
        name: str = string("0-9", default="")
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    # -1 for a commit by no member of the group.
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+", default="")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    # -1 is the broker's own.
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[Topic] = array(Topic)


class OffsetCommitResponse(Message, key=8, versions="0-10", flexible="8+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16()

        topic_id: bytes = uuid("10+", default=ZERO_UUID)
        name: str = string("0-9", default="")
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32("3+", default=0)
    topics: list[Topic] = array(Topic)


def refused(request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
    """The answer in which every partition named meets the same error."""
    topic = OffsetCommitResponse.Topic
    return OffsetCommitResponse(
        topics=[
            topic(
                topic_id=asked.topic_id,
                name=asked.name,
                partitions=[
                    topic.Partition(partition_index=p.partition_index, error_code=code)
                    for p in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )
