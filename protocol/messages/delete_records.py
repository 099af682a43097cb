"""DeleteRecords (21): everything before an offset is to go.

0  the answer tells where the log now starts
1  a throttled client waits by itself
2  flexible
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, int64, string


class DeleteRecordsRequest(Message, key=21, versions="0-2", flexible="2+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            # -1 is the high watermark.
            offset: int = int64()

        name: str = string()
        partitions: list[Partition] = array(Partition)

    topics: list[Topic] = array(Topic)
    timeout_ms: int = int32()


class DeleteRecordsResponse(Message, key=21, versions="0-2", flexible="2+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            low_watermark: int = int64()
            error_code: int = int16()

        name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    topics: list[Topic] = array(Topic)


def refused(request: DeleteRecordsRequest, code: int) -> DeleteRecordsResponse:
    """The answer in which every partition named meets the same error."""
    topic = DeleteRecordsResponse.Topic
    return DeleteRecordsResponse(
        topics=[
            topic(
                name=asked.name,
                partitions=[
                    topic.Partition(
                        partition_index=p.partition_index, low_watermark=-1, error_code=code
                    )
                    for p in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )
