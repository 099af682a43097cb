"""ElectLeaders (43): partitions are to be led by their preferred, or by any, replica.

0  preferred replicas only
1  elections that may lose records; an error for the whole request (KIP-460)
2  flexible
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int16, int32, string


class ElectLeadersRequest(Message, key=43, versions="0-2", flexible="2+"):
    class TopicPartitions(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    # 0 preferred, 1 unclean.
    election_type: int = int8("1+", default=0)
    # Null is all partitions.
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="")
    timeout_ms: int = int32(default=60000)


class ElectLeadersResponse(Message, key=43, versions="0-2", flexible="2+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_id: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="", default=None)

        topic: str = string()
        partition_result: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("1+", default=0)
    replica_election_results: list[Topic] = array(Topic)


def refused(request: ElectLeadersRequest, code: int) -> ElectLeadersResponse:
    """The answer in which the request and every partition named meet the same error."""
    topic = ElectLeadersResponse.Topic
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            topic(
                topic=asked.topic,
                partition_result=[
                    topic.Partition(partition_id=index, error_code=code)
                    for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ],
    )
