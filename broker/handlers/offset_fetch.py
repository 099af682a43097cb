"""OffsetFetch: where a group is. The answer waits until what it tells is on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.pending import Durable, coordinator_not_available
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.schema import constructor

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.shard import Shard
    from broker.handlers.context import Context
    from broker.partitions.topic import Partition
    from protocol.connection import Request

SEVERAL_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10
NOTHING = -1

OldTopic = OffsetFetchResponse.Topic
NewGroup = OffsetFetchResponse.Group
NewTopic = NewGroup.Topic
old_partition = constructor(OldTopic.Partition)
new_partition = constructor(NewTopic.Partition)


def offset_fetch(request: Request, ctx: Context) -> Any:
    message: OffsetFetchRequest = request.message
    version = request.version
    unsynced: list[Partition] = []
    if version >= SEVERAL_GROUPS_SINCE:
        response = OffsetFetchResponse(
            groups=[_group(asked, message, version, ctx, unsynced) for asked in message.groups]
        )
    else:
        ctx.require(Operation.DESCRIBE, ResourceType.GROUP, message.group_id)
        shard = _shard(message.group_id, ctx, unsynced)
        response = OffsetFetchResponse(topics=_old_topics(shard, message, version, ctx))
    if not unsynced:
        return response
    return Durable(response, unsynced, coordinator_not_available)


def _shard(group_id: str, ctx: Context, unsynced: list[Partition]) -> Shard | None:
    shard = ctx.groups.existing_shard(group_id)
    if shard is not None and not shard.is_durable:
        unsynced.append(shard.partition)
    return shard


def _group(
    asked: OffsetFetchRequest.Group,
    message: OffsetFetchRequest,
    version: int,
    ctx: Context,
    unsynced: list[Partition],
) -> NewGroup:
    """One group's part of the answer; its errors are its own."""
    group_id = asked.group_id
    try:
        ctx.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        shard = _shard(group_id, ctx, unsynced)
        if asked.member_id is not None or asked.member_epoch >= 0:
            ctx.offsets.check_fetch(shard, group_id, asked.member_id, asked.member_epoch)
    except KafkaError as error:
        return NewGroup(group_id=group_id, topics=[], error_code=error.code)
    by_name, by_id = ctx.topics.by_name, ctx.topics.by_id
    stable = message.require_stable
    topics = []
    if asked.topics is None:
        for name, indexes in _everything(shard, group_id).items():
            topic = by_name.get(name)
            if topic is None and version >= TOPIC_IDS_SINCE:
                continue  # which has no id any more
            if not ctx.may_describe(name):
                continue
            entries = _partitions(shard, group_id, name, indexes, stable, new_partition)
            topics.append(
                NewTopic(
                    name=name,
                    topic_id=topic.topic_id if topic is not None else bytes(16),
                    partitions=entries,
                )
            )
        return NewGroup(group_id=group_id, topics=topics)
    for one in asked.topics:
        name = one.name
        if version >= TOPIC_IDS_SINCE:
            topic = by_id.get(one.topic_id)
            if topic is None:
                entries = [
                    _nothing(new_partition, index, ErrorCode.UNKNOWN_TOPIC_ID)
                    for index in one.partition_indexes
                ]
                topics.append(NewTopic(topic_id=one.topic_id, partitions=entries))
                continue
            name = topic.name
        if not ctx.may_describe(name):
            entries = _closed(new_partition, one.partition_indexes)
            topics.append(NewTopic(topic_id=one.topic_id, name=name, partitions=entries))
            continue
        entries = _partitions(shard, group_id, name, one.partition_indexes, stable, new_partition)
        topics.append(NewTopic(topic_id=one.topic_id, name=name, partitions=entries))
    return NewGroup(group_id=group_id, topics=topics)


def _old_topics(
    shard: Shard | None, message: OffsetFetchRequest, version: int, ctx: Context
) -> list[OldTopic]:
    group_id, stable = message.group_id, message.require_stable
    if message.topics is None:
        wanted = [
            (name, indexes)
            for name, indexes in _everything(shard, group_id).items()
            if ctx.may_describe(name)
        ]
    else:
        wanted = [(one.name, one.partition_indexes) for one in message.topics]
    topics = []
    for name, indexes in wanted:
        if not ctx.may_describe(name):
            topics.append(OldTopic(name=name, partitions=_closed(old_partition, indexes)))
            continue
        entries = _partitions(shard, group_id, name, indexes, stable, old_partition)
        if version == 0:
            for entry in entries:
                if entry.committed_offset == NOTHING:
                    entry.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics.append(OldTopic(name=name, partitions=entries))
    return topics


def _everything(shard: Shard | None, group_id: str) -> dict[str, list[int]]:
    return {} if shard is None else shard.state.offsets.topics(group_id)


def _partitions(
    shard: Shard | None,
    group_id: str,
    name: str,
    indexes: list[int],
    stable: bool,
    entry: Callable[..., Any],
) -> list[Any]:
    if shard is None:
        return [_nothing(entry, index) for index in indexes]
    offsets = shard.state.offsets
    pending = frozenset(offsets.pending(group_id)) if stable else frozenset()
    run = None if pending else offsets.fetch_run(group_id, name, indexes)
    if run is not None:
        return [
            entry(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                metadata="",
                error_code=0,
            )
            for index, offset, leader_epoch in zip(indexes, *run, strict=True)
        ]
    entries = [
        entry(
            partition_index=index,
            committed_offset=found.offset,
            committed_leader_epoch=found.leader_epoch,
            metadata=found.metadata,
            error_code=0,
        )
        if found is not None
        else _nothing(entry, index)
        for index, found in zip(indexes, offsets.fetch(group_id, name, indexes), strict=True)
    ]
    if pending:
        return [
            _nothing(entry, one.partition_index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if (name, one.partition_index) in pending
            else one
            for one in entries
        ]
    return entries


def _closed(entry: Callable[..., Any], indexes: list[int]) -> list[Any]:
    return [_nothing(entry, index, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for index in indexes]


def _nothing(entry: Callable[..., Any], index: int, code: ErrorCode = ErrorCode.NONE) -> Any:
    return entry(
        partition_index=index,
        committed_offset=NOTHING,
        committed_leader_epoch=-1,
        metadata="",
        error_code=code,
    )
