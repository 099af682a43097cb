"""ListOffsets: the offset at the end, at the start, or at a point in time.

Versions 0 to 11. A time after every record gives offset -1, not the log end: Spark, Flink and
`offsetsForTimes` depend on it. There is no tiered storage, so the earliest local offset is the log
start and the tiered ones do not exist.

Version 0 is older than timestamps in records: it answers a list of offsets at which segments begin,
by the times their files were last changed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.partitions.topic import Partition
    from protocol.connection import Request

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, PENDING_UPLOAD: 11}
"""The first version that may ask for each of the younger special times."""
READ_COMMITTED = 1
SEGMENTS_ONLY = 0
"""The version that knows no records' timestamps."""

Asked = ListOffsetsRequest.Topic.Partition
PartitionResult = ListOffsetsResponse.Topic.Partition


def list_offsets(request: Request, ctx: Context) -> ListOffsetsResponse:
    message: ListOffsetsRequest = request.message
    named = Counter(
        (topic.name, asked.partition_index)
        for topic in message.topics
        for asked in topic.partitions
    )
    answered = []
    for topic in message.topics:
        entries = []
        for asked in topic.partitions:
            try:
                if named[topic.name, asked.partition_index] > 1:
                    raise KafkaError(
                        f"{topic.name}-{asked.partition_index} is named twice",
                        code=ErrorCode.INVALID_REQUEST,
                    )
                ctx.require(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
                partition = ctx.topics.partition(topic.name, asked.partition_index)
                entries.append(_find(request, ctx, asked, partition))
            except OSError as error:
                assert partition is not None
                refused = ctx.disk.read_failed(partition.log, error)
                entries.append(
                    PartitionResult(partition_index=asked.partition_index, error_code=refused.code)
                )
            except KafkaError as error:
                entries.append(
                    PartitionResult(partition_index=asked.partition_index, error_code=error.code)
                )
        answered.append(ListOffsetsResponse.Topic(name=topic.name, partitions=entries))
    return ListOffsetsResponse(topics=answered)


def _find(
    request: Request, ctx: Context, asked: Asked, partition: Partition | None
) -> PartitionResult:
    if partition is None:
        raise KafkaError(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = partition.log
    log.require_available()
    epoch = asked.current_leader_epoch
    if epoch not in (-1, log.leader_epoch):
        raise KafkaError(
            code=ErrorCode.FENCED_LEADER_EPOCH
            if epoch < log.leader_epoch
            else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
    committed_only = request.message.isolation_level == READ_COMMITTED
    end = partition.last_stable_offset if committed_only else partition.high_watermark
    version, timestamp = request.version, asked.timestamp
    if timestamp < PENDING_UPLOAD or version < SINCE.get(timestamp, 0):
        raise KafkaError(
            f"ListOffsets v{version} can't ask for timestamp {timestamp}",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
    entry = PartitionResult(partition_index=asked.partition_index, error_code=ErrorCode.NONE)
    if version == SEGMENTS_ONLY:
        entry.old_style_offsets = log.offsets_before(
            timestamp, asked.max_num_offsets, now_ms=ctx.now_ms
        )
        return entry
    if timestamp >= 0 and partition.topic.settings.record_format == 0:
        raise KafkaError(
            "the topic's format has no timestamps", code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        )
    if timestamp == LATEST:
        entry.offset = end
        entry.leader_epoch = log.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        entry.offset = log.start_offset
        entry.leader_epoch = log.epochs.epoch_of(log.start_offset)
    elif timestamp in (LATEST_TIERED, PENDING_UPLOAD):
        pass
    else:
        limit = ctx.settings.current.max_decompressed_batch_bytes
        found = (
            log.max_timestamp(limit=limit)
            if timestamp == MAX_TIMESTAMP
            else log.offset_for_timestamp(timestamp, limit=limit)
        )
        if found is not None and found[1] < end:
            entry.timestamp, entry.offset, entry.leader_epoch = found
    return entry
