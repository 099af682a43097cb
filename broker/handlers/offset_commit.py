"""OffsetCommit: check the caller, then store what can be stored, as one batch.

An offset for a partition that does not exist, or with metadata too long, is refused alone; the rest
of the request is committed, all of it or nothing, and is on the disk before the answer. Version 0,
which Kafka kept in ZooKeeper, goes to the same place as the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.pending import Durable, coordinator_not_available
from protocol.acls import Operation, ResourceType
from protocol.eras import OFFSET_COMMIT, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import (
    ANY_OFFSET,
    OffsetCommitRequest,
    OffsetCommitResponse,
    refused,
)
from protocol.schema import constructor

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request
    from protocol.logdata.commits import Entry

TOPIC_IDS_SINCE = 10
DEFAULT_RETENTION = NOW = -1
INT64_MAX = 2**63 - 1

Answered = OffsetCommitResponse.Topic
new_response = constructor(OffsetCommitResponse)
new_topic = constructor(OffsetCommitResponse.Topic)
new_partition = constructor(OffsetCommitResponse.Topic.Partition)
Asked = OffsetCommitRequest.Topic.Partition


def offset_commit(request: Request, ctx: Context) -> Any:
    message: OffsetCommitRequest = request.message
    version = request.version
    offsets = ctx.offsets
    try:
        shard = offsets.check_commit(message, version)
        accepted: list[Entry] = []
        times: list[int] = []
        conditions: list[tuple[str, int, int]] = []
        answered = _sort_out(message, version, ctx, accepted, times, conditions)
        if conditions:
            offsets.require(shard, message.group_id, conditions)
        if accepted:
            offsets.commit(
                shard,
                message.group_id,
                accepted,
                now_ms=ctx.now_ms,
                times_ms=times if max(times) != NOW else None,
            )
    except KafkaError as error:
        ctx.refused_commit(message.group_id, error, client_id=request.client_id)
        return refused(message, code_for(OFFSET_COMMIT, version, error.code))
    response = new_response(topics=answered)
    if shard.is_durable:
        return response
    return Durable(response, [shard.partition], coordinator_not_available)


def _sort_out(
    message: OffsetCommitRequest,
    version: int,
    ctx: Context,
    accepted: list[Entry],
    times: list[int],
    conditions: list[tuple[str, int, int]],
) -> list[Answered]:
    """The answer; what may be committed is added to `accepted`, its time to `times`, and what it
    expects to replace, if it says so, to `conditions`."""
    topics = ctx.topics
    by_id = version >= TOPIC_IDS_SINCE
    metadata_max = ctx.settings.current.offset_metadata_max_bytes
    retention_ms = message.retention_time_ms
    expire_ms = -1
    if retention_ms != DEFAULT_RETENTION:
        expire_ms = min(max(ctx.now_ms + retention_ms, 0), INT64_MAX)
    answered = []
    for asked in message.topics:
        topic = topics.by_id.get(asked.topic_id) if by_id else topics.by_name.get(asked.name)
        if topic is not None:
            name, count = topic.name, len(topic.partitions)
        else:
            name, count = "" if by_id else asked.name, 0
        allowed = ctx.allows(Operation.READ, ResourceType.TOPIC, name) or not name
        entries = []
        for one in asked.partitions:
            index, metadata = one.partition_index, one.committed_metadata
            code = 0
            if not allowed:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not 0 <= index < count:
                code = _unknown(exists=topic is not None, by_id=by_id)
            elif metadata and metadata_length(metadata) > metadata_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                accepted.append(
                    (name, index, one.committed_offset, one.committed_leader_epoch, metadata,
                     expire_ms)
                )  # fmt: skip
                times.append(one.commit_timestamp)
                if one.expected_offset != ANY_OFFSET:
                    conditions.append((name, index, one.expected_offset))
            entries.append(new_partition(partition_index=index, error_code=code))
        answered.append(new_topic(topic_id=asked.topic_id, name=asked.name, partitions=entries))
    return answered


def metadata_length(metadata: str) -> int:
    """In units of UTF-16, which is what Kafka counts against offset.metadata.max.bytes."""
    return len(metadata.encode("utf-16-le", "surrogatepass")) // 2


def _unknown(*, exists: bool, by_id: bool) -> ErrorCode:
    if by_id and not exists:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
