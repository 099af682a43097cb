"""DeleteRecords: the log start moves up; what lies below can't be read any more.

The new log starts are on disk before they hold and are answered, with one write for all of a
request: Kafka may show deleted records again after a crash, we don't. Where the disk refuses, the
records stay. The segments below go afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker import logs
from broker.pending import Waiting
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

if TYPE_CHECKING:
    from broker.background.log_starts import LogStarts
    from broker.handlers.context import Context
    from broker.partitions.topic import Partition
    from broker.pending import Requester
    from protocol.connection import Request

HIGH_WATERMARK = -1

PartitionResult = DeleteRecordsResponse.Topic.Partition


class DeletionWait(Waiting):
    """A DeleteRecords request that waits for the log starts to be on the disk."""

    __slots__ = ("_entries", "_gone", "_log_starts", "_response")

    def __init__(
        self,
        log_starts: LogStarts,
        response: DeleteRecordsResponse,
        entries: list[tuple[Partition, PartitionResult]],
    ) -> None:
        self._log_starts = log_starts
        self._response = response
        self._entries = entries
        self._gone = False

    def start(self, connection: Requester, request: Request) -> None:
        super().start(connection, request)
        starts: dict[Partition, int] = {}
        for partition, entry in self._entries:
            starts[partition] = max(entry.low_watermark, starts.get(partition, 0))
        self._log_starts.raise_to(starts, self._stored)

    def finish(self) -> None:
        """The broker stops: the answer comes when the starts are stored, and not before."""

    def cancel(self) -> None:
        """The client is gone; what it asked for is done all the same."""
        self._gone = True

    def _stored(self, failures: dict[Partition, str]) -> None:
        for partition, entry in self._entries:
            reason = failures.get(partition)
            if reason is None:
                continue
            logs.error(
                "request failed",
                what="storing a log start",
                reason=reason,
                topic=partition.topic.name,
                partition=partition.index,
            )
            entry.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            entry.low_watermark = -1
        if not self._gone:
            self.connection.finish_waiting(self.request, self._response)


def delete_records(request: Request, ctx: Context) -> Any:
    message: DeleteRecordsRequest = request.message
    answered = []
    raised: list[tuple[Partition, PartitionResult]] = []
    for topic in message.topics:
        entries = []
        for asked in topic.partitions:
            entry = PartitionResult(
                partition_index=asked.partition_index, low_watermark=-1, error_code=ErrorCode.NONE
            )
            try:
                ctx.require(Operation.DELETE, ResourceType.TOPIC, topic.name)
                partition = _partition(topic.name, asked.partition_index, ctx)
                entry.low_watermark = _start_after(partition, asked.offset)
                raised.append((partition, entry))
            except KafkaError as error:
                entry.error_code = error.code
            entries.append(entry)
        answered.append(DeleteRecordsResponse.Topic(name=topic.name, partitions=entries))
    response = DeleteRecordsResponse(topics=answered)
    return DeletionWait(ctx.log_starts, response, raised) if raised else response


def _partition(name: str, index: int, ctx: Context) -> Partition:
    partition = ctx.topics.led(name, index)
    policy = partition.topic.settings.cleanup_policy
    if policy and "delete" not in policy:  # with an empty one Kafka 4 takes it, 3.9 does not
        raise KafkaError(f"topic '{name}' is compacted only", code=ErrorCode.POLICY_VIOLATION)
    return partition


def _start_after(partition: Partition, offset: int) -> int:
    """The log's start when the records below an offset are gone."""
    end = partition.high_watermark
    target = end if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= end:
        raise KafkaError(f"offset {target} is outside 0..{end}", code=ErrorCode.OFFSET_OUT_OF_RANGE)
    return partition.log.start_after_deletion(target)
