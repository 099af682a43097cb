"""The plan of a cleaning: the part of the log, and all that the cleaning has to know.

    start ... first_dirty ... end ... active segment
      | clean |     dirty     | not yet |

Below `first_dirty` no key comes twice already; the newest offset of each key is looked for from
there to `end`, and all segments that begin below the end reached are written anew.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, Protocol

from protocol.records.layout import NO_TIMESTAMP
from storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.segment import Segment
    from storage.segments import Segments


class CleaningRules(NamedTuple):
    """A topic's settings, and the broker's, as far as they matter here."""

    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    delete_retention_ms: int
    map_bytes: int
    """Most bytes of the map of keys (log.cleaner.dedupe.buffer.size)."""
    max_decompressed_bytes: int
    max_decompression_ratio: int


class CleaningLag(NamedTuple):
    """The conditions under which a log is cleaned (min.compaction.lag.ms, max.compaction.lag.ms,
    min.cleanable.dirty.ratio)."""

    min_ms: int
    max_ms: int
    min_dirty_ratio: float


class Source(NamedTuple):
    """A sealed segment: base offset, bytes of its log file, when that was last written to."""

    base_offset: int
    size: int
    modified_ms: int


class CleaningPlan(NamedTuple):
    """The input of `Cleaning`. Offsets as in the module."""

    folder: str
    sources: list[Source]
    """All sealed segments below `end`, the oldest first."""
    first_dirty: int
    end: int
    start_offset: int
    """The log's. Entries wholly below it are left out."""
    now_ms: int
    rules: CleaningRules
    producers: dict[int, tuple[int, int]]
    """Epoch and last offset (-1 if there was a marker only) by producer id, of all that are not
    forgotten. Their last batches stay, if only as headers."""
    aborted: list[AbortedTransaction]
    """Aborted transactions that began below `end` and whose markers are not in the sources."""
    dirty_ratio: float

    def as_json(self) -> str:
        """For another process; `from_json` makes the same plan of it."""
        producers = [[number, *known] for number, known in self.producers.items()]
        return json.dumps(self._asdict() | {"rules": self.rules._asdict(), "producers": producers})

    @classmethod
    def from_json(cls, text: str) -> CleaningPlan:
        """Raises ValueError, KeyError or TypeError for what `as_json` did not write."""
        fields = json.loads(text)
        return cls(**fields)._replace(
            sources=[Source(*source) for source in fields["sources"]],
            rules=CleaningRules(**fields["rules"]),
            producers={number: (epoch, last) for number, epoch, last in fields["producers"]},
            aborted=[AbortedTransaction(*entry) for entry in fields["aborted"]],
        )


class Producers(Protocol):
    """The part of `storage.producers.ProducerStates` that is looked at."""

    def last_batches(self) -> dict[int, tuple[int, int]]:
        """As `CleaningPlan.producers`."""


class CleanableLog(Protocol):
    """The part of `storage.log.Log` that is looked at."""

    @property
    def folder(self) -> str: ...

    @property
    def segments(self) -> Segments: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def written_offset(self) -> int: ...

    @property
    def cleaned_to(self) -> int | None: ...

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def producers(self) -> Producers: ...

    def aborted_transactions(self, offset: int, upper: int) -> Sequence[AbortedTransaction]: ...


def plan_cleaning(
    log: CleanableLog, rules: CleaningRules, lag: CleaningLag, *, now_ms: int
) -> CleaningPlan | None:
    """The plan for cleaning a log; None if nothing is dirty, or it is not worth it yet.

    To be asked when nothing is queued in the log. Of several logs, the one with the largest
    `dirty_ratio` should go first. Raises OSError.
    """
    segments = list(log.segments)
    sealed, active = segments[:-1], segments[-1]
    first_dirty = log.start_offset
    if log.cleaned_to is not None and first_dirty <= log.cleaned_to <= log.written_offset:
        first_dirty = log.cleaned_to
    ends = [segment.base_offset for segment in segments[1:]]
    dirty = [segment for segment, end in zip(sealed, ends, strict=True) if end > first_dirty]
    end = min(log.last_stable_offset, active.base_offset)
    if lag.min_ms > 0:
        end = min(end, _first_too_young(dirty, now_ms - lag.min_ms, end))
    # By whole segments, as Kafka does: what comes later is closer to being cleanable as well.
    end = max((base for base in [*ends, first_dirty] if base <= end), default=first_dirty)
    dirty = [segment for segment in dirty if segment.base_offset < end]
    if end <= first_dirty or not any(segment.byte_size() for segment in dirty):
        return None
    clean_bytes = _bytes_of(segment for segment in sealed if segment.base_offset < first_dirty)
    dirty_bytes = _bytes_of(dirty)
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    if ratio <= lag.min_dirty_ratio and not _waits_too_long(log, dirty, now_ms - lag.max_ms):
        return None
    sources = [
        Source(segment.base_offset, segment.byte_size(), min(segment.modified_ms(), now_ms))
        for segment in sealed
        if segment.base_offset < end
    ]
    return CleaningPlan(
        folder=log.folder,
        sources=sources,
        first_dirty=first_dirty,
        end=end,
        start_offset=log.start_offset,
        now_ms=now_ms,
        rules=rules,
        producers=log.producers.last_batches(),
        aborted=[
            entry for entry in log.aborted_transactions(end - 1, end) if entry.last_offset >= end
        ],
        dirty_ratio=ratio,
    )


def _bytes_of(segments: Iterable[Segment]) -> int:
    return sum(segment.byte_size() for segment in segments)


def _first_too_young(dirty: list[Segment], newest_ms: int, end: int) -> int:
    """The base offset of the first segment with something newer than that, or `end`."""
    for segment in dirty:
        latest = segment.latest_ms()
        if (segment.modified_ms() if latest == NO_TIMESTAMP else latest) > newest_ms:
            return segment.base_offset
    return end


def _waits_too_long(log: CleanableLog, dirty: list[Segment], since_ms: int) -> bool:
    """Whether the first entry of a segment has a timestamp from before that."""
    if since_ms <= 0:
        return False
    return any(0 < log.segments.loaded_one(one).first_timestamp < since_ms for one in dirty)
