"""CreatePartitions: more partitions for a topic. Existing data and keys stay where they are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.handlers.metadata_changes import changed
from broker.handlers.nodes import process_of, there_is
from broker.partitions.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from broker.partitions.topics import MAX_PARTITIONS
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from broker.metadata.client_quotas import Mutations
    from protocol.connection import Request
    from storage.steps import Steps

Asked = CreatePartitionsRequest.Topic
TopicResult = CreatePartitionsResponse.Topic

STRICT_SINCE = 3
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""


def create_partitions(request: Request, ctx: Context) -> ChangeWait:
    return changed(_answer(request, ctx), ctx)


def _answer(request: Request, ctx: Context) -> Steps[CreatePartitionsResponse]:
    message: CreatePartitionsRequest = request.message
    client, strict = ctx.client(request), request.version >= STRICT_SINCE
    mutations = ctx.quotas.mutations(client, strict=strict)
    named = Counter(asked.name for asked in message.topics)
    entries: dict[str, TopicResult] = {}
    for asked in message.topics:
        try:
            if named[asked.name] > 1:
                raise KafkaError(
                    f"topic '{asked.name}' is named more than once", code=ErrorCode.INVALID_REQUEST
                )
            yield from _grow(asked, ctx, mutations, validate_only=message.validate_only)
            entries[asked.name] = TopicResult(name=asked.name, error_code=ErrorCode.NONE)
        except KafkaError as error:
            entries[asked.name] = TopicResult(
                name=asked.name, error_code=error.code, error_message=str(error)
            )
        except OSError as error:
            ctx.failed("adding partitions", error, topic=asked.name)
            entries[asked.name] = TopicResult(
                name=asked.name,
                error_code=ErrorCode.KAFKA_STORAGE_ERROR,
                error_message=f"the data directory can't be written: {error.strerror}",
            )
    return CreatePartitionsResponse(
        results=list(entries.values()), throttle_time_ms=mutations.throttle_ms
    )


def _grow(asked: Asked, ctx: Context, mutations: Mutations, *, validate_only: bool) -> Steps[None]:
    topics = ctx.topics
    ctx.require(Operation.ALTER, ResourceType.TOPIC, asked.name)
    topic = topics.by_name.get(asked.name)
    if topic is None:
        raise KafkaError(
            f"there is no topic '{asked.name}'", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    if topic.name == OFFSETS_TOPIC:
        raise KafkaError(
            f"the partition in which a group is kept follows from how many '{topic.name}' has",
            code=ErrorCode.INVALID_PARTITIONS,
        )
    if topic.name == TRANSACTION_TOPIC:
        raise KafkaError(
            f"the partition of a transactional id follows from how many '{topic.name}' has",
            code=ErrorCode.INVALID_PARTITIONS,
        )
    have = len(topic.partitions)
    if not have < asked.count <= MAX_PARTITIONS:
        raise KafkaError(
            f"topic '{asked.name}' has {have} partitions; {asked.count} were asked for, wanted "
            f"{have + 1} to {MAX_PARTITIONS}",
            code=ErrorCode.INVALID_PARTITIONS,
        )
    assigned = [process_of(item.broker_ids, ctx) for item in asked.assignments or ()]
    if asked.assignments is not None and (len(assigned) != asked.count - have or None in assigned):
        raise KafkaError(
            f"{asked.count - have} new partitions need as many assignments; {there_is(ctx)}",
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    mutations.record(asked.count - have)
    if not validate_only:
        yield from topics.grow(topic, asked.count, [one for one in assigned if one is not None])
