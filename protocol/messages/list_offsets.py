"""ListOffsets (2): the offset at the end, at the start, or at a point in time.

0   answers a list of offsets, newest first: the log end and the starts of segments
1   answers one offset, and the timestamp of the record there
2   isolation levels: the latest offset may mean the last stable one; throttle time
3   a throttled client waits by itself
4   leader epochs, asked and answered
5   OFFSET_NOT_AVAILABLE may be answered
6   flexible
7   timestamp -3 asks for the record with the largest timestamp
8   timestamp -4 asks for the earliest offset on local disk
9   timestamp -5 asks for the last offset in tiered storage
10  a time limit for answers that need remote storage
11  timestamp -6 asks for the earliest offset not yet in tiered storage
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int16, int32, int64, string


class ListOffsetsRequest(Message, key=2, versions="0-11", flexible="6+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            current_leader_epoch: int = int32("4+", default=-1)
            # Milliseconds, or -1 latest, -2 earliest, and those listed above.
            timestamp: int = int64()
            max_num_offsets: int = int32("0", default=1)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    replica_id: int = int32()
    isolation_level: int = int8("2+", default=0)
    topics: list[Topic] = array(Topic)
    timeout_ms: int = int32("10+", default=0)


class ListOffsetsResponse(Message, key=2, versions="0-11", flexible="6+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16()
            # Descending.
            old_style_offsets: list[int] = array(int64, "0", default=())
            timestamp: int = int64("1+", default=-1)
            offset: int = int64("1+", default=-1)
            leader_epoch: int = int32("4+", default=-1)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32("2+", default=0)
    topics: list[Topic] = array(Topic)


def refused(request: ListOffsetsRequest, code: int) -> ListOffsetsResponse:
    """The answer in which every partition asked for meets the same error."""
    topic = ListOffsetsResponse.Topic
    return ListOffsetsResponse(
        topics=[
            topic(
                name=asked.name,
                partitions=[
                    topic.Partition(partition_index=p.partition_index, error_code=code)
                    for p in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )
