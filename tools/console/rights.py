"""Whether the user who looks may see what is the broker's own and no topic's or group's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.acls import Operation
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tools.console.visit import NotAllowed

if TYPE_CHECKING:
    from tools.cluster import Cluster


def require_describe_cluster(cluster: Cluster) -> None:
    """Raises NotAllowed without the right DESCRIBE on the cluster, by the broker's rules."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = cluster.ask(request, DescribeClusterResponse)
    allowed = answer.cluster_authorized_operations
    if allowed < 0 or not allowed >> Operation.DESCRIBE & 1:
        raise NotAllowed("this takes the right DESCRIBE on the cluster (docs/access.md)")
