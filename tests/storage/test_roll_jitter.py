"""segment.jitter.ms: logs that began together do not roll together."""

from __future__ import annotations

from itertools import pairwise

from storage.log import Log
from storage.rolling import age_limit_ms
from tests.storage.logs import Settings, opened, produce
from tests.support.memory_filesystem import MemoryFilesystem

SEGMENT_MS, JITTER_MS = 100_000, 40_000
SETTINGS = Settings(segment_ms=SEGMENT_MS, segment_jitter_ms=JITTER_MS)


def limit(log: Log) -> int:
    return age_limit_ms(log.active, log.settings)


def log_named(name: str, settings: Settings = SETTINGS, root: str = "/data") -> Log:
    return opened(MemoryFilesystem(), settings, folder=f"{root}/{name}")


def test_the_limits_of_many_logs_spread_over_the_jitter() -> None:
    limits = sorted(limit(log_named(f"orders-{number}")) for number in range(200))

    assert limits[0] > SEGMENT_MS - JITTER_MS
    assert limits[-1] <= SEGMENT_MS
    steps = [after - before for before, after in pairwise(limits)]
    assert max(steps) < JITTER_MS // 10, "no part of the time is left out"


def test_a_log_keeps_its_limit_over_restarts_and_draws_another_with_each_segment() -> None:
    first, moved = log_named("orders-1"), log_named("orders-1", root="/elsewhere")
    assert limit(first) == limit(moved)
    before = limit(first)
    produce(first, b"x", timestamp_ms=0)

    produce(first, b"x", timestamp_ms=SEGMENT_MS + 1)

    assert len(first.segments) == 2
    assert limit(first) != before


def test_a_segment_ends_at_its_own_limit() -> None:
    log = log_named("orders-2")
    at = limit(log)
    assert at < SEGMENT_MS
    for timestamp_ms in (0, at):
        produce(log, b"x", timestamp_ms=timestamp_ms)
    assert len(log.segments) == 1

    produce(log, b"x", timestamp_ms=at + 1)

    assert len(log.segments) == 2


def test_a_jitter_above_the_age_is_the_age_and_none_changes_nothing() -> None:
    wide = Settings(segment_ms=1000, segment_jitter_ms=10**15)
    assert all(0 < limit(log_named(f"a-{n}", wide)) <= 1000 for n in range(50))
    assert limit(log_named("a-1", Settings(segment_ms=1000))) == 1000
