"""DescribeQuorum: who leads the metadata log, who votes on it, and how far its followers are.

Versions 0 to 2, on the controller's listener and on those of clients (Apache Kafka's brokers pass
it on). One voter, this node; the followers are those that have fetched in the last minutes. Only
the one partition of the metadata log can be asked for, and it alone: anything beside it and all are
unknown, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.quorum import controller_listeners, metadata_leader
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata_names import METADATA_PARTITION, METADATA_TOPIC
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

PartitionResult = DescribeQuorumResponse.Topic.Partition
Node = DescribeQuorumResponse.Node


def describe_quorum(request: Request, ctx: Context) -> DescribeQuorumResponse:
    message: DescribeQuorumRequest = request.message
    named = [
        (topic.topic_name, partition.partition_index)
        for topic in message.topics
        for partition in topic.partitions
    ]
    known = named == [(METADATA_TOPIC, METADATA_PARTITION)] and len(message.topics) == 1
    if known and ctx.controller.leader_id != ctx.node_id:
        raise KafkaError(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    response = DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=[
            DescribeQuorumResponse.Topic(
                topic_name=topic.topic_name,
                partitions=[
                    _described(ctx) if known else _unknown(partition.partition_index)
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )
    if known:
        response.nodes = [_this_node(ctx)]
    return response


def _described(ctx: Context) -> PartitionResult:
    controller, now_ms = metadata_leader(ctx), ctx.now_ms
    end_offset = controller.partition.high_watermark
    return PartitionResult(
        partition_index=METADATA_PARTITION,
        error_code=ErrorCode.NONE,
        leader_id=controller.leader_id,
        leader_epoch=controller.epoch,
        high_watermark=end_offset,
        current_voters=[
            PartitionResult.ReplicaState(
                replica_id=ctx.node_id,
                replica_directory_id=controller.voting_directory or ZERO_UUID,
                log_end_offset=end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
        observers=[
            PartitionResult.ReplicaState(
                replica_id=observer.replica_id,
                replica_directory_id=observer.directory_id,
                log_end_offset=observer.log_end_offset,
                last_fetch_timestamp=observer.last_fetch_ms,
                last_caught_up_timestamp=observer.caught_up_ms,
            )
            for observer in controller.observers.live(now_ms)
            if observer.log_end_offset >= 0
        ],
    )


def _unknown(index: int) -> PartitionResult:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return PartitionResult(
        partition_index=index,
        error_code=code,
        error_message=code.meaning,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def _this_node(ctx: Context) -> Node:
    return Node(
        node_id=ctx.node_id,
        listeners=[
            Node.Listener(name=listener.name, host=listener.host, port=listener.port)
            for listener in controller_listeners(ctx)
        ],
    )
