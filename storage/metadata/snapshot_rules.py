"""The rules for when a snapshot is due and what of the log may go then. Only arithmetic.

KIP-630's text and what Apache Kafka made of it differ (storage.md 12.2, 12.4); here both count:

due         after so many records (the text: controller.snapshot.minimum.records), or so many bytes
            of them, or when one has waited so long (Kafka)
log start   the largest end offset of a snapshot that all who follow the log have reached, or that
            is max.replication.lag.ms old (the text); further, as long as log and snapshots take
            more room than metadata.max.retention.bytes or the oldest snapshot is older than
            metadata.max.retention.ms (Kafka). Who is left behind is given the snapshot.
snapshots   those below the log start go; the latest never does

The log start moves from the end of one snapshot to that of another and to nowhere else: so it
always has a snapshot that fits it, as Kafka wants to find it (storage.md 12.3).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.metadata.snapshot_names import SnapshotId

NO_LIMIT = -1


class SnapshotRules(NamedTuple):
    """Settings under Kafka's names and with Kafka's defaults, or those of `config`.

    `minimum_records` (controller.snapshot.minimum.records) and `max_interval_ms`
    (metadata.log.max.snapshot.interval.ms) may be 0 for no such rule; `max_bytes` is
    metadata.log.max.record.bytes.between.snapshots.
    """

    minimum_records: int = 0
    max_bytes: int = 20 << 20
    max_interval_ms: int = 3_600_000


class RetentionRules(NamedTuple):
    """max.replication.lag.ms; metadata.max.retention.bytes and .ms, of which -1 is no limit."""

    max_replication_lag_ms: int = 900_000
    max_bytes: int = 100 << 20
    max_ms: int = 604_800_000


class Reason(Enum):
    """The reason for a snapshot."""

    RECORDS = "records"
    BYTES = "bytes"
    TIME = "time"


class HeldSnapshot(NamedTuple):
    """A snapshot, its bytes, and the append time (ms) of the last batch of the log within it."""

    id: SnapshotId
    size: int
    last_contained_ms: int


class HeldSegment(NamedTuple):
    """A segment of the log, and its bytes."""

    base_offset: int
    size: int


class Retained(NamedTuple):
    """The part that is kept: the log from this offset on, and all snapshots but these."""

    log_start: int
    removed: list[SnapshotId]


def snapshot_due(
    records_since: int, bytes_since: int, last_ms: int, now_ms: int, rules: SnapshotRules
) -> Reason | None:
    """Why there should be a snapshot now, or None.

    Records and their bytes (of whole batches) are those committed since the latest snapshot, or
    since the log began; `last_ms` is when that was, which is also the time from which a record
    waits. Without any record none is due.
    """
    if records_since <= 0:
        return None
    if 0 < rules.minimum_records < records_since:
        return Reason.RECORDS
    if bytes_since >= rules.max_bytes:
        return Reason.BYTES
    if 0 < rules.max_interval_ms <= now_ms - last_ms:
        return Reason.TIME
    return None


def new_log_start(
    log_start: int,
    snapshots: Iterable[HeldSnapshot],
    replicated: Iterable[int],
    now_ms: int,
    rules: RetentionRules,
) -> int:
    """The log begin offset by the text of KIP-630; never below the present one.

    `replicated` has, for each live replica, voter or observer, the offset up to which it has
    fetched (exclusive).
    """
    slowest = min(replicated, default=None)
    old_ms = now_ms - rules.max_replication_lag_ms
    possible = (
        snapshot.id.end_offset
        for snapshot in snapshots
        if slowest is None
        or snapshot.id.end_offset <= slowest
        or snapshot.last_contained_ms <= old_ms
    )
    return max((log_start, *possible))


def retained(
    log_start: int,
    segments: Sequence[HeldSegment],
    snapshots: Sequence[HeldSnapshot],
    replicated: Iterable[int],
    now_ms: int,
    rules: RetentionRules,
) -> Retained:
    """By both rules: what the log start should be and which snapshots go, oldest first.

    Segments and snapshots are in order. A segment goes with all of its records; the last one, which
    is being written to, counts as long as there is a log.
    """
    start = new_log_start(log_start, snapshots, replicated, now_ms, rules)
    kept = [snapshot for snapshot in snapshots if snapshot.id.end_offset >= start]
    while len(kept) > 1 and (
        _is_too_large(start, segments, kept, rules) or _is_too_old(kept[0], now_ms, rules)
    ):
        del kept[0]
        start = max(start, kept[0].id.end_offset)
    kept = kept or list(snapshots[-1:])
    return Retained(start, [held.id for held in snapshots if held not in kept])


def _is_too_large(
    start: int,
    segments: Sequence[HeldSegment],
    snapshots: Sequence[HeldSnapshot],
    rules: RetentionRules,
) -> bool:
    if rules.max_bytes == NO_LIMIT:
        return False
    size = sum(snapshot.size for snapshot in snapshots)
    for index, segment in enumerate(segments):
        following = segments[index + 1 : index + 2]
        if not following or following[0].base_offset > start:
            size += segment.size
    return size > rules.max_bytes


def _is_too_old(oldest: HeldSnapshot, now_ms: int, rules: RetentionRules) -> bool:
    return rules.max_ms != NO_LIMIT and now_ms - oldest.last_contained_ms > rules.max_ms
