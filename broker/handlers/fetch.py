"""Fetch: read whole batches as they are stored, and wait when there is too little.

Versions 4 to 18. Partitions are read in the order asked for until the sizes are used up; the first
that has data gives at least one batch. Data is not read here: an answer holds slices of segment
files, which the connection sends.

Unlike Kafka, batches are never cut off at the end of an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.fetch_sessions import Plan, Wanted
from broker.waiting import FetchWait
from protocol.eras import FETCH, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from broker.context import Context
    from broker.partition import Partition
    from protocol.connection import Request

TOPIC_IDS_SINCE = 13
READ_COMMITTED = 1
ORDINARY_CONSUMER = -1
DEBUGGING_CONSUMER = -2

Entry = FetchResponse.Topic.Partition


def fetch(request: Request, ctx: Context) -> FetchResponse | FetchWait:
    message: FetchRequest = request.message
    replica_id = (
        message.replica_id
        if message.replica_id != ORDINARY_CONSUMER
        else message.replica_state.replica_id
    )
    if replica_id not in (ORDINARY_CONSUMER, DEBUGGING_CONSUMER):
        raise KafkaError(
            f"replica {replica_id} may not follow this broker",
            code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    by_id = request.version >= TOPIC_IDS_SINCE
    try:
        plan = ctx.broker.fetch_sessions.plan(
            session_id=message.session_id,
            epoch=message.session_epoch,
            wanted=_wanted(message, by_id),
            forgotten=[
                (topic.topic_id if by_id else topic.topic, index)
                for topic in message.forgotten_topics_data
                for index in topic.partitions
            ],
            uses_topic_ids=by_id,
            now_ms=ctx.now_ms,
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    reading = _Reading(request, ctx, plan)
    reading.run()
    if (
        reading.found_bytes >= message.min_bytes
        or reading.has_error
        or message.max_wait_ms <= 0
        or not plan.wanted
        or reading.is_cut_short()
    ):
        return reading.response()
    reading.forget()
    return FetchWait(
        ctx.broker.loop,
        partitions=reading.watched,
        missing_bytes=message.min_bytes - reading.found_bytes,
        max_wait_ms=message.max_wait_ms,
        read=lambda: _read_now(request, ctx, plan),
    )


def _read_now(request: Request, ctx: Context, plan: Plan) -> FetchResponse:
    reading = _Reading(request, ctx, plan)
    reading.run()
    return reading.response()


def _wanted(message: FetchRequest, by_id: bool) -> list[Wanted]:
    return [
        Wanted(
            topic.topic_id if by_id else topic.topic,
            partition.partition,
            fetch_offset=partition.fetch_offset,
            max_bytes=partition.partition_max_bytes,
            current_leader_epoch=partition.current_leader_epoch,
            last_fetched_epoch=partition.last_fetched_epoch,
        )
        for topic in message.topics
        for partition in topic.partitions
    ]


class _Reading:
    """One pass over the partitions of a fetch."""

    def __init__(self, request: Request, ctx: Context, plan: Plan) -> None:
        message: FetchRequest = request.message
        self._version = request.version
        self._by_id = request.version >= TOPIC_IDS_SINCE
        self._committed_only = message.isolation_level == READ_COMMITTED
        self._ctx = ctx
        self._plan = plan
        self._left = min(message.max_bytes, ctx.broker.settings.fetch_max_bytes)
        self._entries: list[tuple[Wanted, Entry]] = []
        self.found_bytes = 0
        self.has_error = False
        self.watched: list[Partition] = []

    def run(self) -> None:
        for wanted in self._plan.wanted:
            self._entries.append((wanted, self._read(wanted)))

    def is_cut_short(self) -> bool:
        """Whether there is more than the limits, or the end of a segment, let through; to wait
        would bring nothing then. Asked only when too little was found, and without errors."""
        for partition, (wanted, entry) in zip(self.watched, self._entries, strict=True):
            end = entry.last_stable_offset if self._committed_only else entry.high_watermark
            if wanted.fetch_offset >= end:
                continue
            found, active = entry.records, partition.log.active
            if not found or found.file is not active.file:
                return True
            if found.position + found.size < active.written_size:
                return True
        return False

    def forget(self) -> None:
        """Give back the file slices of an answer that will not be sent."""
        for _, entry in self._entries:
            if entry.records:
                entry.records.release()

    def response(self) -> FetchResponse:
        """The answer; with a session, what it tells is remembered."""
        incremental = self._plan.incremental
        topics: dict[str | bytes, FetchResponse.Topic] = {}
        for wanted, entry in self._entries:
            news = (
                entry.error_code != ErrorCode.NONE
                or bool(entry.records)
                or entry.high_watermark != wanted.told_high_watermark
                or entry.log_start_offset != wanted.told_log_start
            )
            if incremental and not news:
                continue
            if entry.error_code == ErrorCode.NONE:
                wanted.told_high_watermark = entry.high_watermark
                wanted.told_log_start = entry.log_start_offset
            topic = topics.get(wanted.topic)
            if topic is None:
                topic = topics[wanted.topic] = (
                    FetchResponse.Topic(topic_id=wanted.topic, partitions=[])
                    if isinstance(wanted.topic, bytes)
                    else FetchResponse.Topic(topic=wanted.topic, partitions=[])
                )
            topic.partitions.append(entry)
        return FetchResponse(session_id=self._plan.session_id, responses=list(topics.values()))

    def _read(self, wanted: Wanted) -> Entry:
        topics = self._ctx.broker.topics
        topic = (
            topics.by_id.get(wanted.topic)
            if isinstance(wanted.topic, bytes)
            else topics.by_name.get(wanted.topic)
        )
        if topic is None or not 0 <= wanted.index < len(topic.partitions):
            return self._error(
                wanted,
                ErrorCode.UNKNOWN_TOPIC_ID
                if topic is None and self._by_id
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        partition = topic.partitions[wanted.index]
        log = partition.log
        epoch = wanted.current_leader_epoch
        if epoch not in (-1, log.leader_epoch):
            return self._error(
                wanted,
                ErrorCode.FENCED_LEADER_EPOCH
                if epoch < log.leader_epoch
                else ErrorCode.UNKNOWN_LEADER_EPOCH,
            )
        high_watermark = partition.high_watermark
        stable = partition.last_stable_offset
        diverging = self._diverging(wanted, partition)
        found = None
        if diverging is None:
            try:
                found = log.read(
                    wanted.fetch_offset,
                    min(wanted.max_bytes, self._left),
                    end_offset=stable if self._committed_only else high_watermark,
                    at_least_one=self.found_bytes == 0,
                )
            except KafkaError as error:
                return self._error(wanted, error.code)
        entry = Entry(
            partition_index=wanted.index,
            error_code=ErrorCode.NONE,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=log.start_offset,
            aborted_transactions=[] if self._committed_only else None,
            records=b"" if found is None else found,
        )
        if diverging is not None:
            entry.diverging_epoch = Entry.EpochEndOffset(
                epoch=diverging[0], end_offset=diverging[1]
            )
            self.has_error = True
        if found is not None:
            self.found_bytes += found.size
            self._left = max(0, self._left - found.size)
        self.watched.append(partition)
        return entry

    def _diverging(self, wanted: Wanted, partition: Partition) -> tuple[int, int] | None:
        """Where the client's log leaves ours (Fetch v12+): the last epoch both know, its end."""
        if wanted.last_fetched_epoch < 0:
            return None
        epoch, end_offset = partition.log.end_offset_for(wanted.last_fetched_epoch)
        if epoch < 0:
            return None
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
            return epoch, end_offset
        return None

    def _error(self, wanted: Wanted, code: ErrorCode) -> Entry:
        self.has_error = True
        return Entry(
            partition_index=wanted.index,
            error_code=code_for(FETCH, self._version, code),
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
