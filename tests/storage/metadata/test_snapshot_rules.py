"""Snapshots that are due and files that may go: Apache Kafka's rules (storage.md 12.2).

Those of KIP-630's text are in tests/promises/test_kip630_snapshots.py.
"""

from __future__ import annotations

import random

from storage.metadata.snapshot_rules import (
    HeldSegment,
    HeldSnapshot,
    Reason,
    Retained,
    RetentionRules,
    SnapshotRules,
    retained,
    snapshot_due,
)
from storage.metadata.snapshots import SnapshotId

NOW_MS = 1_700_000_000_000
MIB = 1 << 20
DAY_MS = 86_400_000
KAFKA = SnapshotRules()
WAITS = RetentionRules(max_replication_lag_ms=30 * DAY_MS)
"""Those who follow hold the log back, so that Kafka's own rules show."""


def held(end_offset: int, *, size: int = MIB, age_ms: int = 0) -> HeldSnapshot:
    return HeldSnapshot(SnapshotId(end_offset, 1), size, NOW_MS - age_ms)


def kept(
    segments: list[HeldSegment],
    snapshots: list[HeldSnapshot],
    *,
    replicated: tuple[int, ...] = (0,),
    log_start: int = 0,
    rules: RetentionRules = WAITS,
) -> Retained:
    return retained(log_start, segments, snapshots, replicated, NOW_MS, rules)


# "Generated when >= metadata.log.max.record.bytes.between.snapshots (20 MiB) of batches were
# replayed since the last one, or >= metadata.log.max.snapshot.interval.ms (1 h) passed and
# something was replayed."


def test_a_snapshot_is_due_at_twenty_mebibytes_of_records() -> None:
    assert snapshot_due(10, 20 * MIB - 1, NOW_MS, NOW_MS, KAFKA) is None
    assert snapshot_due(10, 20 * MIB, NOW_MS, NOW_MS, KAFKA) is Reason.BYTES


def test_a_snapshot_is_due_an_hour_after_the_last_if_anything_was_written() -> None:
    hour = 3_600_000
    assert snapshot_due(1, 1, NOW_MS, NOW_MS + hour - 1, KAFKA) is None
    assert snapshot_due(1, 1, NOW_MS, NOW_MS + hour, KAFKA) is Reason.TIME
    assert snapshot_due(0, 0, NOW_MS, NOW_MS + 100 * hour, KAFKA) is None


def test_an_interval_of_zero_is_no_rule() -> None:
    never = SnapshotRules(max_interval_ms=0)
    assert snapshot_due(1, 1, 0, NOW_MS, never) is None


# "first by size - while log size + all snapshots > metadata.max.retention.bytes (100 MiB)"


def test_above_the_size_limit_the_oldest_snapshots_go_until_it_is_kept() -> None:
    segments = [HeldSegment(0, 40 * MIB), HeldSegment(100, 40 * MIB), HeldSegment(200, 10 * MIB)]
    snapshots = [held(100, size=20 * MIB), held(200, size=30 * MIB), held(250, size=40 * MIB)]
    # 180 MiB; without the oldest and the segment before the next one's end 80 MiB.
    assert kept(segments, snapshots) == Retained(200, [SnapshotId(100, 1)])
    few = RetentionRules(WAITS.max_replication_lag_ms, max_bytes=79 * MIB)
    assert kept(segments, snapshots, rules=few) == Retained(
        250, [SnapshotId(100, 1), SnapshotId(200, 1)]
    )


def test_at_the_size_limit_everything_stays() -> None:
    segments = [HeldSegment(0, 60 * MIB)]
    snapshots = [held(100, size=20 * MIB), held(200, size=20 * MIB)]
    assert kept(segments, snapshots) == Retained(0, [])
    snapshots = [held(100, size=20 * MIB), held(200, size=20 * MIB + 1)]
    assert kept(segments, snapshots) == Retained(200, [SnapshotId(100, 1)])


def test_a_segment_that_reaches_into_what_is_kept_counts() -> None:
    segments = [HeldSegment(0, 60 * MIB), HeldSegment(201, 0)]
    snapshots = [held(100), held(200, size=50 * MIB), held(300)]
    assert kept(segments, snapshots) == Retained(300, [SnapshotId(100, 1), SnapshotId(200, 1)])
    segments = [HeldSegment(0, 60 * MIB), HeldSegment(200, 0)]
    assert kept(segments, snapshots) == Retained(200, [SnapshotId(100, 1)])


# "then by time - while the oldest snapshot's lastContainedLogTimestamp is older than
# metadata.max.retention.ms (7 d)"


def test_snapshots_of_more_than_a_week_go() -> None:
    snapshots = [held(100, age_ms=8 * DAY_MS), held(200, age_ms=7 * DAY_MS), held(300)]
    assert kept([HeldSegment(0, 1)], snapshots) == Retained(200, [SnapshotId(100, 1)])


# "drop the oldest snapshot if a newer one exists ... The latest snapshot always stays."


def test_the_latest_snapshot_stays_however_old_and_large_it_is() -> None:
    only = [held(100, size=1000 * MIB, age_ms=1000 * DAY_MS)]
    assert kept([HeldSegment(0, 1000 * MIB)], only).removed == []
    below = kept([HeldSegment(300, 1)], only, log_start=300)
    assert below == Retained(300, []), "a log without its snapshot must not lose another one"


def test_without_limits_nothing_goes_by_size_or_time() -> None:
    rules = RetentionRules(1000 * DAY_MS, max_bytes=-1, max_ms=-1)
    snapshots = [held(100, size=1 << 40, age_ms=900 * DAY_MS), held(200)]
    assert kept([HeldSegment(0, 1 << 40)], snapshots, rules=rules) == Retained(0, [])


def test_whatever_the_rules_a_snapshot_reaches_the_log_start_and_the_latest_stays() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        ends = sorted(rng.sample(range(1, 100), rng.randrange(1, 6)))
        snapshots = [
            held(end, size=rng.randrange(50), age_ms=rng.randrange(2000) - 20 * end) for end in ends
        ]
        log_start = rng.choice([0, rng.randrange(ends[-1] + 1)])
        segments = [HeldSegment(base, rng.randrange(50)) for base in (0, 30, 60)]
        replicated = [rng.randrange(120) for _ in range(rng.randrange(3))]
        rules = RetentionRules(
            rng.randrange(1000), rng.choice([-1, rng.randrange(200)]), rng.choice([-1, 500])
        )
        result = retained(log_start, segments, snapshots, replicated, NOW_MS, rules)
        left = [snapshot.id for snapshot in snapshots if snapshot.id not in result.removed]
        where = f"seed {seed}: {snapshots}, {log_start}, {replicated}, {rules}, {result}"
        assert left[-1:] == [snapshots[-1].id], where
        assert log_start <= result.log_start <= left[-1].end_offset, where
        assert result.log_start in (log_start, *ends), where
        assert all(snapshot_id.end_offset >= result.log_start for snapshot_id in left), where
        again = retained(
            result.log_start,
            segments,
            [s for s in snapshots if s.id in left],
            replicated,
            NOW_MS,
            rules,
        )
        assert again == Retained(result.log_start, []), where
