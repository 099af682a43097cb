"""Changes of topics that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tools.errors import NotDone

if TYPE_CHECKING:
    from protocol.schema import Message
    from tools.cluster import Cluster

NOT_YET_DELETED = (
    "it may be deleted later; a Kafka before 1.0 deletes topics only with delete.topic.enable=true"
)


def add_partitions(cluster: Cluster, name: str, count: int) -> None:
    """Give a topic so many partitions. Raises NotDone."""
    _require(cluster, CreatePartitionsRequest, "adds no partitions (Kafka 1.0 is the first)")
    topic = CreatePartitionsRequest.Topic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(
        topics=[topic], timeout_ms=cluster.timeout_ms, validate_only=False
    )
    answer = cluster.change(request, CreatePartitionsResponse)
    for result in answer.results:
        _check(f"topic '{name}'", result.error_code, result.error_message)


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic. Raises NotDone."""
    _require(cluster, DeleteTopicsRequest, "deletes no topics when asked to (Kafka before 0.10.1)")
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.Topic(name=name, topic_id=bytes(16))],
        topic_names=[name],
        timeout_ms=cluster.timeout_ms,
    )
    answer = cluster.change(request, DeleteTopicsResponse)
    for result in answer.responses:
        why = result.error_message
        if result.error_code == ErrorCode.REQUEST_TIMED_OUT:
            why = NOT_YET_DELETED
        _check(f"topic '{name}'", result.error_code, why)


def _require(cluster: Cluster, kind: type[Message], otherwise: str) -> None:
    if not cluster.offers(kind):
        raise NotDone(f"{cluster.servers} {otherwise}: use its own tools")


def _check(what: str, code: int, message: str | None) -> None:
    if code:
        raise NotDone(f"{what}: {said(code)}{f' ({message})' if message else ''}")
