"""DescribeCluster: this broker, which is the whole cluster and its controller.

On the listeners of clients it is asked for brokers, on those of the controller for controllers
(KIP-919); Kafka refuses the other question in both places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.nodes import nodes
from protocol.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

BROKERS, CONTROLLERS = 1, 2
ENDPOINT_TYPE_SINCE = 1


def describe_cluster(request: Request, ctx: Context) -> DescribeClusterResponse:
    """On a listener of clients."""
    return _described(request.message, ctx, BROKERS)


def describe_controllers(request: Request, ctx: Context) -> DescribeClusterResponse:
    """On a listener of the controller."""
    ctx.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    if request.version < ENDPOINT_TYPE_SINCE:
        raise KafkaError(code=ErrorCode.INVALID_REQUEST)  # 114 is newer than version 0
    return _described(request.message, ctx, CONTROLLERS)


def _described(
    message: DescribeClusterRequest, ctx: Context, endpoint_type: int
) -> DescribeClusterResponse:
    if message.endpoint_type not in (BROKERS, CONTROLLERS):
        raise KafkaError(code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
    if message.endpoint_type != endpoint_type:
        raise KafkaError(code=ErrorCode.MISMATCHED_ENDPOINT_TYPE)
    response = DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        endpoint_type=endpoint_type,
        cluster_id=ctx.cluster_id,
        controller_id=ctx.controller.leader_id,
        brokers=[
            DescribeClusterResponse.Broker(
                broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in nodes(ctx)
        ],
    )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ctx.cluster_operations()
    return response
