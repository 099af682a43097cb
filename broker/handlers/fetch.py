"""Fetch: read whole batches as they are stored, and wait when there is too little.

Versions 0 to 18. Partitions are read in the order asked for until the sizes are used up; the first
that has data gives at least one batch. What the client knows is not read here: an answer holds
slices of segment files, which the connection sends. From v10 on that is everything; for older
clients `selection` looks at the headers first, and what they don't know is converted. So are
entries of format 0 and 1 for those who may misread them from v12 on (`protocol.quirks`).

Versions 0 to 2 have a size for each partition and none for the whole, so no order that a client
could mean: we begin with another partition each time, that all get their share of what is
converted for one answer.

A reader of committed records (isolation level 1, from v4 on) gets nothing at or above the last
stable offset, and with the rest a list of the aborted transactions in it: those batches are there,
and it is the client that drops them.

Unlike Kafka, batches are never cut off at the end of an answer, except where the first of a
partition is too large for a client of v0 to v2, which learns from it how much it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from broker import logs
from broker.fetching.conversion import INLINE_US
from broker.fetching.selection import FORMAT_2_ONLY, READERS, SMALL_SLICE_BYTES, Limits, Selection
from broker.fetching.sessions import NO_SESSION_EPOCH, FetchPartition, Plan, wanted_by
from broker.fetching.single import find_records
from broker.fetching.waiting import FetchProgress, FetchWait
from protocol.eras import FETCH, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.primitives import Written
from protocol.quirks import LAST_FETCH_READ_RIGHT
from protocol.records.convert import Form
from protocol.records.walk import last_offset, walk
from protocol.single_fetch import SingleFetch, SingleRecords
from storage.errors import RecordsMissing

if TYPE_CHECKING:
    from broker.fetching.conversion import ConversionUnit, Outcome
    from broker.handlers.context import Context
    from broker.partitions.topic import Partition
    from protocol.connection import Request
    from storage.log import Log
    from storage.slices import FileSlice

TOPIC_IDS_SINCE = 13
LISTED_SINCE = 12
"""Since then aborted transactions have the form that the log keeps them in."""
READ_COMMITTED = 1
ORDINARY_CONSUMER = -1
DEBUGGING_CONSUMER = -2

CONVERTED_MAX_BYTES = 1_048_576
"""Converted entries in one answer: they are in memory until they are sent. A first entry of a
partition may exceed it; the partitions behind come in the next answer. It is what most consumers
ask of one partition at a time."""
SHARE_MIN_BYTES = 65_536
"""The least that a partition gets of it while there is any left."""

NO_SESSION = 0

PartitionResult = FetchResponse.Topic.Partition
Aborted = PartitionResult.AbortedTransaction


def fetch(request: Request, ctx: Context) -> FetchResponse | SingleRecords | FetchWait:
    if (
        request.message.__class__ is SingleFetch
        and not ctx.misreads_old_entries
        and not ctx.quotas.active
    ):
        most = ctx.settings.current.fetch_max_bytes
        answer = find_records(
            request.message, request.version, ctx.topics, max_bytes=most, may_read=ctx.may_read
        )
        if answer is not None:
            if ctx.timed or not ctx.read:
                ctx.note_read(answer.records)
            return answer
    message: FetchRequest = request.general_message()
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
        plan = ctx.fetch_sessions.plan(
            session_id=message.session_id,
            epoch=message.session_epoch,
            wanted=wanted_by(message, by_id=by_id),
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
    progress = FetchProgress()
    reading = _read(request, ctx, plan, progress)
    if (
        not reading.missing
        and not reading.unfinished
        and (message.max_wait_ms <= 0 or reading.is_enough())
    ):
        return reading.response()
    return FetchWait(
        ctx.loop,
        ctx.conversions.begin,
        progress,
        lambda: _read(request, ctx, plan, progress),
        reading,
        max_wait_ms=message.max_wait_ms,
    )


def _read(request: Request, ctx: Context, plan: Plan, progress: FetchProgress) -> _Reading:
    reading = _Reading(request, ctx, plan, progress)
    reading.run()
    return reading


class _Reading:
    """One pass over the partitions of a fetch."""

    def __init__(self, request: Request, ctx: Context, plan: Plan, progress: FetchProgress) -> None:
        message: FetchRequest = request.message
        self._version = request.version
        self._correlation_id = request.correlation_id
        self._by_id = request.version >= TOPIC_IDS_SINCE
        self._committed_only = message.isolation_level == READ_COMMITTED
        self._min_bytes = message.min_bytes
        self._ctx = ctx
        self._plan = plan
        self._progress = progress
        self._reader, self._refuses_zstd = READERS.get(request.version), False
        if self._reader is not None and (release := ctx.routes.of(request.client_id).release):
            self._reader, self._refuses_zstd = self._reader.in_release(release)
        if (
            ctx.misreads_old_entries
            and request.version > LAST_FETCH_READ_RIGHT
            # No librdkafka has sessions; a client that has them is another one.
            and message.session_epoch == NO_SESSION_EPOCH
        ):
            self._reader = FORMAT_2_ONLY
        self._left = min(message.max_bytes, ctx.settings.current.fetch_max_bytes)
        self._client = None
        if ctx.quotas.active:
            self._client = client = ctx.client(request)
            self._left = min(self._left, ctx.quotas.fetch_max_bytes(client))
            self._min_bytes = min(self._min_bytes, self._left)
        self._room = CONVERTED_MAX_BYTES
        self._has_slice = False
        self._lagging = 0
        self._inline_us: float = INLINE_US
        self._entries: list[tuple[FetchPartition, PartitionResult]] = []
        self.found_bytes = 0
        self.has_error = False
        self.watched: list[Partition] = []
        self.missing: list[tuple[list[ConversionUnit], int]] = []
        self.unfinished = False
        self._has_more = False
        self._held_back = False

    def run(self) -> None:
        wanted = self._plan.wanted
        reader = self._reader
        if reader is not None:
            self._lagging = sum(map(self._lags, wanted))
            if reader.cuts and len(wanted) > 1:
                first = self._correlation_id % len(wanted)
                wanted = wanted[first:] + wanted[:first]
        for one in wanted:
            self._entries.append((one, self._read(one)))
        if self.unfinished and self.found_bytes:
            self.unfinished, self._has_more = False, True

    def is_enough(self) -> bool:
        """Whether the answer need not wait for more bytes."""
        return (
            self.found_bytes >= self._min_bytes
            or self.has_error
            or self._has_more
            or not self._plan.wanted
            or (self._reader is None and self._is_cut_short())
        )

    @property
    def missing_bytes(self) -> int:
        """Bytes that an append must bring before another pass is worth while. An older reader may
        get more or fewer bytes than are stored, and the end of a transaction shows a reader of
        committed records all of it: they look after each."""
        if self._reader is not None or self._held_back:
            return 1
        return self._min_bytes - self.found_bytes

    def _is_cut_short(self) -> bool:
        """Whether there is more than the limits, or the end of a segment, let through; to wait
        would bring nothing then. Asked only when too little was found, and without errors."""
        for partition, (wanted, entry) in zip(self.watched, self._entries, strict=True):
            end = entry.last_stable_offset if self._committed_only else entry.high_watermark
            if wanted.fetch_offset >= end:
                continue
            found, active = entry.records, partition.log.active
            if not found or isinstance(found, bytes) or not active.holds(found.file):
                return True
            if found.position + found.size < active.written_size:
                return True
        return False

    def forget(self) -> None:
        """Give back the file slices of an answer that will not be sent."""
        for _, entry in self._entries:
            if entry.records and entry.records.__class__ is not bytes:
                entry.records.release()

    def response(self) -> FetchResponse:
        """The answer; with a session, what it tells is remembered. An empty one if a quota does not
        let through what was found: the client asks for it once more."""
        if self._client is not None:
            throttle_ms = self._ctx.quotas.fetched(self._client, self.found_bytes)
            if throttle_ms:
                return self._held_up(throttle_ms)
        told = (entry for _, entry in self._entries if entry.error_code == ErrorCode.NONE)
        is_sample = self._ctx.timed or not self._ctx.read
        for partition, entry in zip(self.watched, told, strict=True):
            partition.bytes_out += len(entry.records)
            if is_sample and entry.records:
                self._ctx.note_read(entry.records)
                is_sample = False
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

    def _held_up(self, throttle_ms: int) -> FetchResponse:
        """The answer without records to a client that has to wait. No session begins with it:
        clients would not know its partitions."""
        self.forget()
        plan = self._plan
        if not plan.incremental:
            self._ctx.fetch_sessions.end(plan.session_id)
        return FetchResponse(
            session_id=plan.session_id if plan.incremental else NO_SESSION,
            responses=[],
            throttle_time_ms=throttle_ms,
        )

    def _partition(self, wanted: FetchPartition) -> Partition | None:
        topics = self._ctx.topics
        topic = (
            topics.by_id.get(wanted.topic)
            if isinstance(wanted.topic, bytes)
            else topics.by_name.get(wanted.topic)
        )
        if topic is None or not 0 <= wanted.index < len(topic.partitions):
            return None
        return topic.partitions[wanted.index]

    def _may_read(self, wanted: FetchPartition) -> bool:
        """Whether this client may; what has an unknown id is not there for anybody."""
        name = wanted.topic
        if isinstance(name, bytes):
            topic = self._ctx.topics.by_id.get(name)
            if topic is None:
                return True
            name = topic.name
        return self._ctx.may_read(name)

    def _read(self, wanted: FetchPartition) -> PartitionResult:
        partition = self._partition(wanted)
        if self._ctx.authorizer is not None and not self._may_read(wanted):
            return self._error(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if partition is None:
            return self._error(
                wanted,
                ErrorCode.UNKNOWN_TOPIC_ID
                if self._by_id and wanted.topic not in self._ctx.topics.by_id
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
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
        diverging = log.divergence(wanted.last_fetched_epoch, wanted.fetch_offset)
        found: FileSlice | bytes | None = None
        aborted: list[Aborted] | None = None
        if diverging is None:
            self._held_back |= self._committed_only and stable < high_watermark
            end = stable if self._committed_only else high_watermark
            try:
                found = self._held_in(self._find_records(wanted, partition, end))
                aborted = self._aborted(log, wanted.fetch_offset, found)
            except KafkaError as error:
                if isinstance(error, RecordsMissing):
                    logs.error_once_a_minute("records are missing", str(error), log.name)
                elif error.code == ErrorCode.CORRUPT_MESSAGE:
                    self._tell_damaged(partition, wanted, error)
                return self._error(wanted, error.code)
            except OSError as error:
                refused = self._ctx.disk.read_failed(log, error)
                return self._error(wanted, refused.code)
        entry = PartitionResult(
            partition_index=wanted.index,
            error_code=ErrorCode.NONE,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=log.start_offset,
            aborted_transactions=aborted,
            records=b"" if found is None else found,
        )
        if diverging is not None:
            entry.diverging_epoch = PartitionResult.EpochEndOffset(
                epoch=diverging[0], end_offset=diverging[1]
            )
            self.has_error = True
        if found is not None:
            size = len(found)
            self.found_bytes += size
            self._left = max(0, self._left - size)
        self.watched.append(partition)
        return entry

    def _tell_damaged(
        self, partition: Partition, wanted: FetchPartition, error: KafkaError
    ) -> None:
        reason = f"{error} (asked for offset {wanted.fetch_offset})"
        logs.error_once_a_minute("a reader met damage", reason, partition.log.name)

    def _find_records(
        self, wanted: FetchPartition, partition: Partition, end: int
    ) -> FileSlice | bytes | None:
        """The records of this partition for the answer. Raises KafkaError, OSError."""
        if self._refuses_zstd and _is_zstd(partition):
            raise KafkaError("zstd is refused", code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if self._reader is not None:
            return self._select(wanted, partition, end)
        max_bytes = min(wanted.max_bytes, self._left)
        if self._holds_enough_files:
            max_bytes = min(max_bytes, SMALL_SLICE_BYTES, self._room)
        return partition.log.read(
            wanted.fetch_offset,
            max_bytes,
            end_offset=end,
            at_least_one=self.found_bytes == 0,
        )

    @property
    def _holds_enough_files(self) -> bool:
        """Whether the answer holds a file open where they are scarce. Then it takes small slices of
        others, and holds these in memory."""
        return self._has_slice and self._ctx.directory.files_are_scarce

    def _held_in(self, found: FileSlice | bytes | None) -> FileSlice | bytes | None:
        """In what the answer holds these records. Raises OSError."""
        if found is None or isinstance(found, bytes):
            return found
        if found.size <= SMALL_SLICE_BYTES and self._holds_enough_files:
            self._room -= found.size
            return found.read()
        self._has_slice = True
        return found

    def _aborted(
        self, log: Log, offset: int, found: FileSlice | bytes | None
    ) -> list[Aborted] | None:
        """The transactions of which a reader of committed records drops what it gets; null for
        others, who must not know. Raises OSError."""
        if not self._committed_only:
            return None
        if not found:
            return []
        if isinstance(found, bytes):
            *_, (position, _, magic) = walk(found)
            aborted = log.aborted_transactions(offset, last_offset(found, position, magic) + 1)
        elif self._version >= LISTED_SINCE:
            listed = Written(*log.aborted_listed_in(offset, found))
            return cast("list[Aborted]", listed)  # which encoders take in place of a list
        else:
            aborted = log.aborted_in(offset, found)
        return [
            Aborted(producer_id=one.producer_id, first_offset=one.first_offset) for one in aborted
        ]

    # Clients that do not know all that may be stored.

    def _lags(self, wanted: FetchPartition) -> bool:
        partition = self._partition(wanted)
        return partition is not None and wanted.fetch_offset < partition.high_watermark

    def _select(
        self, wanted: FetchPartition, partition: Partition, end: int
    ) -> FileSlice | bytes | None:
        """The records of this partition for an older reader. Raises KafkaError."""
        reader, log = self._reader, partition.log
        assert reader is not None
        hard = wanted.max_bytes
        if not reader.cuts:
            hard = min(hard, self._left)
        elif self._left == 0:
            # A cut entry would tell the client that its own limit is too small.
            self._has_more = True
            return None
        at_least_one = reader.cuts or self.found_bytes == 0
        offset = wanted.fetch_offset
        if offset >= log.start_offset:
            offset = max(offset, self._progress.passed.get(id(wanted), offset))
        if reader.form is Form.GZIPPED:
            stored = log.read(offset, hard, end_offset=end, at_least_one=at_least_one)
            if stored is not None and log.cut_before_zstd(stored):
                self._has_more |= stored.end < log.active.written_size or (
                    not log.active.holds(stored.file)
                )
                return stored
        share = max(SHARE_MIN_BYTES, self._room // max(1, self._lagging))
        self._lagging -= 1
        limits = Limits(hard, min(share, self._room), at_least_one=at_least_one)
        selected = Selection(
            log,
            offset,
            reader,
            limits,
            end_offset=end,
            find=self._find
            if partition.topic.settings.message_downconversion_enable or reader is FORMAT_2_ONLY
            else None,
        )
        if selected.error is not None:
            self._ctx.not_converted(partition, offset, selected.error)
            raise selected.error
        records = selected.records
        if selected.missing:
            self.missing.append((selected.missing, limits.enough))
        if records.__class__ is bytes:
            self._room -= len(records)
            self._ctx.note_converted(len(records), zstd_topic=_is_zstd(partition))
        self._room -= sum(unit.stored.size for unit in selected.missing)
        self._progress.passed[id(wanted)] = selected.passed
        self._has_more |= selected.more and not selected.unfinished
        self.unfinished |= selected.unfinished
        return records

    def _find(self, unit: ConversionUnit, may_convert: bool) -> Outcome | None:
        found = self._progress.converted.get(unit.key) or self._ctx.conversions.find(unit)
        if found is None and may_convert and (cost_us := unit.cost_us()) <= self._inline_us:
            self._inline_us -= cost_us
            found = self._ctx.conversions.convert_now(unit)
        return found

    def _error(self, wanted: FetchPartition, code: ErrorCode) -> PartitionResult:
        self.has_error = True
        return PartitionResult(
            partition_index=wanted.index,
            error_code=code_for(FETCH, self._version, code),
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )


def _is_zstd(partition: Partition) -> bool:
    return partition.topic.settings.compression_type == "zstd"
