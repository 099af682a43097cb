"""DescribeTopicPartitions: topics described page by page (KIP-966).

Topics come sorted by name; a page ends after so many partitions, and the next begins at the cursor.
No topics named means all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.acls import ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.partitions.topic import Topic
    from protocol.connection import Request

MAX_PARTITIONS_PER_PAGE = 2000

TopicResult = DescribeTopicPartitionsResponse.Topic


def describe_topic_partitions(request: Request, ctx: Context) -> DescribeTopicPartitionsResponse:
    message: DescribeTopicPartitionsRequest = request.message
    topics = ctx.topics
    cursor = message.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(
            f"cursor at partition {cursor.partition_index}", code=ErrorCode.INVALID_REQUEST
        )
    named = {asked.name for asked in message.topics}
    left = MAX_PARTITIONS_PER_PAGE
    if message.response_partition_limit > 0:
        left = min(left, message.response_partition_limit)
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in sorted(named or topics.by_name):
        first = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            if name == cursor.topic_name:
                first = cursor.partition_index
        # Of all topics only those of this page are looked up: there may be thousands.
        if not named and not ctx.may_describe(name, silent=True):
            continue
        if not ctx.may_describe(name):
            response.topics.append(_missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        topic = topics.by_name.get(name)
        if topic is None:
            entry = _missing(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            entry.topic_authorized_operations = ctx.operations(ResourceType.TOPIC, name)
            response.topics.append(entry)
            continue
        last = min(len(topic.partitions), first + left)
        if left > 0:
            response.topics.append(_describe(topic, first, last, ctx))
            left -= last - first
        if last < len(topic.partitions):
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                topic_name=name, partition_index=max(first, last)
            )
            break
    return response


def _missing(name: str, code: ErrorCode) -> TopicResult:
    return TopicResult(error_code=code, name=name, topic_id=ZERO_UUID, partitions=[])


def _describe(topic: Topic, first: int, end: int, ctx: Context) -> TopicResult:
    return TopicResult(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            TopicResult.Partition(
                error_code=ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=partition.leader_id,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=(replicas := [partition.leader_id]),
                isr_nodes=replicas,
                # Null is allowed too, but the Java clients (3.9.2, 4.4.0) fail on it.
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[],
            )
            for partition in topic.partitions[first:end]
        ],
        topic_authorized_operations=ctx.operations(ResourceType.TOPIC, topic.name),
    )
