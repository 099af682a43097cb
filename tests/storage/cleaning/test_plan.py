"""The part of a log that may be cleaned, and when cleaning is worth it (storage.md 7.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.cleaning.cleaning import Cleaning
from storage.cleaning.plan import CleaningLag, CleaningPlan, plan_cleaning
from storage.transaction_index import AbortedTransaction
from tests.storage.cleaning.partition import NOW_MS, rules
from tests.storage.logs import Settings, append, batch, new_log, produce

if TYPE_CHECKING:
    from storage.log import Log
    from tests.support.memory_filesystem import MemoryFilesystem

NO_LAG_LIMIT_MS = 2**63 - 1
ALWAYS = CleaningLag(0, NO_LAG_LIMIT_MS, 0.0)


def rolled(count: int = 4) -> tuple[MemoryFilesystem, Log]:
    """A log with `count` segments of one batch of 10 records, the last one active."""
    files, log = new_log(Settings())
    for number in range(count):
        if number:
            log.roll(now_ms=NOW_MS)
        files.mtime_ms = NOW_MS - 1000 * (count - number)
        produce(log, *[b"x" * 10] * 10, timestamp_ms=files.mtime_ms)
    log.sync()
    return files, log


def planned(log: Log, lag: CleaningLag = ALWAYS) -> CleaningPlan | None:
    return plan_cleaning(log, rules(), lag, now_ms=NOW_MS)


def span(plan: CleaningPlan | None) -> tuple[int, int] | None:
    return None if plan is None else (plan.first_dirty, plan.end)


def test_a_new_log_is_dirty_from_its_start_to_its_active_segment() -> None:
    files, log = rolled()
    plan = planned(log)
    assert plan is not None
    assert span(plan) == (0, 30)
    assert [source.base_offset for source in plan.sources] == [0, 10, 20]
    assert [source.modified_ms for source in plan.sources] == [
        NOW_MS - n for n in (4000, 3000, 2000)
    ]
    assert plan.dirty_ratio == 1.0
    done = Cleaning(files, plan)
    assert [group.sources for group in done.groups()] == [[0, 10, 20]]
    assert done.cleaned_to == 30


@pytest.mark.parametrize(("cleaned_to", "first_dirty"), [(20, 20), (3, 5), (99, 5), (None, 5)])
def test_a_checkpoint_outside_of_the_log_is_not_believed(
    cleaned_to: int | None, first_dirty: int
) -> None:
    _, log = rolled()
    log.delete_records(5)
    log.cleaned_to = cleaned_to
    plan = planned(log)
    assert span(plan) == (first_dirty, 30)
    assert plan is not None
    assert plan.start_offset == 5
    assert len(plan.sources) == 3


def test_nothing_is_dirty_after_a_cleaning_and_with_the_active_segment_alone() -> None:
    _, log = rolled()
    log.cleaned_to = 30
    assert planned(log) is None
    assert planned(rolled(1)[1]) is None


def test_an_open_transaction_holds_back_its_segment() -> None:
    _, log = rolled(2)
    append(log, batch(b"t", producer=(5, 0, 0), transactional=True))
    log.write()
    log.roll(now_ms=NOW_MS)
    produce(log, b"x")
    log.roll(now_ms=NOW_MS)
    assert log.last_stable_offset == 20
    assert span(planned(log)) == (0, 10)


def test_the_plan_knows_of_transactions_that_were_aborted_later() -> None:
    _, log = rolled(1)
    append(log, batch(b"t", producer=(5, 0, 0), transactional=True))
    append(log, batch(b"t", producer=(6, 0, 0)))
    log.write()
    log.roll(now_ms=NOW_MS)
    log.append_marker(5, 0, commit=False, coordinator_epoch=0, now_ms=NOW_MS)
    log.write()
    plan = planned(log)
    assert plan is not None
    assert span(plan) == (0, 12)
    assert plan.aborted == [AbortedTransaction(5, 10, 12, 13)]
    assert plan.producers == {5: (0, 10), 6: (0, 11)}
    assert CleaningPlan.from_json(plan.as_json()) == plan


def test_what_is_younger_than_the_minimum_lag_is_left_alone() -> None:
    _, log = rolled()
    assert span(planned(log, CleaningLag(2500, NO_LAG_LIMIT_MS, 0.0))) == (0, 20)
    assert span(planned(log, CleaningLag(2000, NO_LAG_LIMIT_MS, 0.0))) == (0, 30)
    assert planned(log, CleaningLag(5000, NO_LAG_LIMIT_MS, 0.0)) is None


def test_a_log_is_worth_it_from_its_share_of_dirty_bytes_on() -> None:
    _, log = rolled()
    log.cleaned_to = 20
    plan = planned(log)
    assert plan is not None
    assert plan.dirty_ratio == pytest.approx(1 / 3)
    assert planned(log, CleaningLag(0, NO_LAG_LIMIT_MS, plan.dirty_ratio)) is None
    assert planned(log, CleaningLag(0, NO_LAG_LIMIT_MS, 0.33)) == plan


def test_a_log_is_worth_it_when_something_waits_longer_than_the_maximum_lag() -> None:
    _, log = rolled()
    assert planned(log, CleaningLag(0, 4001, 1.0)) is None
    assert span(planned(log, CleaningLag(0, 3999, 1.0))) == (0, 30)
    log.cleaned_to = 20
    assert planned(log, CleaningLag(0, 2001, 1.0)) is None
    assert span(planned(log, CleaningLag(0, 1999, 1.0))) == (20, 30)
