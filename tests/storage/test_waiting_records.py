"""Records that wait for somebody who wants them, within two bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage.retention import RetentionRules, retained_from
from storage.waiting_records import WaitBounds, Waiting, waiting_records
from tests.storage.logs import Settings
from tests.storage.test_retention import MINUTE_MS, RetainedLog

AMPLE = WaitBounds(1 << 40, 1 << 40)
ALL_DUE = RetentionRules(retention_ms=0)


def filled(sets: list[int], *, segment_bytes: int = 1 << 20) -> RetainedLog:
    """A log with a batch of each of these numbers of records, a minute apart."""
    world = RetainedLog(settings=Settings(segment_bytes=segment_bytes, index_interval_bytes=100))
    for count in sets:
        world.send(*[world.now_ms] * count)
        world.wait(MINUTE_MS)
    world.files.sync_all()
    return world


def look(world: RetainedLog, wanted: int, bounds: WaitBounds = AMPLE, due: int = -1) -> Waiting:
    log = world.log
    due = log.written_offset if due < 0 else due
    return waiting_records(log, due, wanted, bounds, now_ms=world.now_ms)


def batch_sizes(world: RetainedLog) -> list[tuple[int, int]]:
    """First offset and size of each batch, through a walk over the files."""
    return [
        (entry.first_offset, entry.size)
        for segment in world.log.segments
        for entry in segment.verified.entries_from(segment.base_offset)
    ]


def test_nothing_waits_where_all_that_is_due_is_not_wanted() -> None:
    world = filled([1] * 10)
    assert look(world, wanted=7, due=5) == Waiting(5, 5)
    assert look(world, wanted=5, due=5) == Waiting(5, 5)


def test_what_is_wanted_waits_to_the_record_also_inside_a_batch() -> None:
    world = filled([10])
    size = batch_sizes(world)[0][1]
    assert look(world, wanted=4) == Waiting(4, 10, size)


def test_what_lies_below_the_log_start_is_no_longer_waited_for() -> None:
    world = filled([1] * 10)
    world.log.delete_records(6)
    assert look(world, wanted=2, due=8).kept_from == 6


def test_above_the_bound_of_bytes_the_oldest_batches_go_and_the_bound_holds() -> None:
    world = filled([1] * 30, segment_bytes=500)
    assert len(world.log.segments) > 3
    size = batch_sizes(world)[0][1]

    found = look(world, wanted=3, bounds=WaitBounds(size * 5 + 1, 1 << 40), due=20)

    assert found == Waiting(15, 20, size * 5, "bytes", 12)
    assert look(world, wanted=3, bounds=WaitBounds(0, 1 << 40), due=20).kept_from == 20


def test_above_the_bound_of_age_the_oldest_records_go() -> None:
    world = filled([1] * 30)
    found = look(world, wanted=3, bounds=WaitBounds(1 << 40, 20 * MINUTE_MS), due=25)
    assert found.kept_from == retained_from(
        world.log, RetentionRules(retention_ms=20 * MINUTE_MS), now_ms=world.now_ms
    )
    assert (found.kept_from, found.exceeded, found.lost) == (10, "ms", 7)


@given(
    sets=st.lists(st.integers(1, 4), min_size=1, max_size=25),
    segment_bytes=st.integers(250, 2000),
    wanted=st.integers(0, 100),
    due=st.integers(0, 100),
    max_bytes=st.integers(0, 3000),
)
def test_the_bound_of_bytes_always_holds_and_no_more_goes_than_it_takes(
    sets: list[int], segment_bytes: int, wanted: int, due: int, max_bytes: int
) -> None:
    world = filled(sets, segment_bytes=segment_bytes)
    end = world.log.written_offset
    due = min(due, end)

    found = look(world, wanted, WaitBounds(max_bytes, 1 << 40), due=due)

    assert min(wanted, due) <= found.kept_from <= due
    sizes = [
        (first, following, size)
        for (first, size), following in zip(
            batch_sizes(world), [*(first for first, _ in batch_sizes(world)[1:]), end], strict=True
        )
    ]
    starts = {first: size for first, _, size in sizes}

    def held(start: int) -> int:
        """Bytes from the batch with `start` to that with `due`, which stays anyway."""
        return sum(size for _, after, size in sizes if after > start and after <= due)

    if found.kept_from == due:
        last = max((size for _, after, size in sizes if after <= due), default=0)
        assert wanted >= due or last > max_bytes or due not in {*starts, end}
        return
    assert found.byte_size == held(found.kept_from) <= max_bytes
    if found.kept_from > wanted:
        assert found.exceeded == "bytes"
        assert found.kept_from in starts
        assert held(found.kept_from - 1) > max_bytes
