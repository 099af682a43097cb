"""Produce: check each batch, give it its offsets in place, queue it for its log.

Versions 3 to 13: exactly one batch of format 2 for each partition. One partition's failure is told
for it alone. A topic is never created here (Metadata does that). Transactional batches are refused
until there is a transaction coordinator.

The bytes of a batch are checked (header facts, CRC-32C), patched in the 12 bytes that lie outside
the checksum, and written from the buffer that the kernel filled. Answers are encoded after the
write, see broker.appends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.pending import Durable, Silent
from protocol.eras import PRODUCE, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.produce import ProduceRequest, ProduceResponse, refused
from protocol.records.batch import Batch
from protocol.records.layout import HEADER, LENGTH, MAX_TIMESTAMP, PRODUCER_ID
from protocol.records.validate import InvalidRecord, check_produced

if TYPE_CHECKING:
    from broker.context import Context
    from broker.partition import Partition
    from protocol.connection import Request

ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1
TOPIC_IDS_SINCE = 13
ZSTD_SINCE = 7
ZSTD = 4
TRANSACTIONAL_BIT = 16

Entry = ProduceResponse.Topic.Partition
Answered = ProduceResponse.Topic


def produce(request: Request, ctx: Context) -> ProduceResponse | Durable | Silent:
    message: ProduceRequest = request.message
    acks = message.acks
    touched: list[Partition] = []
    if not ACKS_ALL <= acks <= ACKS_LEADER:
        response = refused(message, ErrorCode.INVALID_REQUIRED_ACKS)
    elif message.transactional_id is not None:
        response = refused(message, ErrorCode.INVALID_TXN_STATE)
    else:
        response = _append_all(request, message, ctx, touched)
    if acks == ACKS_ALL and ctx.broker.ack_when_durable:
        return Durable(response, touched)
    if acks == ACKS_NONE:
        return Silent(response)
    return response


def _append_all(
    request: Request, message: ProduceRequest, ctx: Context, touched: list[Partition]
) -> ProduceResponse:
    topics = ctx.broker.topics
    by_id = request.route.version >= TOPIC_IDS_SINCE
    answered = []
    for data in message.topic_data:
        topic = topics.by_id.get(data.topic_id) if by_id else topics.by_name.get(data.name)
        entries = []
        for sent in data.partition_data:
            index = sent.index
            if topic is None or not 0 <= index < len(topic.partitions):
                unknown = (
                    ErrorCode.UNKNOWN_TOPIC_ID
                    if topic is None and by_id
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                entries.append(Entry(index=index, error_code=unknown, base_offset=-1))
                continue
            partition = topic.partitions[index]
            try:
                entry = _append(request, ctx, partition, sent.records)
                touched.append(partition)
            except KafkaError as error:
                entry = _refused_entry(request, ctx, partition, error)
            entries.append(entry)
        answered.append(
            Answered(topic_id=data.topic_id, name=data.name, partition_responses=entries)
        )
    return ProduceResponse(responses=answered)


def _append(request: Request, ctx: Context, partition: Partition, view: memoryview | None) -> Entry:
    """Queue one batch; its entry in the answer. Raises KafkaError."""
    topic = partition.topic
    rules = topic.rules
    if view is None:
        raise InvalidRecord("no records were sent for the partition")
    if topic.internal:
        raise KafkaError(
            f"clients may not write to the internal topic '{topic.name}'",
            code=ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
    header = check_produced(view, rules, ctx.now_ms)
    attributes = header[5]
    if attributes & 7 == ZSTD and request.route.version < ZSTD_SINCE:
        raise KafkaError(
            "zstd needs Produce v7 or later", code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )
    if attributes & TRANSACTIONAL_BIT:
        raise KafkaError(
            "a transactional batch outside of a transaction", code=ErrorCode.INVALID_TXN_STATE
        )
    log = partition.log
    appended_ms = -1
    size = header[LENGTH] + 12
    if size != len(view):
        view = view[:size]
    if header[PRODUCER_ID] >= 0:
        duplicate = log.producers.check(header)
        if duplicate is not None:
            entry = Entry(
                index=partition.index,
                error_code=0,
                base_offset=duplicate.base_offset,
                log_append_time_ms=duplicate.timestamp if rules.log_append_time else -1,
                log_start_offset=log.start_offset,
            )
            ctx.broker.appends.add(partition, entry, 0)
            return entry
    if rules.log_append_time:
        appended_ms = ctx.now_ms
        Batch(view).stamp_log_append_time(appended_ms)
        header = HEADER.unpack_from(view)
        assert header[MAX_TIMESTAMP] == appended_ms
    base_offset = log.append(view, header, now_ms=ctx.now_ms)
    entry = Entry(
        index=partition.index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=appended_ms,
        log_start_offset=log.start_offset,
    )
    ctx.broker.appends.add(partition, entry, size)
    return entry


def _refused_entry(
    request: Request, ctx: Context, partition: Partition, error: KafkaError
) -> Entry:
    ctx.refused_batch(partition.topic.name, partition.index, error)
    details: list[tuple[int, str]] = getattr(error, "record_errors", [])
    fields: Any = {}
    if details:
        fields["record_errors"] = [
            Entry.RecordError(batch_index=index, batch_index_error_message=text)
            for index, text in details
        ]
    if isinstance(error, InvalidRecord):
        fields["error_message"] = str(error)
    return Entry(
        index=partition.index,
        error_code=code_for(PRODUCE, request.version, error.code),
        base_offset=-1,
        **fields,
    )


def translate_failures(handled: list[tuple[Request, Any]]) -> None:
    """After a failed write: give old producers a code that they know."""
    for request, result in handled:
        if request.route.api.key != PRODUCE:
            continue
        response = result if isinstance(result, ProduceResponse) else result.response
        for topic in response.responses:
            for entry in topic.partition_responses:
                entry.error_code = code_for(PRODUCE, request.version, entry.error_code)
