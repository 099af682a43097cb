"""DescribeCluster: this broker, which is the whole cluster and its controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.metadata import CLUSTER_OPERATIONS
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from broker.context import Context
    from protocol.connection import Request

BROKERS, CONTROLLERS = 1, 2


def describe_cluster(request: Request, ctx: Context) -> DescribeClusterResponse:
    message: DescribeClusterRequest = request.message
    if message.endpoint_type == CONTROLLERS:
        raise KafkaError(code=ErrorCode.MISMATCHED_ENDPOINT_TYPE)
    if message.endpoint_type != BROKERS:
        raise KafkaError(code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
    broker = ctx.broker
    host, port = ctx.advertised()
    response = DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterResponse.Broker(
                broker_id=broker.node_id, host=host, port=port, rack=broker.settings.broker_rack
            )
        ],
    )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
