"""Some settings of several topics, in one request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from tools.configs.settings import TYPES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tools.cluster import Cluster


def settings_of_topics(
    cluster: Cluster, topics: Collection[str], names: Sequence[str]
) -> dict[str, dict[str, str]]:
    """The values by topic and name. A topic is left out whose settings the user may not see."""
    if not topics or not cluster.offers(DescribeConfigsRequest):
        return {}
    resources = [
        DescribeConfigsRequest.Resource(
            resource_type=TYPES["topic"], resource_name=topic, configuration_keys=list(names)
        )
        for topic in topics
    ]
    answer = cluster.ask(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
    return {
        result.resource_name: {entry.name: entry.value or "" for entry in result.configs}
        for result in answer.results
        if not result.error_code
    }
