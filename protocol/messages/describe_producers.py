"""DescribeProducers (61): the producers that a partition remembers, and their open transactions.

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, int64, string


class DescribeProducersRequest(Message, key=61, versions="0", flexible="0+"):
    class Topic(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    topics: list[Topic] = array(Topic)


class DescribeProducersResponse(Message, key=61, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class ProducerState(Struct):
                producer_id: int = int64()
                # An int32 here, an int16 everywhere else.
                producer_epoch: int = int32()
                last_sequence: int = int32(default=-1)
                last_timestamp: int = int64(default=-1)
                coordinator_epoch: int = int32()
                current_txn_start_offset: int = int64(default=-1)

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="", default=None)
            active_producers: list[ProducerState] = array(ProducerState)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    topics: list[Topic] = array(Topic)


def refused(request: DescribeProducersRequest, code: int) -> DescribeProducersResponse:
    """The answer in which every partition asked for meets the same error."""
    topic = DescribeProducersResponse.Topic
    return DescribeProducersResponse(
        topics=[
            topic(
                name=asked.name,
                partitions=[
                    topic.Partition(partition_index=index, error_code=code, active_producers=[])
                    for index in asked.partition_indexes
                ],
            )
            for asked in request.topics
        ]
    )
