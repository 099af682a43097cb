"""ElectLeaders: nothing to do, for this node leads all partitions and is their only replica.

The codes and the form are those of Kafka 3.9: who asks for all gets every topic without partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, refused

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

PREFERRED, UNCLEAN = 0, 1

TopicResult = ElectLeadersResponse.Topic


def elect_leaders(request: Request, ctx: Context) -> ElectLeadersResponse:
    message: ElectLeadersRequest = request.message
    if message.election_type not in (PREFERRED, UNCLEAN):
        return refused(message, ErrorCode.INVALID_REQUEST)
    topics = ctx.topics
    if message.topic_partitions is None:
        results = [TopicResult(topic=name, partition_result=[]) for name in topics.by_name]
    else:
        results = [
            TopicResult(
                topic=asked.topic,
                partition_result=[_result(asked.topic, index, ctx) for index in asked.partitions],
            )
            for asked in message.topic_partitions
        ]
    return ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=results)


def _result(name: str, index: int, ctx: Context) -> TopicResult.Partition:
    partition = ctx.topics.partition(name, index)
    if partition is None:
        return TopicResult.Partition(
            partition_id=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"there is no partition {index} of a topic '{name}'",
        )
    return TopicResult.Partition(
        partition_id=index,
        error_code=ErrorCode.ELECTION_NOT_NEEDED,
        error_message=f"broker {partition.leader_id} is the only replica and leads it",
    )
