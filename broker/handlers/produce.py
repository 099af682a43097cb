"""Produce: check each set of records, give it its offsets, queue it for its log.

Versions 0 to 13, which carry any record format up to v2 and exactly one batch of format 2 from v3
on. One partition's failure is told for it alone. A topic is never created here (Metadata does
that). Of transactional batches the coordinator is asked (`broker.producing.transactions`).

The commonest set, a batch that can be stored as it is, is checked (header facts, CRC-32C), patched
in the 12 bytes that lie outside the checksum, and written from the buffer that the kernel filled.
Every other set passes through `protocol.records.prepare`, here if that is quick, else on a worker
thread (`PrepareWait`). Answers are encoded after the write, see broker.producing.appends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.partitions.disk_state import DISK_FULL
from broker.pending import AskedFirst, Durable, Silent
from broker.producing.failures import refuse_set, refuse_unsynced
from broker.producing.preparing import Deferred, PrepareWait, append_prepared, is_new
from broker.producing.transactions import (
    single_transaction,
    transaction_of,
    transactional_producer,
)
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.produce import ProduceRequest, ProduceResponse, refused
from protocol.records.batch import Batch
from protocol.records.layout import ATTRIBUTES, LENGTH, PRODUCER_ID, TRANSACTIONAL_BIT
from protocol.records.prepare import Prepared, TooMuch, prepare
from protocol.records.validate import BATCHES_SINCE, ZSTD_SINCE, first_format, quick_header
from protocol.single_produce import SingleAnswer, SingleProduce
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.partitions.topic import Partition, Topic
    from broker.producing.transactions import ProduceTransaction
    from protocol.connection import Request

ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1
TOPIC_IDS_SINCE = 13

PREPARE_ON_LOOP_BYTES = 65_536
"""A set larger than this, or with a payload to be opened that expands beyond it, is prepared on a
thread: about a millisecond of work."""

NO_RECORDS = memoryview(b"")
"""An empty set; null stands for it."""

PartitionResult = ProduceResponse.Topic.Partition
Answered = ProduceResponse.Topic


def produce(request: Request, ctx: Context) -> Any:
    message: ProduceRequest | SingleProduce = request.message
    if message.__class__ is SingleProduce:
        return _produce_single(request, message, ctx)
    assert isinstance(message, ProduceRequest)
    if not ACKS_ALL <= message.acks <= ACKS_LEADER:
        response = refused(message, ErrorCode.INVALID_REQUIRED_ACKS)
        return _acknowledge(message.acks, response, [], ctx)
    transaction = transaction_of(
        message,
        request.route.version,
        ctx.transactions,
        verifies=ctx.settings.current.transaction_partition_verification_enable,
    )
    if transaction is not None:
        _require_transactional_id(message.transactional_id, ctx)
    return _produce_all(request, message, ctx, transaction)


def _require_transactional_id(transactional_id: str | None, ctx: Context) -> None:
    if transactional_id is not None:
        ctx.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _require_write(name: str, ctx: Context) -> None:
    ctx.require(Operation.WRITE, ResourceType.TOPIC, name)


def _acknowledge(
    acks: int, response: ProduceResponse | SingleAnswer, touched: list[Partition], ctx: Context
) -> ProduceResponse | SingleAnswer | Durable | Silent:
    flushing = ctx.flushing
    flushed = flushing.counts_records and flushing.is_due(touched)
    if acks == ACKS_NONE:
        if flushed:
            flushing.flush(touched)
        return Silent(response)
    if flushed or (acks == ACKS_ALL and ctx.group_commit.covers_acks):
        return Durable(response, touched, refuse_unsynced)
    return response


def _produce_single(request: Request, message: SingleProduce, ctx: Context) -> Any:
    """The commonest shape; whatever is wrong with it is told by the general answer."""
    topics = ctx.topics
    named = message.topic
    version = request.route.version
    topic = topics.by_id.get(named) if version >= TOPIC_IDS_SINCE else topics.by_utf8.get(named)
    index = message.index
    acks = message.acks
    transaction = None
    if message.transactional_id is not None:
        transaction = single_transaction(
            message,
            version,
            ctx.transactions,
            verifies=ctx.settings.current.transaction_partition_verification_enable,
        )
        if transaction is not None:
            _require_transactional_id(message.transactional_id, ctx)
            if ctx.neighbours is not None:
                _ask_first(transaction, message, topic, ctx)
            if acks == ACKS_LEADER:
                acks = ACKS_ALL
    try:
        if not ACKS_ALL <= acks <= ACKS_LEADER:
            raise KafkaError(code=ErrorCode.INVALID_REQUIRED_ACKS)
        if ctx.authorizer is not None and (topic is not None or version < TOPIC_IDS_SINCE):
            _require_write(_name_of(topic, named), ctx)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise KafkaError(code=_unknown(topic, version))
        if message.acks == ACKS_ALL and topic.settings.min_insync_replicas > 1:
            _require_replicas(topic, ctx)
        partition = topic.partitions[index]
        answer = SingleAnswer(named, index, -1, -1, partition.log.start_offset)
        _append(partition, message.records, answer, version, ctx, transaction)
    except TooMuch:
        assert topic is not None
        entry = PartitionResult(
            index=index,
            error_code=0,
            base_offset=-1,
            log_start_offset=topic.partitions[index].log.start_offset,
        )
        deferred = [Deferred(topic.partitions[index], message.records, entry)]
        response = ProduceResponse(responses=[_answered_single(version, named, entry)])
        return _wait(request, ctx, acks, response, [], deferred, transaction)
    except KafkaError as error:
        entry = _refused_entry(request, ctx, _name_of(topic, named), index, error)
        response = ProduceResponse(responses=[_answered_single(version, named, entry)])
        return _acknowledge(acks, response, [], ctx)
    if acks == ACKS_LEADER and not ctx.flushing.counts_records:
        return answer
    return _acknowledge(acks, answer, [partition], ctx)


def _ask_first(
    transaction: ProduceTransaction, message: SingleProduce, topic: Topic | None, ctx: Context
) -> None:
    """See that the batch can be admitted, where it may be written. Raises AskedFirst."""
    index, producer = message.index, transactional_producer(message.records)
    if topic is None or topic.internal or not 0 <= index < len(topic.partitions):
        return
    if topic.partitions[index].led_elsewhere or producer is None:
        return
    if not ctx.allows(Operation.WRITE, ResourceType.TOPIC, topic.name, silent=True):
        return
    try:
        transaction.ask_first([(topic.name, index)], producer)
    except AskedFirst:
        message.records = _kept(message.records)
        raise


def _answered_single(version: int, named: bytes, entry: PartitionResult) -> Answered:
    if version >= TOPIC_IDS_SINCE:
        return Answered(topic_id=named, partition_responses=[entry])
    name = named.decode("utf-8", "surrogateescape")
    return Answered(name=name, partition_responses=[entry])


def _name_of(topic: Topic | None, named: bytes | str) -> str:
    """The name of a topic that may not exist."""
    if topic is not None:
        return topic.name
    return named if isinstance(named, str) else named.decode("utf-8", "surrogateescape")


def _produce_all(
    request: Request, message: ProduceRequest, ctx: Context, transaction: ProduceTransaction | None
) -> Any:
    topics = ctx.topics
    version = request.route.version
    by_id = version >= TOPIC_IDS_SINCE
    if transaction is not None:
        try:
            _add_all(transaction, message, ctx, by_id=by_id)
        except AskedFirst:
            for data in message.topic_data:
                for sent in data.partition_data:
                    sent.records = _kept(sent.records)
            raise
    acks = message.acks
    answered = []
    touched: list[Partition] = []
    deferred: list[Deferred] = []
    for data in message.topic_data:
        topic = topics.by_id.get(data.topic_id) if by_id else topics.by_name.get(data.name)
        entries = []
        for sent in data.partition_data:
            index = sent.index
            try:
                if ctx.authorizer is not None and (topic is not None or not by_id):
                    _require_write(_name_of(topic, data.name), ctx)
                if topic is None or not 0 <= index < len(topic.partitions):
                    raise KafkaError(code=_unknown(topic, version))
                if acks == ACKS_ALL and topic.settings.min_insync_replicas > 1:
                    _require_replicas(topic, ctx)
                partition = topic.partitions[index]
                start_offset = partition.log.start_offset
                entry = PartitionResult(
                    index=index, error_code=0, base_offset=-1, log_start_offset=start_offset
                )
                if deferred and any(one.partition is partition for one in deferred):
                    raise TooMuch  # a partition named twice gets its sets in their order
                _append(partition, sent.records, entry, version, ctx, transaction)
                touched.append(partition)
            except TooMuch:
                assert sent.records is not None
                deferred.append(Deferred(partition, sent.records, entry))
            except KafkaError as error:
                entry = _refused_entry(request, ctx, _name_of(topic, data.name), index, error)
            entries.append(entry)
        answered.append(
            Answered(topic_id=data.topic_id, name=data.name, partition_responses=entries)
        )
    response = ProduceResponse(responses=answered)
    if transaction is not None and acks == ACKS_LEADER:
        acks = ACKS_ALL  # a commit syncs the coordinator's log alone, and must be worth it
    if deferred:
        return _wait(request, ctx, acks, response, touched, deferred, transaction)
    return _acknowledge(acks, response, touched, ctx)


def _add_all(
    transaction: ProduceTransaction, message: ProduceRequest, ctx: Context, *, by_id: bool
) -> None:
    """Have all partitions there are for which the request has transactional batches join at
    once."""
    topics = ctx.topics
    places: dict[tuple[str, int], None] = {}
    producer = None
    for data in message.topic_data:
        topic = topics.by_id.get(data.topic_id) if by_id else topics.by_name.get(data.name)
        if topic is None or topic.internal:
            continue
        if not ctx.allows(Operation.WRITE, ResourceType.TOPIC, topic.name):
            continue
        for sent in data.partition_data:
            found = transactional_producer(sent.records)
            count = len(topic.partitions)
            if found is None or not 0 <= sent.index < count:
                continue
            if not topic.partitions[sent.index].led_elsewhere:
                places[topic.name, sent.index] = None
                producer = found  # the same of all
    if producer is not None:
        transaction.ask_first(places, producer)
        transaction.add_all(list(places), producer)


def _kept(records: memoryview | None) -> memoryview:
    """Records of a request that waits: the connection goes on reading into the buffer."""
    return NO_RECORDS if records is None else memoryview(bytearray(records))


def _unknown(topic: Topic | None, version: int) -> ErrorCode:
    if topic is None and version >= TOPIC_IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _require_replicas(topic: Topic, ctx: Context) -> None:
    """Raise KafkaError: acks=all is to mean more replicas than the one there is."""
    if not ctx.settings.current.replication_factor_clamp:
        raise KafkaError(
            f"min.insync.replicas is {topic.settings.min_insync_replicas}, and there is 1 replica",
            code=ErrorCode.NOT_ENOUGH_REPLICAS,
        )


def _append(
    partition: Partition,
    view: memoryview | None,
    entry: PartitionResult | SingleAnswer,
    version: int,
    ctx: Context,
    transaction: ProduceTransaction | None,
) -> None:
    """Queue one set and fill in its entry of the answer. Raises KafkaError, TooMuch."""
    topic = partition.topic
    if topic.internal:
        raise KafkaError(
            f"clients may not write to the internal topic '{topic.name}'",
            code=ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
    rules = topic.rules if version >= ZSTD_SINCE else topic.rules_without_zstd
    if view is None:
        view = NO_RECORDS
    header = quick_header(view, rules) if version >= BATCHES_SINCE else None
    if header is None:
        sent = first_format(view)
        if sent is not None:
            ctx.note_written(*sent)
        prepared = prepare(
            view,
            rules,
            version=version,
            now_ms=ctx.now_ms,
            next_offset=partition.log.next_offset,
            expand_max=PREPARE_ON_LOOP_BYTES,
        )
        append_prepared(partition, prepared, entry, ctx.now_ms, ctx.appends, ctx.disk, transaction)
        if prepared is not None and prepared.rebuilt:
            ctx.note_rebuilt(1)
        return
    if header[ATTRIBUTES] not in ctx.written:
        ctx.note_written(2, header[ATTRIBUTES])
    now_ms = ctx.now_ms
    if (header[PRODUCER_ID] >= 0 or header[ATTRIBUTES] & TRANSACTIONAL_BIT) and not is_new(
        partition, header, entry, ctx.appends, transaction
    ):
        return
    if ctx.disk.full:
        raise StorageError(DISK_FULL)
    if rules.log_append_time:
        entry.log_append_time_ms = now_ms
        header = Batch(view).stamp_log_append_time(now_ms)
    entry.base_offset = partition.log.append(view, header, now_ms=now_ms)
    ctx.appends.add(partition, entry, header[LENGTH] + 12)


def _wait(
    request: Request,
    ctx: Context,
    acks: int,
    response: ProduceResponse,
    touched: list[Partition],
    deferred: list[Deferred],
    transaction: ProduceTransaction | None,
) -> PrepareWait:
    """The pending result of a request of which some sets are prepared on a thread."""

    def refuse(one: Deferred, error: KafkaError) -> None:
        _refuse(one.entry, request, ctx, one.partition.topic.name, error)

    def finish(appended: list[Partition]) -> Any:
        made = (one.prepared for one in deferred)
        ctx.note_rebuilt(sum(isinstance(one, Prepared) and one.rebuilt for one in made))
        return _acknowledge(acks, response, touched + appended, ctx)

    return PrepareWait(
        ctx.preparation,
        response,
        deferred,
        version=request.route.version,
        now_ms=ctx.now_ms,
        transaction=transaction,
        refuse=refuse,
        finished=finish,
    )


def _refused_entry(
    request: Request, ctx: Context, topic: str, index: int, error: KafkaError
) -> PartitionResult:
    entry = PartitionResult(index=index, error_code=error.code, base_offset=-1)
    _refuse(entry, request, ctx, topic, error)
    return entry


def _refuse(
    entry: PartitionResult, request: Request, ctx: Context, topic: str, error: KafkaError
) -> None:
    """Make this entry tell one partition's error, which is also said in the log."""
    ctx.disk.noticed(error)
    ctx.appends.note_refusal(error.code)
    if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER:  # the client looks for the leader
        ctx.refused_batch(topic, entry.index, error, client_id=request.client_id)
    refuse_set(entry, request.version, error)
