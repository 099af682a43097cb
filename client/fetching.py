"""Fetch and ListOffsets in all their versions, asked of the leader of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from client.errors import CorruptData, Failure, NoSuchTopic, Refused, Unreachable
from client.routing import UNKNOWN_TOPIC_S, Again
from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.partitions import TopicPartition
from protocol.partitions import list_offsets as list_offsets_request
from protocol.records.entry_rows import ROW, entry_rows
from protocol.records.layout import ENTRY_OVERHEAD, INT32, LENGTH_POSITION, MIN_ENTRY_LENGTH
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from client.connection import Connection

EARLIEST, LATEST, EARLIEST_LOCAL = -2, -1, -4
"""Times that ListOffsets takes for the start and the end of a log, and for the start of what its
leader does not keep in remote storage only (KIP-405)."""
LARGEST_ENTRY_BYTES = 256 << 20
"""An entry that says it is larger than this is taken for damaged."""

# Versions of Fetch: the first with a limit for the whole answer, which gives an entry whole
# whatever its size is (KIP-74); the first with isolation levels; the last with topics by name.
WHOLE_ENTRIES, ISOLATION, BY_NAME = 3, 4, 12
# Of ListOffsets: the last that knows of segments only, and the first with EARLIEST_LOCAL.
OF_SEGMENTS, KNOWS_LOCAL = 0, 8
GONE = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip


class Fetched(NamedTuple):
    """Whole entries, perhaps none; the first may begin below the offset that was asked for.

    `log_start_offset` is -1 where the version does not tell. `last_stable_offset` is the high
    watermark where there are no transactions yet, and -1 from Kafka 0.11 to 1.1 unless only
    committed records were asked for. `aborted` has (producer id, first offset) of aborted
    transactions, if only committed records were asked for.
    """

    entries: memoryview
    high_watermark: int
    log_start_offset: int
    last_stable_offset: int
    aborted: tuple[tuple[int, int], ...]


class OffsetOutOfRange(Exception):
    """The log does not have this offset (any more, or yet)."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(partition, offset)
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.partition} has no offset {self.offset}"


class FetchFrom(NamedTuple):
    """The position and the limits of a fetch."""

    partition: TopicPartition
    offset: int
    max_bytes: int
    max_wait_ms: int
    min_bytes: int
    committed_only: bool


def fetch(connection: Connection, topic_id: bytes, wanted: FetchFrom) -> Fetched:
    """One fetch, or several where an old broker cuts the first entry off.

    Raises OffsetOutOfRange, CorruptData, Refused, Again, ConnectionLost.
    """
    version = connection.version(FetchRequest, newest=_newest(topic_id))
    while True:
        request = _request(topic_id, wanted)
        answer = connection.call(
            request, FetchResponse, newest=version, wait_s=wanted.max_wait_ms / 1000
        )
        found = _of_partition(answer, wanted)
        records = memoryview(found.records or b"")
        end, needed = whole_entries(records)
        if end or not records:
            break
        # The limit has cut it, or it is damaged.
        limited = version < WHOLE_ENTRIES and len(records) >= wanted.max_bytes
        if not limited or not 0 <= needed <= LARGEST_ENTRY_BYTES:
            raise CorruptData(
                f"{wanted.partition} offset {wanted.offset}: what comes next cannot be an entry: "
                f"it says it has {needed} bytes, and {len(records)} came"
            )
        wanted = wanted._replace(max_bytes=needed or 2 * wanted.max_bytes)
    has_transactions = version >= ISOLATION
    stable = found.last_stable_offset if has_transactions else found.high_watermark
    readable = stable if wanted.committed_only else found.high_watermark
    if not records and wanted.offset < readable:
        _expect_here(connection, wanted)
    return Fetched(
        records[:end],
        found.high_watermark,
        found.log_start_offset,
        stable,
        tuple((one.producer_id, one.first_offset) for one in found.aborted_transactions or ()),
    )


def _expect_here(connection: Connection, wanted: FetchFrom) -> None:
    """Raises Again for an offset that is in remote storage: a leader whose storage takes longer
    than it waits answers as if there were no records."""
    if not connection.offers(ListOffsetsRequest, KNOWS_LOCAL):
        return
    place = wanted.partition
    found = list_offsets(connection, [place], EARLIEST_LOCAL, newest=None)
    code, local_start = found.get(place, (ErrorCode.UNKNOWN_SERVER_ERROR, 0))
    if code == 0 and wanted.offset < local_start:
        text = f"{place} offset {wanted.offset:,} is in remote storage, which does not answer"
        raise Again(Unreachable(text))


def whole_entries(records: memoryview) -> tuple[int, int]:
    """The end of the last whole entry, and the size in bytes of the cut one after it.

    That is 0 if nothing is cut, or too little is there to tell, and below 0 if it cannot be an
    entry.
    """
    position, limit = 0, len(records)
    rows = entry_rows(records)
    if rows:
        at, size, *_ = ROW.unpack_from(rows, len(rows) - ROW.size)
        position = at + size
    read = INT32.unpack_from
    while limit - position >= ENTRY_OVERHEAD:
        length = read(records, position + LENGTH_POSITION)[0]
        if length < MIN_ENTRY_LENGTH:
            return position, -1
        if length + ENTRY_OVERHEAD > limit - position:
            return position, length + ENTRY_OVERHEAD
        position += length + ENTRY_OVERHEAD
    return position, 0


def list_offsets(
    connection: Connection,
    places: Iterable[TopicPartition],
    timestamp_ms: int,
    *,
    newest: int | None,
    replica_id: int = -1,
    committed_only: bool = False,
) -> dict[TopicPartition, tuple[int, int]]:
    """For each partition an error's code and an offset. Raises ConnectionLost.

    Where there is nothing so late, or no segment so old, the offset is LATEST or EARLIEST: what to
    ask for instead.
    """
    version = connection.version(ListOffsetsRequest, newest=newest)
    wanted = dict.fromkeys(places, timestamp_ms)
    request = list_offsets_request(wanted, replica_id=replica_id, committed_only=committed_only)
    answer = connection.call(request, ListOffsetsResponse, newest=version)
    found = {}
    for of_topic in answer.topics:
        for entry in of_topic.partitions:
            offset = entry.offset
            if version == OF_SEGMENTS:
                offset = entry.old_style_offsets[0] if entry.old_style_offsets else EARLIEST
            place = TopicPartition(of_topic.name, entry.partition_index)
            found[place] = (entry.error_code, offset)
    return found


def failed(api: str, place: TopicPartition, code: int) -> Again:
    """The failure of an error that may be over soon. Raises Refused for one that will not."""
    text = f"{api} of {place}: {said(code)}"
    try:
        known = ErrorCode(code)
    except ValueError:
        known = ErrorCode.UNKNOWN_SERVER_ERROR
    if known in GONE:
        missing: Failure = NoSuchTopic(f"partition {place} is gone: {said(code)}")
        return Again(missing, patience_s=UNKNOWN_TOPIC_S)
    if known == ErrorCode.CORRUPT_MESSAGE:
        raise CorruptData(text)
    if known.retriable or code == ErrorCode.UNKNOWN_SERVER_ERROR:
        return Again(Unreachable(text))
    raise Refused(text, code)


def _newest(topic_id: bytes) -> int | None:
    return BY_NAME if topic_id == ZERO_UUID else None


def _request(topic_id: bytes, wanted: FetchFrom) -> FetchRequest:
    entry = FetchRequest.Topic.Partition(
        partition=wanted.partition.partition,
        fetch_offset=wanted.offset,
        partition_max_bytes=wanted.max_bytes,
    )
    topic = FetchRequest.Topic(topic_id=topic_id, topic=wanted.partition.topic, partitions=[entry])
    return FetchRequest(
        max_wait_ms=wanted.max_wait_ms,
        min_bytes=wanted.min_bytes,
        max_bytes=wanted.max_bytes,
        isolation_level=int(wanted.committed_only),
        topics=[topic],
    )


def _of_partition(answer: FetchResponse, wanted: FetchFrom) -> FetchResponse.Topic.Partition:
    if answer.throttle_time_ms and not answer.responses and not answer.error_code:
        # An empty answer at once, and the next one later (KIP-219).
        text = f"{wanted.partition}: a quota of the broker holds back what is fetched"
        raise Again(Unreachable(text), held_back=True)
    code: int = answer.error_code or ErrorCode.UNKNOWN_SERVER_ERROR
    for topic in answer.responses:
        for entry in topic.partitions:
            if entry.partition_index == wanted.partition.partition:
                if entry.error_code == 0:
                    return entry
                code = entry.error_code
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRange(wanted.partition, wanted.offset)
    raise failed("Fetch", wanted.partition, code)
