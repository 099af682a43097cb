"""Metadata: this broker, its topics, and the creation of topics that are named and missing.

A missing topic is created and answered with its partitions, where Apache Kafka first says
LEADER_NOT_AVAILABLE; whoever asks for it meanwhile waits for the same creation. One that was
deleted is first told to be gone. The address told is the one that the client dialled, unless
`advertised.listeners` says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.handlers.metadata_changes import changed
from broker.handlers.nodes import nodes
from config import ConfigError
from protocol.acls import ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.partitions.topic import Topic
    from protocol.connection import Request
    from storage.steps import Steps

NULL_MEANS_ALL_SINCE = 1
TOPIC_IDS_SINCE = 12

SHOWN = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Codes of topics of which a client is told what it may do; it may describe them."""

TopicResult = MetadataResponse.Topic


def metadata(request: Request, ctx: Context) -> Any:
    message: MetadataRequest = request.message
    ctx.client_id = request.client_id
    wants_all = message.topics is None or (
        request.version < NULL_MEANS_ALL_SINCE and not message.topics
    )
    if wants_all:
        entries = [
            _describe(topic) for topic in ctx.topics if ctx.may_describe(topic.name, silent=True)
        ]
    else:
        assert message.topics is not None
        if request.version < TOPIC_IDS_SINCE and any(
            asked.name is None or asked.topic_id != ZERO_UUID for asked in message.topics
        ):
            raise KafkaError("topic ids need Metadata v12 or later", code=ErrorCode.INVALID_REQUEST)
        if any(_is_wanted(asked, message, ctx) for asked in message.topics):
            return changed(_created(message.topics, message, ctx), ctx)
        entries = [_find(asked, ctx) for asked in message.topics]
    return _answer(entries, message, ctx)


def _created(
    topics: list[MetadataRequest.Topic], message: MetadataRequest, ctx: Context
) -> Steps[MetadataResponse]:
    """The answer when those that are missing have been created."""
    entries = []
    client = ctx.principal.name, ctx.client_id or ""
    mutations = ctx.quotas.mutations(client, strict=False)
    for asked in topics:
        refusal = None
        if _is_wanted(asked, message, ctx):
            refusal = yield from _create(asked, ctx)
            if refusal is None and asked.name is not None:
                mutations.record(len(ctx.topics.by_name[asked.name].partitions))
        entries.append(refusal or _find(asked, ctx))
    answer = _answer(entries, message, ctx)
    answer.throttle_time_ms = mutations.throttle_ms
    return answer


def _answer(entries: list[TopicResult], message: MetadataRequest, ctx: Context) -> MetadataResponse:
    if message.include_topic_authorized_operations:
        for entry in entries:
            if entry.name is not None and entry.error_code in SHOWN:
                entry.topic_authorized_operations = ctx.operations(ResourceType.TOPIC, entry.name)
    response = MetadataResponse(
        brokers=[
            MetadataResponse.Broker(
                node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in nodes(ctx)
        ],
        cluster_id=ctx.cluster_id,
        controller_id=ctx.controller.leader_id,
        topics=entries,
    )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ctx.cluster_operations()
    return response


def _find(asked: MetadataRequest.Topic, ctx: Context) -> TopicResult:
    topics = ctx.topics
    if asked.name is None:
        topic = topics.by_id.get(asked.topic_id)
        if topic is None:
            return _missing(asked, ErrorCode.UNKNOWN_TOPIC_ID)
        if not ctx.may_describe(topic.name):
            return _missing(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return _describe(topic)
    if not ctx.may_describe(asked.name):
        return _missing(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = topics.by_name.get(asked.name)
    if topic is None:
        return _missing(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _describe(topic)


def _is_wanted(asked: MetadataRequest.Topic, message: MetadataRequest, ctx: Context) -> bool:
    """Whether the topic is missing and is to be created."""
    name = asked.name
    return (
        name is not None
        and name not in ctx.topics.by_name
        and message.allow_auto_topic_creation
        and ctx.settings.current.auto_create_topics_enable
        and ctx.may_describe(name)
    )


def _create(asked: MetadataRequest.Topic, ctx: Context) -> Steps[TopicResult | None]:
    """Create the topic; if it is not, the entry that says so."""
    topics, name = ctx.topics, asked.name
    assert name is not None
    if not ctx.may_create(name):
        return _missing(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    # A client that waits until a topic is gone allows its creation, too (before v4 none can
    # forbid it; kafka-go never does) and would bring it back with each look.
    if topics.forget_deletion(name):
        return _missing(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        topic = yield from topics.create_automatically(name)
    except KafkaError as error:
        return _missing(asked, error.code)
    except (ConfigError, OSError) as error:
        ctx.failed("creating a topic", error, topic=name)
        return _missing(asked, ErrorCode.LEADER_NOT_AVAILABLE)
    ctx.created(topic)
    return None


def _missing(asked: MetadataRequest.Topic, code: ErrorCode) -> TopicResult:
    return TopicResult(error_code=code, name=asked.name, topic_id=asked.topic_id, partitions=[])


def _describe(topic: Topic) -> TopicResult:
    return TopicResult(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            TopicResult.Partition(
                error_code=ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=partition.leader_id,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=(replicas := [partition.leader_id]),
                isr_nodes=replicas,
                offline_replicas=[],
            )
            for partition in topic.partitions
        ],
    )
