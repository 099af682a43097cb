"""From a point in time to an offset.

The answer is the first record in offset order whose timestamp is at or after the one asked for.
Timestamps come from producers and need not rise, so earlier records may be newer still.

Headers say which entry to look into; the record itself, with its own timestamp and offset, is
looked for inside, in a format 1 wrapper as in a batch. Format 0 has no timestamps: nothing of it
is ever the answer.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol

from protocol.records.batch import Batch
from protocol.records.errors import CorruptBatch
from protocol.records.layout import LOG_APPEND_TIME, MESSAGE_1, NO_TIMESTAMP
from protocol.records.legacy import Message
from protocol.records.record import INT64_MAX, INT64_MIN
from protocol.records.transcode import (
    messages_from_messages,
    messages_from_records,
    scan_messages,
)
from protocol.records.walk import walk
from storage.resync import is_right_sum
from storage.segments import SegmentedLog

if TYPE_CHECKING:
    from protocol.records.transcode import MessageScan
    from storage.scan import Entry
    from storage.segment import Segment

TimestampOffset = tuple[int, int, int]
"""Timestamp (ms), offset and leader epoch of a record; the epoch is -1 in formats 0 and 1."""

LATEST = -1
EARLIEST = -2


class TimedLog(SegmentedLog, Protocol):
    """A log (`storage.log.Log`) as far as this module needs it."""

    @property
    def written_max_timestamp(self) -> int:
        """The largest timestamp (ms) in the active segment's file; -1 for none."""


def first_at_or_after(log: TimedLog, timestamp_ms: int, limit: int) -> TimestampOffset | None:
    """The first record with this timestamp or a later one; None if there is none.

    Entries whose checksum is wrong are passed over: what they say of their times may be what is
    wrong with them, and their records cannot be read. Raises CorruptBatch if there were such and
    nothing else was found. `limit` is what one entry may expand to in bytes; InvalidRecord is
    raised beyond it.
    """
    damages: list[CorruptBatch] = []
    for segment in log.segments.reaching(max(timestamp_ms, 0)):
        found = _first_in(log, segment, timestamp_ms, limit, damages)
        if found is not None:
            return found
    if damages:
        raise damages[0]
    return None


def _first_in(
    log: TimedLog,
    segment: Segment,
    timestamp_ms: int,
    limit: int,
    damages: list[CorruptBatch],
) -> TimestampOffset | None:
    """As above, in one segment. The time index says where no earlier record can match."""
    floor = segment.verified.time_floor(timestamp_ms)
    start = segment.base_offset if floor is None else floor[1]
    for entry in segment.verified.entries_from(max(start, log.start_offset)):
        if entry.max_timestamp < timestamp_ms or entry.last_offset < log.start_offset:
            continue
        if entry.max_timestamp == NO_TIMESTAMP:
            continue
        try:
            run = _run_of(segment, entry, log.start_offset, limit)
            index = _scan(run, before_ms=timestamp_ms).bad_time_index
        except CorruptBatch as error:
            damages.append(error)
            continue
        if index >= 0:
            return *_message_at(run, index), entry.leader_epoch
    return None


def first_outside(
    segment: Segment,
    entry: Entry,
    start_offset: int,
    limit: int,
    *,
    oldest_ms: int,
    newest_ms: int,
) -> int | None:
    """The offset of an entry's first record, from `start_offset` on, that has no timestamp or one
    outside oldest_ms..newest_ms. None if there is none.

    The entry is opened. Raises CorruptBatch, and InvalidRecord if it expands to more than `limit`
    bytes.
    """
    run = _run_of(segment, entry, start_offset, limit)
    for position, _, _ in walk(run):
        offset, _, _, _, _, timestamp = MESSAGE_1.unpack_from(run, position)
        if offset >= start_offset and not oldest_ms <= timestamp <= newest_ms:
            return int(offset)
    return None


def _run_of(segment: Segment, entry: Entry, start_offset: int, limit: int) -> bytes:
    """The records of one entry from `start_offset` on as plain messages of format 1, which are
    quicker to go through than anything else that has offset and timestamp. Raises CorruptBatch."""
    data = segment.file.pread(entry.size, entry.position)
    if len(data) != entry.size:
        raise CorruptBatch(f"{segment.path()}, position {entry.position}: cut while being read")
    view = memoryview(data)
    if not is_right_sum(view, entry):
        raise CorruptBatch(f"{segment.path()}, position {entry.position}: wrong checksum")
    if entry.magic == 2:
        batch = Batch(view)
        stamped = batch.timestamp_type == LOG_APPEND_TIME
        run, _ = messages_from_records(
            batch.payload(limit=limit),
            batch.record_count,
            base_offset=batch.base_offset,
            base_timestamp=batch.base_timestamp,
            magic=1,
            append_time_ms=batch.max_timestamp if stamped else None,
            min_offset=start_offset,
        )
        return run
    message = Message(view)
    if not message.codec:
        return data
    payload = message.payload(limit=limit)
    # A wrapper has the offset of its last message; inside they count from anywhere (KIP-31).
    base_offset = message.offset - _scan(payload).last_offset if message.offset else 0
    stamped = message.timestamp_type == LOG_APPEND_TIME
    run, _ = messages_from_messages(
        payload,
        source_magic=1,
        magic=1,
        offset=base_offset,
        renumber=False,
        append_time_ms=message.timestamp_ms if stamped else None,
        min_offset=start_offset,
    )
    return run


def _scan(run: bytes, *, before_ms: int | None = None) -> MessageScan:
    """With `before_ms`, the first message that is not before it has the "bad" time."""
    return scan_messages(
        run,
        1,
        max_entry_bytes=2**31 - 1,
        oldest_ms=INT64_MIN,
        newest_ms=INT64_MAX if before_ms is None else before_ms - 1,
    )


def _message_at(run: bytes, index: int) -> tuple[int, int]:
    """Timestamp and offset of one message of a run."""
    position, _, _ = next(islice(walk(run), index, None))
    offset, _, _, _, _, timestamp = MESSAGE_1.unpack_from(run, position)
    return timestamp, offset


def largest(log: TimedLog, limit: int) -> TimestampOffset | None:
    """The first record that has the log's largest timestamp; None if there are no timestamps."""
    best = _largest_of_all(log, limit)
    for segment in log.segments:
        if segment.latest_ms() == best and not segment.dated_by_log:
            log.segments.loaded_one(segment)  # compares what the time index ends with
            best = _largest_of_all(log, limit)
    return None if best == NO_TIMESTAMP else first_at_or_after(log, best, limit)


def _largest_of_all(log: TimedLog, limit: int) -> int:
    best = NO_TIMESTAMP
    for segment in log.segments:
        if segment is not log.segments.active and log.start_offset <= segment.base_offset:
            best = max(best, segment.latest_ms())
        else:
            best = max(best, _largest_in(log, log.segments.loaded_one(segment), limit))
    return best


def _largest_in(log: TimedLog, segment: Segment, limit: int) -> int:
    if log.start_offset <= segment.base_offset:
        return (
            log.written_max_timestamp if segment is log.segments.active else segment.max_timestamp
        )
    # The log starts inside this segment: what it holds below that does not count.
    best = NO_TIMESTAMP
    reached = False
    for entry in segment.verified.entries_from(log.start_offset):
        if entry.last_offset < log.start_offset or entry.max_timestamp <= best:
            continue
        if reached:
            best = entry.max_timestamp
            continue
        reached = True
        run = _run_of(segment, entry, log.start_offset, limit)
        best = max(best, _scan(run).max_timestamp)
    return best


def offsets_of_segments(log: TimedLog, timestamp_ms: int, max_count: int, now_ms: int) -> list[int]:
    """Offsets for ListOffsets v0: beginnings of segments, and the end, newest first.

    As Kafka does it: every segment stands for the time at which its file was last written to, and
    the end of a log whose last segment is not empty stands for now.
    """
    segments = list(log.segments)
    places = [
        (max(segment.base_offset, log.start_offset), segment.modified_ms()) for segment in segments
    ]
    if log.written_offset > segments[-1].base_offset:
        places.append((log.written_offset, now_ms))
    if timestamp_ms == EARLIEST:
        del places[1:]
    elif timestamp_ms != LATEST:
        while places and places[-1][1] > timestamp_ms:
            places.pop()
    return [offset for offset, _ in reversed(places)][: max(max_count, 0)]
