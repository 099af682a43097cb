"""OffsetForLeaderEpoch: where an epoch of leadership ended (KIP-101, KIP-320).

A consumer that comes back after a restart asks this to notice that the tail it had read is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

Asked = OffsetForLeaderEpochRequest.Topic.Partition
PartitionResult = OffsetForLeaderEpochResponse.Topic.Partition


def offset_for_leader_epoch(request: Request, ctx: Context) -> OffsetForLeaderEpochResponse:
    message: OffsetForLeaderEpochRequest = request.message
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic,
                partitions=[_find(topic.topic, asked, ctx) for asked in topic.partitions],
            )
            for topic in message.topics
        ]
    )


def _find(name: str, asked: Asked, ctx: Context) -> PartitionResult:
    partition = ctx.topics.partition(name, asked.partition)
    code = ErrorCode.NONE
    epoch, end_offset = -1, -1
    if not ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif asked.current_leader_epoch not in (-1, partition.log.leader_epoch):
        code = (
            ErrorCode.FENCED_LEADER_EPOCH
            if asked.current_leader_epoch < partition.log.leader_epoch
            else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
    else:
        epoch, end_offset = partition.log.end_offset_for(asked.leader_epoch)
    return PartitionResult(
        error_code=code, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
    )
