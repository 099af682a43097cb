"""DeleteRecords: the log start moves up; what lies below can't be read any more.

The new log start is on disk before the answer: Kafka may show deleted records again after a crash,
we don't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

if TYPE_CHECKING:
    from broker.context import Context
    from protocol.connection import Request

HIGH_WATERMARK = -1

Entry = DeleteRecordsResponse.Topic.Partition


def delete_records(request: Request, ctx: Context) -> DeleteRecordsResponse:
    message: DeleteRecordsRequest = request.message
    answered = []
    for topic in message.topics:
        entries = []
        for asked in topic.partitions:
            entry = Entry(
                partition_index=asked.partition_index, low_watermark=-1, error_code=ErrorCode.NONE
            )
            try:
                entry.low_watermark = _delete(topic.name, asked.partition_index, asked.offset, ctx)
            except KafkaError as error:
                entry.error_code = error.code
            except OSError as error:
                ctx.failed("storing a log start", error, topic=topic.name)
                entry.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            entries.append(entry)
        answered.append(DeleteRecordsResponse.Topic(name=topic.name, partitions=entries))
    return DeleteRecordsResponse(topics=answered)


def _delete(name: str, index: int, offset: int, ctx: Context) -> int:
    partition = ctx.broker.topics.partition(name, index)
    if partition is None:
        raise KafkaError(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if "delete" not in partition.topic.settings.cleanup_policy:
        raise KafkaError(f"topic '{name}' is compacted only", code=ErrorCode.POLICY_VIOLATION)
    end = partition.high_watermark
    target = end if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= end:
        raise KafkaError(f"offset {target} is outside 0..{end}", code=ErrorCode.OFFSET_OUT_OF_RANGE)
    return ctx.broker.directory.delete_records(name, index, target)
