"""DeleteTopics: topics and their data go, by name or (version 6) by id.

The directories are set aside at once and removed a little later, as Kafka does, so that a fetch
that is being sent can finish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.offsets_topic import NAME as OFFSETS_TOPIC
from protocol.eras import DELETE_TOPICS, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.context import Context
    from broker.topics import Topic
    from protocol.connection import Request

Entry = DeleteTopicsResponse.Topic


def delete_topics(request: Request, ctx: Context) -> DeleteTopicsResponse:
    message: DeleteTopicsRequest = request.message
    asked: list[tuple[str | None, bytes]] = [(name, ZERO_UUID) for name in message.topic_names]
    asked += [(item.name, item.topic_id) for item in message.topics]
    entries = []
    for name, topic_id in asked:
        try:
            topic = _find(name, topic_id, ctx)
            if topic.name == OFFSETS_TOPIC:
                raise KafkaError(
                    f"'{topic.name}' holds the offsets of all groups; delete groups instead",
                    code=ErrorCode.TOPIC_DELETION_DISABLED,
                )
            folders = ctx.broker.topics.delete(topic)
            ctx.broker.remove_later(folders, topic.settings.file_delete_delay_ms)
            ctx.deleted(topic)
            ctx.broker.offsets.topic_deleted(topic.name)
            entry = Entry(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE)
        except KafkaError as error:
            entry = Entry(
                name=name,
                topic_id=topic_id,
                error_code=code_for(DELETE_TOPICS, request.version, error.code),
                error_message=str(error),
            )
        except OSError as error:
            ctx.failed("deleting a topic", error, topic=name)
            entry = Entry(
                name=name,
                topic_id=topic_id,
                error_code=ErrorCode.KAFKA_STORAGE_ERROR,
                error_message=f"the data directory can't be written: {error.strerror}",
            )
        entries.append(entry)
    return DeleteTopicsResponse(responses=entries)


def _find(name: str | None, topic_id: bytes, ctx: Context) -> Topic:
    topics = ctx.broker.topics
    if not ctx.broker.settings.delete_topic_enable:
        raise KafkaError(code=ErrorCode.TOPIC_DELETION_DISABLED)
    if (name is None) == (topic_id == ZERO_UUID):
        raise KafkaError(
            "a topic is deleted either by name or by id", code=ErrorCode.INVALID_REQUEST
        )
    if name is None:
        topic = topics.by_id.get(topic_id)
        if topic is None:
            raise KafkaError(code=ErrorCode.UNKNOWN_TOPIC_ID)
        return topic
    topic = topics.by_name.get(name)
    if topic is None:
        raise KafkaError(f"there is no topic '{name}'", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic
