"""DeleteTopics: topics and their data go, by name or (version 6) by id.

The directories are set aside at once and removed a little later, as Kafka does, so that a fetch
that is being sent can finish. All topics of a request go with one sync; one that is named twice is
not deleted, as with Kafka 3.9.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.handlers.metadata_changes import changed
from broker.partitions.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from protocol.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.eras import DELETE_TOPICS, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from broker.partitions.topic import Topic
    from protocol.connection import Request
    from storage.steps import Steps

TopicResult = DeleteTopicsResponse.Topic

STRICT_SINCE = 5
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""


def delete_topics(request: Request, ctx: Context) -> ChangeWait:
    return changed(_answer(request, ctx), ctx)


def _answer(request: Request, ctx: Context) -> Steps[DeleteTopicsResponse]:
    message: DeleteTopicsRequest = request.message
    asked: list[tuple[str | None, bytes]] = [(name, ZERO_UUID) for name in message.topic_names]
    asked += [(item.name, item.topic_id) for item in message.topics]
    meant = [_meant(name, topic_id, ctx) for name, topic_id in asked]
    client, strict = ctx.client(request), request.version >= STRICT_SINCE
    mutations = ctx.quotas.mutations(client, strict=strict)
    named = Counter(meant)
    entries: dict[object, TopicResult] = {}
    found: list[Topic] = []
    for (name, topic_id), one in zip(asked, meant, strict=True):
        if one in entries:
            continue
        entry = entries[one] = TopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.NONE)
        try:
            if named[one] > 1:
                raise KafkaError("the topic is named twice", code=ErrorCode.INVALID_REQUEST)
            topic = _find(name, topic_id, ctx)
            mutations.record(len(topic.partitions))
        except KafkaError as error:
            entry.error_code = code_for(DELETE_TOPICS, request.version, error.code)
            entry.error_message = str(error)
            known = ctx.topics.by_id.get(topic_id) if name is None else None
            if known is not None and ctx.may_describe(known.name):
                entry.name = known.name
        else:
            found.append(topic)
    if found:
        yield from _delete(found, entries, ctx)
    return DeleteTopicsResponse(
        responses=list(entries.values()), throttle_time_ms=mutations.throttle_ms
    )


def _delete(topics: list[Topic], entries: dict[object, TopicResult], ctx: Context) -> Steps[None]:
    """Delete what has been found, and put into the entries what came of it."""
    refusals: Sequence[OSError | None]
    try:
        refusals = yield from ctx.topics.delete_all(topics)
    except OSError as error:
        refusals = [error] * len(topics)
    for topic, refused in zip(topics, refusals, strict=True):
        entry = entries[topic]
        if refused is not None:
            ctx.failed("deleting a topic", refused, topic=topic.name)
            entry.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            entry.error_message = f"the data directory can't be written: {refused.strerror}"
            continue
        ctx.deleted(topic)
        entry.name, entry.topic_id = topic.name, topic.topic_id


def _meant(name: str | None, topic_id: bytes, ctx: Context) -> object:
    """The topic; where there is none, or it is called by both, what it was called."""
    topics = ctx.topics
    if name is not None and topic_id != ZERO_UUID:
        return name, topic_id
    topic = topics.by_id.get(topic_id) if name is None else topics.by_name.get(name)
    return topic or (name, topic_id)


def _find(name: str | None, topic_id: bytes, ctx: Context) -> Topic:
    topics = ctx.topics
    any_topic = ctx.allows(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, silent=True)
    if not ctx.settings.current.delete_topic_enable:
        raise KafkaError(code=ErrorCode.TOPIC_DELETION_DISABLED)
    if (name is None) == (topic_id == ZERO_UUID):
        raise KafkaError(
            "a topic is deleted either by name or by id", code=ErrorCode.INVALID_REQUEST
        )
    if name is None:
        topic = topics.by_id.get(topic_id)
        if topic is None:
            raise KafkaError(code=ErrorCode.UNKNOWN_TOPIC_ID)
        if not any_topic and not ctx.may_describe(topic.name):
            raise KafkaError(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    else:
        if not any_topic:
            ctx.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
        topic = topics.by_name.get(name)
        if topic is None:
            raise KafkaError(
                f"there is no topic '{name}'", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
    if not any_topic:
        ctx.require(Operation.DELETE, ResourceType.TOPIC, topic.name)
    if topic.name == OFFSETS_TOPIC:
        raise KafkaError(
            f"'{topic.name}' holds the offsets of all groups; delete groups instead",
            code=ErrorCode.TOPIC_DELETION_DISABLED,
        )
    if topic.name == TRANSACTION_TOPIC:
        raise KafkaError(
            f"'{topic.name}' holds the state of all transactions",
            code=ErrorCode.TOPIC_DELETION_DISABLED,
        )
    return topic
