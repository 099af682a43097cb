"""The part of a log to be compacted by its topic's settings, and when its active segment is sealed
for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.partitions.internal_topics import TRANSACTION_TOPIC
from storage.cleaning.plan import CleaningLag, CleaningRules, plan_cleaning

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.partitions.topic import Partition
    from config import BrokerSettings, TopicSettings
    from storage.cleaning.plan import CleaningPlan
    from storage.log import Log

ROLL_BYTES_MIN = 1 << 20
"""An active segment that is most of its log is rolled from this size on. A log that compaction
keeps small (committed offsets, in segments of 100 MB) then stays within a few MB."""
SPARE_BYTES = 16 << 20
"""Room that compaction leaves on the disk, over what its output may need."""


def roll_is_due(log: Log, settings: TopicSettings, *, now_ms: int) -> bool:
    """Whether the active segment of a compacted log has to be sealed for the cleaner's sake.

    By our clock, when it is older than min(segment.ms, max.compaction.lag.ms): Kafka goes by the
    timestamps of what is appended, and never rolls an idle log. Or when it is old enough to be
    cleaned, larger than `ROLL_BYTES_MIN`, and alone makes the log dirtier than
    min.cleanable.dirty.ratio.
    """
    active = log.active
    size = active.byte_size()
    if not size:
        return False
    age_ms = now_ms - log.active_since_ms(now_ms)
    if age_ms > min(settings.segment_ms, settings.max_compaction_lag_ms):
        return True
    if size < ROLL_BYTES_MIN or age_ms < settings.min_compaction_lag_ms:
        return False
    total = sum(segment.byte_size() for segment in log.segments)
    return size > settings.min_cleanable_dirty_ratio * total


def plan_of(
    log: Log, settings: TopicSettings, broker: BrokerSettings, *, now_ms: int
) -> CleaningPlan | None:
    """A plan of what is to be compacted; None if that is nothing, or too little. Raises OSError."""
    rules = CleaningRules(
        segment_bytes=settings.segment_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        max_message_bytes=settings.max_message_bytes,
        delete_retention_ms=settings.delete_retention_ms,
        map_bytes=broker.log_cleaner_dedupe_buffer_size,
        max_decompressed_bytes=broker.max_decompressed_batch_bytes,
        max_decompression_ratio=broker.max_decompression_ratio,
    )
    lag = CleaningLag(
        settings.min_compaction_lag_ms,
        settings.max_compaction_lag_ms,
        settings.min_cleanable_dirty_ratio,
    )
    return plan_cleaning(log, rules, lag, now_ms=now_ms)


def to_sync_first(partition: Partition, logs: Iterable[Log]) -> list[Log]:
    """The logs, of all that there are, that must be on the disk before this one is compacted.

    With that of transactional ids all others: a start makes up for markers that were lost by the
    records of their ends, and compaction takes those away.
    """
    log = partition.log
    if partition.topic.name != TRANSACTION_TOPIC:
        return [log]
    behind = (one for one in logs if one.recovery_point < one.written_offset and not one.failed)
    return [log, *(one for one in behind if one is not log)]


def bytes_wanted(plan: CleaningPlan) -> int:
    """Room on the disk for the largest output there may be, and some to spare. The outputs before
    it have replaced their sources by then."""
    sizes = [source.size for source in plan.sources]
    return min(sum(sizes), max(plan.rules.segment_bytes, *sizes)) + SPARE_BYTES
