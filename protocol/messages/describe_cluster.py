"""DescribeCluster (60): brokers, controller and cluster id, for admin clients.

0  the first
1  brokers or controllers may be asked for
2  brokers that are fenced may be asked for
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Message, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = boolean()
    # 1 brokers, 2 controllers.
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+", default=False)


class DescribeClusterResponse(Message, key=60, versions="0-2", flexible="0+"):
    class Broker(Struct):
        broker_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="", default=None)
        is_fenced: bool = boolean("2+", default=False)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[Broker] = array(Broker)
    cluster_authorized_operations: int = int32(default=-2147483648)


def refused(request: DescribeClusterRequest, code: int) -> DescribeClusterResponse:
    """An answer of an error and nothing else."""
    return DescribeClusterResponse(
        error_code=code, endpoint_type=request.endpoint_type, cluster_id="", brokers=[]
    )
