"""CreateTopics: new topics; each can be used when the answer comes.

One node: a replication factor above 1 is refused, unless `replication.factor.clamp` lets it pass as
1; a manual assignment may name this node only.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.topics import MAX_PARTITIONS, name_fault
from config import ConfigError, TopicSettings
from config.describe import topic_rows
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.context import Context
    from protocol.connection import Request

DEFAULT = -1

Asked = CreateTopicsRequest.Topic
Entry = CreateTopicsResponse.Topic


def create_topics(request: Request, ctx: Context) -> CreateTopicsResponse:
    message: CreateTopicsRequest = request.message
    named = Counter(asked.name for asked in message.topics)
    answered: dict[str, Entry] = {}
    for asked in message.topics:
        if asked.name in answered:
            continue
        try:
            if named[asked.name] > 1:
                raise KafkaError(
                    f"topic '{asked.name}' is named more than once", code=ErrorCode.INVALID_REQUEST
                )
            answered[asked.name] = _create(asked, ctx, validate_only=message.validate_only)
        except KafkaError as error:
            answered[asked.name] = Entry(
                name=asked.name, error_code=error.code, error_message=str(error), configs=None
            )
        except OSError as error:
            ctx.failed("creating a topic", error, topic=asked.name)
            answered[asked.name] = Entry(
                name=asked.name,
                error_code=ErrorCode.KAFKA_STORAGE_ERROR,
                error_message=f"the data directory can't be written: {error.strerror}",
                configs=None,
            )
    return CreateTopicsResponse(topics=list(answered.values()))


def _create(asked: Asked, ctx: Context, *, validate_only: bool) -> Entry:
    topics = ctx.broker.topics
    _check_name(asked.name, ctx)
    partition_count = _partition_count(asked, ctx)
    overrides = {config.name: config.value for config in asked.configs if config.value is not None}
    missing = [config.name for config in asked.configs if config.value is None]
    if missing:
        raise KafkaError(f"{missing[0]} has no value", code=ErrorCode.INVALID_CONFIG)
    try:
        TopicSettings.of(ctx.broker.settings, overrides)
    except ConfigError as error:
        raise KafkaError(str(error), code=ErrorCode.INVALID_CONFIG) from None
    topic_id = ZERO_UUID
    if not validate_only:
        topic = topics.create(asked.name, partition_count, overrides, now_ms=ctx.now_ms)
        ctx.created(topic)
        topic_id = topic.topic_id
    return Entry(
        name=asked.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        num_partitions=partition_count,
        replication_factor=1,
        configs=[
            Entry.Config(
                name=row.name,
                value=row.value,
                read_only=row.read_only,
                config_source=row.source,
                is_sensitive=row.sensitive,
            )
            for row in topic_rows(ctx.broker.settings, overrides)
        ],
    )


def _check_name(name: str, ctx: Context) -> None:
    topics = ctx.broker.topics
    fault = name_fault(name)
    if fault is not None:
        raise KafkaError(fault, code=ErrorCode.INVALID_TOPIC_EXCEPTION)
    if name in topics.by_name:
        raise KafkaError(f"topic '{name}' exists", code=ErrorCode.TOPIC_ALREADY_EXISTS)
    other = topics.collision(name)
    if other is not None:
        raise KafkaError(
            f"'{name}' collides with topic '{other}': '.' and '_' are the same in metrics",
            code=ErrorCode.INVALID_TOPIC_EXCEPTION,
        )


def _partition_count(asked: Asked, ctx: Context) -> int:
    settings = ctx.broker.settings
    if asked.assignments:
        if asked.num_partitions != DEFAULT or asked.replication_factor != DEFAULT:
            raise KafkaError(
                "partitions are either counted or assigned, not both",
                code=ErrorCode.INVALID_REQUEST,
            )
        _check_assignments(asked, ctx)
        return len(asked.assignments)
    count = settings.num_partitions if asked.num_partitions == DEFAULT else asked.num_partitions
    if not 1 <= count <= MAX_PARTITIONS:
        raise KafkaError(
            f"{count} partitions, wanted 1 to {MAX_PARTITIONS}", code=ErrorCode.INVALID_PARTITIONS
        )
    factor = asked.replication_factor
    if factor not in (DEFAULT, 1) and not (factor > 1 and settings.replication_factor_clamp):
        raise KafkaError(
            f"replication factor {factor}, but this is a single node (1; "
            "replication.factor.clamp=true accepts more and keeps one copy)",
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    return count


def _check_assignments(asked: Asked, ctx: Context) -> None:
    node_id = ctx.broker.node_id
    indexes = sorted(item.partition_index for item in asked.assignments)
    if indexes != list(range(len(indexes))) or len(indexes) > MAX_PARTITIONS:
        raise KafkaError(
            "assigned partitions must be numbered from 0 without gaps",
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    for item in asked.assignments:
        if item.broker_ids != [node_id]:
            raise KafkaError(
                f"partition {item.partition_index} is assigned to brokers {item.broker_ids}; "
                f"there is only broker {node_id}",
                code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
