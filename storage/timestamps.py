"""From a point in time to an offset.

The answer is the first record in offset order whose timestamp is at or after the one asked for.
Timestamps come from producers and need not rise, so earlier records may be newer still.

Formats 0 and 1 are answered by entry, not by record: a wrapper's own timestamp and last offset.
Looking into wrappers belongs here once they can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.batch import Batch
from protocol.records.errors import CorruptBatch
from protocol.records.layout import LOG_APPEND_TIME, NO_TIMESTAMP
from storage.scan import Scan

if TYPE_CHECKING:
    from storage.log import Log
    from storage.scan import Entry
    from storage.segment import Segment

TimestampOffset = tuple[int, int, int]
"""Timestamp (ms), offset and leader epoch of a record."""


def first_at_or_after(log: Log, timestamp_ms: int) -> TimestampOffset | None:
    """The first record with this timestamp or a later one; None if there is none."""
    for segment in log.segments.loaded():
        if segment.max_timestamp < max(timestamp_ms, 0):
            continue
        found = _first_in(log, segment, timestamp_ms)
        if found is not None:
            return found
    return None


def _first_in(log: Log, segment: Segment, timestamp_ms: int) -> TimestampOffset | None:
    """As above, in one segment. The time index says where no earlier record can match."""
    relative = max(
        segment.times.floor(timestamp_ms), min(log.start_offset - segment.base_offset, 2**31 - 1)
    )
    position = segment.offsets.floor(relative)
    for entry in Scan(segment.file, position, segment.written_size):
        if entry.max_timestamp < timestamp_ms or entry.last_offset < log.start_offset:
            continue
        if entry.max_timestamp == NO_TIMESTAMP:
            continue
        found = _first_of(log, segment, entry, timestamp_ms)
        if found is not None:
            return found
    return None


def _first_of(
    log: Log, segment: Segment, entry: Entry, timestamp_ms: int
) -> TimestampOffset | None:
    """As above, in one batch. A loop over records: only they know their offsets' timestamps."""
    if entry.magic < 2:
        return entry.max_timestamp, entry.last_offset, entry.leader_epoch
    data = segment.file.pread(entry.size, entry.position)
    if len(data) != entry.size:
        raise CorruptBatch(f"{segment.path()}, position {entry.position}: cut while being read")
    batch = Batch(memoryview(data))
    stamped = batch.timestamp_type == LOG_APPEND_TIME
    for record in batch.records():
        timestamp = entry.max_timestamp if stamped else record.timestamp_ms
        if timestamp >= timestamp_ms and record.offset >= log.start_offset:
            return timestamp, record.offset, entry.leader_epoch
    return None


def largest(log: Log) -> TimestampOffset | None:
    """The first record that has the log's largest timestamp; None if there are no timestamps."""
    best = NO_TIMESTAMP
    for segment in log.segments.loaded():
        best = max(best, _largest_in(log, segment))
    return None if best == NO_TIMESTAMP else first_at_or_after(log, best)


def _largest_in(log: Log, segment: Segment) -> int:
    if log.start_offset <= segment.base_offset:
        return log.written_max_timestamp if segment is log.active else segment.max_timestamp
    # The log starts inside this segment: what it holds below that does not count.
    position = segment.offsets.floor(log.start_offset - segment.base_offset)
    return max(
        (
            entry.max_timestamp
            for entry in Scan(segment.file, position, segment.written_size)
            if entry.last_offset >= log.start_offset
        ),
        default=NO_TIMESTAMP,
    )
