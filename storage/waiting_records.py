"""Records that retention would drop and that wait for somebody who still wants them.

    start ... kept_from ... due ... end
      | goes |   waits    |  kept anyway |

What waits is bounded by its bytes and by its age; above either bound the oldest records go, wanted
or not. Nothing here is remembered: the bounds hold from the first look after a start on.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from storage.retention import RetentionRules, retained_from, segments_with_ends

if TYPE_CHECKING:
    from storage.log import Log
    from storage.segment import Segment


class WaitBounds(NamedTuple):
    """The most that waits: bytes of one log, and the age in ms up to which a record does."""

    max_bytes: int
    max_age_ms: int


class Waiting(NamedTuple):
    """What waits in a log: the offsets from `kept_from` up to `due`, and their bytes.

    `exceeded` is the bound above which wanted records go, "bytes" or "ms", or empty; `lost` how
    many offsets of them go, from `wanted` (or the log start) up to `kept_from`.
    """

    kept_from: int
    due: int
    byte_size: int = 0
    exceeded: str = ""
    lost: int = 0


def waiting_records(log: Log, due: int, wanted: int, bounds: WaitBounds, *, now_ms: int) -> Waiting:
    """What is to wait, if all from the offset `wanted` on should and what lies below `due` would
    go. Bytes are counted by whole batches. Nothing is changed. Raises OSError."""
    first = kept_from = max(log.start_offset, min(due, wanted))
    if kept_from >= due:
        return Waiting(due, due)
    exceeded = ""
    by_age = RetentionRules(retention_ms=bounds.max_age_ms)
    young_from = min(retained_from(log, by_age, now_ms=now_ms), due)
    if young_from > kept_from:
        kept_from, exceeded = young_from, "ms"
    fitting_from, byte_size = _last_bytes(log, kept_from, due, bounds.max_bytes)
    if fitting_from > kept_from:
        kept_from, exceeded = fitting_from, "bytes"
    return Waiting(kept_from, due, byte_size, exceeded, kept_from - first)


def _last_bytes(log: Log, start: int, end: int, max_bytes: int) -> tuple[int, int]:
    """The lowest offset from `start` on such that the batches from there to that with `end` have at
    most `max_bytes`, and their bytes."""
    byte_size = 0
    for segment, segment_end in reversed(segments_with_ends(log)):
        if segment.base_offset >= end or segment_end <= start:
            continue
        low, high = max(start, segment.base_offset), min(end, segment_end)
        was_loaded = segment.loaded
        log.segments.loaded_one(segment)
        stop = segment.byte_size() if high == segment_end else _position(segment, high)
        first = low
        if byte_size + stop - _position(segment, low) > max_bytes:
            least = stop - (max_bytes - byte_size)
            first += bisect_left(range(low, high), least, key=lambda one: _position(segment, one))
        if first < high:
            byte_size += stop - _position(segment, first)
        if segment is log.active and not was_loaded:
            segment.unload()  # nobody uses this log, and there may be thousands
        if first > low:
            return first, byte_size
    return start, byte_size


def _position(segment: Segment, offset: int) -> int:
    """Where the batch with this offset, or the next one, begins."""
    found = segment.find(offset)
    return segment.byte_size() if found is None else found.position
