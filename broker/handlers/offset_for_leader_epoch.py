"""OffsetForLeaderEpoch: where an epoch of leadership ended (KIP-101, KIP-320).

A consumer that comes back after a restart asks this to notice that the tail it had read is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
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
    all_shown = ctx.allows(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, silent=True
    )
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic,
                partitions=[
                    _find(topic.topic, asked, ctx)
                    if all_shown or ctx.may_describe(topic.topic)
                    else _refused(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    for asked in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _find(name: str, asked: Asked, ctx: Context) -> PartitionResult:
    try:
        partition = ctx.topics.led(name, asked.partition)
    except KafkaError as error:
        return _refused(asked, error.code)
    code = ErrorCode.NONE
    epoch, end_offset = -1, -1
    if asked.current_leader_epoch not in (-1, partition.log.leader_epoch):
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


def _refused(asked: Asked, code: ErrorCode) -> PartitionResult:
    return PartitionResult(
        error_code=code,
        partition=asked.partition,
        leader_epoch=-1,
        end_offset=-1,
    )
