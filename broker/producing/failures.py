"""Produce answers for what was not stored: a set was refused, or the write or the sync failed.

A producer takes a code that is younger than itself for fatal, so every code passes through
`protocol.eras` here, for the version that the producer speaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.eras import PRODUCE, code_for
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceResponse
from protocol.records.errors import InvalidRecord
from protocol.single_produce import SingleAnswer

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from broker.partitions.topic import Partition, Unwritten
    from broker.pending import Durable
    from protocol.connection import Request
    from protocol.errors import KafkaError
    from storage.log import Log

    Response = ProduceResponse | SingleAnswer

RecordError = ProduceResponse.Topic.Partition.RecordError


def entries_of(
    response: Response,
) -> Iterator[tuple[str | bytes, ProduceResponse.Topic.Partition | SingleAnswer]]:
    """The entries of an answer, each with its topic: the name, or from v13 the id; a SingleAnswer
    has the name in UTF-8."""
    if isinstance(response, SingleAnswer):
        yield response.topic, response
        return
    for topic in response.responses:
        for entry in topic.partition_responses:
            yield topic.name or topic.topic_id, entry


def has_failed(response: Response) -> bool:
    """Whether any partition's set was not stored."""
    return any(entry.error_code != ErrorCode.NONE for _, entry in entries_of(response))


def refuse_set(entry: ProduceResponse.Topic.Partition, version: int, error: KafkaError) -> None:
    """Let the entry say why its set was refused."""
    not_stored(entry, code_for(PRODUCE, version, error.code))
    entry.log_start_offset = -1
    entry.error_message = str(error)
    if isinstance(error, InvalidRecord):
        entry.record_errors = [
            RecordError(batch_index=at, batch_index_error_message=text)
            for at, text in error.record_errors
        ]


def not_stored(entry: Unwritten, code: int) -> None:
    """Let the entry say that nothing of its set is stored. The code may be of any age."""
    entry.error_code = code
    entry.base_offset = entry.log_append_time_ms = -1


def translate(response: Response, version: int) -> None:
    """Turn the codes of an answer, after a write that failed, into such as this version knows."""
    for _, entry in entries_of(response):
        entry.error_code = code_for(PRODUCE, version, entry.error_code)


def refuse_unsynced(request: Request, durable: Durable, failed: Container[Log]) -> Response:
    """The answer after a sync that failed: errors for the partitions of these logs."""
    response: Response = durable.response
    lost = {
        name
        for partition in durable.partitions
        if partition.log in failed
        for name in _names(partition)
    }
    for topic, entry in entries_of(response):
        if (topic, entry.index) in lost:
            not_stored(entry, ErrorCode.KAFKA_STORAGE_ERROR)
    translate(response, request.version)
    return response


def _names(partition: Partition) -> Iterator[tuple[str | bytes, int]]:
    """The names that an answer may have for a partition."""
    topic = partition.topic
    yield topic.name, partition.index
    yield topic.name.encode(), partition.index
    yield topic.topic_id, partition.index
