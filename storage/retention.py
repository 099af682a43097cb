"""From where on a log is kept: by size and by time.

By size whole segments go, the oldest first, as long as what remains is not below the limit.

By time single records go. A record's age counts from its timestamp, but that is believed only
between the two moments between which it was received by our clock (`storage.receive_times`):

    within the bounds       the timestamp
    at most SLOW_MS before  the earlier bound: it took its time on the way
    earlier, or none        the later bound: the producer has no clock, or a wrong one
    after the bounds        the later bound, likewise

Only a prefix of the log goes: up to the first record that is to stay. Since offsets are given out
in the order of receipt, all that lies before a record that is too old is too old as well.

So honest clocks get what retention.ms says to the record, and no clock whatever can shorten or
lengthen the stay of a record by more than the distance of its bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import KafkaError
from storage.timestamps import first_outside

if TYPE_CHECKING:
    from storage.log import Log
    from storage.receive_times import Stretch
    from storage.scan import Entry
    from storage.segment import Segment

SLOW_MS = 10_000
"""Longest time a record may take from its producer to us."""

HEADERS_MAX = 1024
"""Headers looked at in one go, some 1 ms; the next look goes on from there."""

OPENED_BYTES_MAX = 1024 * 1024
"""Largest expanded size at which the entry with the first record to stay is opened. A larger one
stays whole."""

OPENED_RECORDS_MAX = 4096
"""And the records it may have, if its header says so."""


class RetentionRules(NamedTuple):
    """The limits of one topic. -1 is no limit.

    `deletes`: cleanup.policy has "delete"; without it nothing goes by time or size.
    `retention_min_timestamp`: whatever is older than this moment goes.
    """

    deletes: bool = True
    retention_ms: int = -1
    retention_bytes: int = -1
    retention_min_timestamp: int = -1

    def kept_since_ms(self, now_ms: int) -> int | None:
        """Time before which records go; None if nothing goes by time."""
        limits = [self.retention_min_timestamp] if self.retention_min_timestamp >= 0 else []
        if self.retention_ms >= 0:
            limits.append(now_ms - self.retention_ms)
        return max(limits, default=None)


def retained_from(log: Log, rules: RetentionRules, *, now_ms: int) -> int:
    """The offset at which the log should start now: at or above its start, and never above its
    high watermark. Nothing is changed. Raises OSError.

    It may be less than the rules allow, where a look takes long; the next one goes on from there.
    """
    start = log.start_offset
    if not rules.deletes or start >= log.written_offset:
        return start
    if rules.retention_bytes >= 0:
        start = _by_size(log, rules.retention_bytes)
    since_ms = rules.kept_since_ms(now_ms)
    if since_ms is not None:
        start = _by_time(log, start, since_ms, now_ms)
    return min(start, log.written_offset)


def _by_size(log: Log, limit: int) -> int:
    start, alive = log.start_offset, []
    for segment, end in segments_with_ends(log):
        if end > start:
            alive.append((segment.byte_size(), end))
    excess = sum(size for size, _ in alive) - limit
    for size, end in alive:
        excess -= size
        if excess < 0:
            break
        start = end
    return start


def segments_with_ends(log: Log) -> list[tuple[Segment, int]]:
    """All segments, each with the offset after its last."""
    segments = list(log.segments)
    ends = [segment.base_offset for segment in segments[1:]]
    return list(zip(segments, [*ends, log.written_offset], strict=True))


def _by_time(log: Log, start: int, since_ms: int, now_ms: int) -> int:
    """The first record at or after `start` that is not older than `since_ms`."""
    stretches = log.received.stretches(log, now_ms=now_ms)
    ends = [*(stretch.offset for stretch in stretches[1:]), log.written_offset]
    for stretch, end in zip(stretches, ends, strict=True):
        if end <= start:
            continue
        if stretch.first_ms >= since_ms:
            break
        if stretch.last_ms < since_ms:
            start = end
            continue
        start = _within(log, start, end, stretch, since_ms)
        if start < end:
            break
    return start


def _within(log: Log, start: int, end: int, stretch: Stretch, since_ms: int) -> int:
    """The same in one stretch, in which that moment falls; `end` if none of it is to stay."""
    for segment, segment_end in segments_with_ends(log):
        if segment_end <= start:
            continue
        if segment.base_offset >= end:
            break
        was_loaded = segment.loaded
        log.segments.loaded_one(segment)
        reached = _within_segment(segment, start, min(segment_end, end), stretch, since_ms)
        if segment is log.active and not was_loaded:
            segment.unload()  # nobody uses this log, and there may be thousands
        start = max(start, reached)
        if start < min(segment_end, end):
            break
    return min(start, end)


def _within_segment(segment: Segment, start: int, end: int, stretch: Stretch, since_ms: int) -> int:
    """And in one segment: how far the records from `start` on, up to `end`, are too old."""
    believed_ms = stretch.first_ms - SLOW_MS
    latest = segment.verified.time_floor(since_ms - 1)
    if latest is not None and latest[0] >= believed_ms:
        # It was received after all that lies before it, so these are too old like it.
        start = max(start, min(latest[1] + 1, end))
    looked_at = 0
    for entry in segment.verified.entries_from(start):
        if entry.last_offset < start:
            continue
        if entry.first_offset >= end:
            break
        if not believed_ms <= entry.max_timestamp < since_ms:
            return _inside(segment, entry, start, stretch, since_ms)
        start = entry.last_offset + 1
        looked_at += 1
        if looked_at >= HEADERS_MAX:
            return start
    return end


def _inside(segment: Segment, entry: Entry, start: int, stretch: Stretch, since_ms: int) -> int:
    """Offset at which the part of an entry begins that is to stay: its first record, if the clock
    it was written by is not to be believed or it is too large to be opened."""
    first = max(start, entry.first_offset) if entry.magic == 2 else start
    if not since_ms <= entry.max_timestamp <= stretch.last_ms + SLOW_MS:
        return first
    if entry.size > OPENED_BYTES_MAX or entry.last_offset - first >= OPENED_RECORDS_MAX:
        return first
    try:
        found = first_outside(
            segment,
            entry,
            first,
            OPENED_BYTES_MAX,
            oldest_ms=stretch.first_ms - SLOW_MS,
            newest_ms=since_ms - 1,
        )
    except KafkaError:
        return first  # too large, or damaged; a reader will be told
    return first if found is None else found
