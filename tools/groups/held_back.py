"""What retention holds back for a group (`retention.wait.groups`), as triglot's brokers tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from client.connection import Connection
    from tools.cluster import Cluster

TOLD_SINCE = 2
"""The first version of DescribeLogDirs that has room for it."""


class HeldBack(NamedTuple):
    """Records of a partition and bytes of their batches that are kept for the group, since when (ms
    since 1970; not before the broker's last start)."""

    place: TopicPartition
    records: int
    byte_size: int
    since_ms: int


def held_back_for(cluster: Cluster, group_id: str) -> list[HeldBack]:
    """By partition, sorted; empty where brokers do not tell, or not this user."""
    if not cluster.offers(DescribeLogDirsRequest, oldest=TOLD_SINCE):
        return []
    request = DescribeLogDirsRequest(topics=None)

    def ask(connection: Connection) -> DescribeLogDirsResponse:
        return connection.call(request, DescribeLogDirsResponse, oldest=TOLD_SINCE)

    return sorted(
        HeldBack(
            TopicPartition(topic.name, one.partition_index),
            one.held_records,
            one.held_bytes,
            one.held_since_ms,
        )
        for _, answer in cluster.on_each_broker(ask, lambda _: ErrorCode.NONE)
        for result in answer.results
        for topic in result.topics
        for one in topic.partitions
        if group_id in one.held_for
    )
