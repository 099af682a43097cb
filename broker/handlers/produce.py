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
from protocol.records.layout import ATTRIBUTES, LENGTH, PRODUCER_ID, TRANSACTIONAL_BIT
from protocol.records.validate import InvalidRecord, check_produced
from protocol.single_produce import SingleAnswer, SingleProduce

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.context import Context
    from broker.partition import Partition
    from broker.topics import Topic
    from protocol.connection import Request

ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1
TOPIC_IDS_SINCE = 13
ZSTD_SINCE = 7

Entry = ProduceResponse.Topic.Partition
Answered = ProduceResponse.Topic


def produce(request: Request, ctx: Context) -> Any:
    message: ProduceRequest | SingleProduce = request.message
    if message.__class__ is SingleProduce:
        return _produce_single(request, message, ctx)
    assert isinstance(message, ProduceRequest)
    touched: list[Partition] = []
    if not ACKS_ALL <= message.acks <= ACKS_LEADER:
        response = refused(message, ErrorCode.INVALID_REQUIRED_ACKS)
    elif message.transactional_id is not None:
        response = refused(message, ErrorCode.INVALID_TXN_STATE)
    else:
        response = _produce_all(request, message, ctx, touched)
    return _acknowledge(message.acks, response, touched, ctx)


def _acknowledge(
    acks: int, response: ProduceResponse | SingleAnswer, touched: list[Partition], ctx: Context
) -> ProduceResponse | SingleAnswer | Durable | Silent:
    if acks == ACKS_LEADER:
        return response
    if acks == ACKS_NONE:
        return Silent(response)
    return Durable(response, touched) if ctx.broker.ack_when_durable else response


def _produce_single(request: Request, message: SingleProduce, ctx: Context) -> Any:
    """The commonest shape; whatever is wrong with it is told by the general answer."""
    topics = ctx.broker.topics
    named = message.topic
    version = request.route.version
    topic = topics.by_id.get(named) if version >= TOPIC_IDS_SINCE else topics.by_utf8.get(named)
    index = message.index
    acks = message.acks
    try:
        if not ACKS_ALL <= acks <= ACKS_LEADER:
            raise KafkaError(code=ErrorCode.INVALID_REQUIRED_ACKS)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise KafkaError(code=_unknown(topic, version))
        partition = topic.partitions[index]
        answer = SingleAnswer(named, index, -1, -1, partition.log.start_offset)
        _append(partition, message.records, answer, version, ctx)
    except KafkaError as error:
        entry = _refused_entry(request, ctx, named, index, error)
        answered = Answered(partition_responses=[entry])
        if version >= TOPIC_IDS_SINCE:
            answered.topic_id = named
        else:
            answered.name = named.decode("utf-8", "surrogateescape")
        return _acknowledge(acks, ProduceResponse(responses=[answered]), [], ctx)
    return answer if acks == ACKS_LEADER else _acknowledge(acks, answer, [partition], ctx)


def _produce_all(
    request: Request, message: ProduceRequest, ctx: Context, touched: list[Partition]
) -> ProduceResponse:
    topics = ctx.broker.topics
    version = request.route.version
    by_id = version >= TOPIC_IDS_SINCE
    answered = []
    for data in message.topic_data:
        topic = topics.by_id.get(data.topic_id) if by_id else topics.by_name.get(data.name)
        entries = []
        for sent in data.partition_data:
            index = sent.index
            try:
                if topic is None or not 0 <= index < len(topic.partitions):
                    raise KafkaError(code=_unknown(topic, version))
                partition = topic.partitions[index]
                start_offset = partition.log.start_offset
                entry = Entry(
                    index=index, error_code=0, base_offset=-1, log_start_offset=start_offset
                )
                _append(partition, sent.records, entry, version, ctx)
                touched.append(partition)
            except KafkaError as error:
                entry = _refused_entry(request, ctx, data.name, index, error)
            entries.append(entry)
        answered.append(
            Answered(topic_id=data.topic_id, name=data.name, partition_responses=entries)
        )
    return ProduceResponse(responses=answered)


def _unknown(topic: Topic | None, version: int) -> ErrorCode:
    if topic is None and version >= TOPIC_IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _append(
    partition: Partition,
    view: memoryview | None,
    entry: ProduceResponse.Topic.Partition | SingleAnswer,
    version: int,
    ctx: Context,
) -> None:
    """Queue one batch and fill in its entry of the answer. Raises KafkaError."""
    topic = partition.topic
    rules = topic.rules if version >= ZSTD_SINCE else topic.rules_without_zstd
    if view is None:
        raise InvalidRecord("no records were sent for the partition")
    if topic.internal:
        raise KafkaError(
            f"clients may not write to the internal topic '{topic.name}'",
            code=ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
    now_ms = ctx.now_ms
    header = check_produced(view, rules, now_ms)
    if header[ATTRIBUTES] & TRANSACTIONAL_BIT:
        raise KafkaError(
            "a transactional batch outside of a transaction", code=ErrorCode.INVALID_TXN_STATE
        )
    log = partition.log
    if header[PRODUCER_ID] >= 0:
        duplicate = log.producers.check(header)
        if duplicate is not None:
            entry.base_offset = duplicate.base_offset
            if rules.log_append_time:
                entry.log_append_time_ms = duplicate.timestamp
            ctx.broker.appends.add(partition, entry, 0)
            return
    if rules.log_append_time:
        entry.log_append_time_ms = now_ms
        header = Batch(view).stamp_log_append_time(now_ms)
    entry.base_offset = log.append(view, header, now_ms=now_ms)
    ctx.broker.appends.add(partition, entry, header[LENGTH] + 12)


def _refused_entry(
    request: Request, ctx: Context, topic: str | bytes, index: int, error: KafkaError
) -> ProduceResponse.Topic.Partition:
    ctx.refused_batch(str(topic), index, error)
    entry = Entry(
        index=index, error_code=code_for(PRODUCE, request.version, error.code), base_offset=-1
    )
    if isinstance(error, InvalidRecord):
        entry.error_message = str(error)
        entry.record_errors = [
            Entry.RecordError(batch_index=at, batch_index_error_message=text)
            for at, text in error.record_errors
        ]
    return entry


def entries_of(
    response: ProduceResponse | SingleAnswer,
) -> Iterator[tuple[str | bytes, ProduceResponse.Topic.Partition | SingleAnswer]]:
    """The entries of an answer, each with its topic: the name, or from v13 the id; a SingleAnswer
    has the name in UTF-8."""
    if isinstance(response, SingleAnswer):
        yield response.topic, response
        return
    for topic in response.responses:
        for entry in topic.partition_responses:
            yield topic.name or topic.topic_id, entry


def translate_failures(handled: list[tuple[Request, Any]]) -> None:
    """After a failed write: give old producers a code that they know."""
    for request, result in handled:
        if request.route.api.key != PRODUCE:
            continue
        response = result.response if isinstance(result, Durable | Silent) else result
        for _, entry in entries_of(response):
            entry.error_code = code_for(PRODUCE, request.version, entry.error_code)
