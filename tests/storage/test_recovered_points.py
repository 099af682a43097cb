"""What a start after a crash has looked through, the next one does not look through again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.records.layout import HEADER_SIZE
from storage import closing
from storage.closing import store_for_recovery
from storage.producers import REMEMBERED_BATCHES
from storage.recovery import LastKnown, open_log
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    append,
    batch,
    everything,
    header_of,
    opened,
)
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from storage.log import Log

SETTINGS = Settings(segment_bytes=4000, index_interval_bytes=200)
WRITTEN = 120
PRODUCER_ID, OTHER_ID = 7, 8


def fill(log: Log, first: int, count: int, *, abort_every: int = 0) -> None:
    """Batches of a producer; every so many a transaction of another one that is aborted."""
    for sequence in range(first, first + count):
        time_ms = NOW_MS + log.next_offset
        append(
            log,
            batch(b"%050d" % sequence, producer=(PRODUCER_ID, 0, sequence), timestamp_ms=time_ms),
        )
        if abort_every and sequence % abort_every == 0:
            own = sequence // abort_every
            sent = batch(
                b"o", producer=(OTHER_ID, 0, own), transactional=True, timestamp_ms=time_ms
            )
            append(log, sent)
            log.append_marker(OTHER_ID, 0, commit=False, coordinator_epoch=0, now_ms=time_ms)
    log.write()


def started(
    files: MemoryFilesystem, point: int, *, synced: int = 0, start: int | None = None
) -> Log:
    """What a start finds after the process was killed of which these offsets were noted."""
    files.kill()
    known = LastKnown(
        recovery_point=point, was_clean=False, gaps_below=0, synced=synced, start_offset=start
    )
    log, reports = open_log(files, FOLDER, SETTINGS, known=known, now_ms=NOW_MS)
    assert reports == []
    return log


def trusted_from(log: Log) -> tuple[str, int]:
    """The last index entry, from which a start has to read that trusts all that is there now."""
    segment = log.segments.loaded_one(log.active)
    return segment.path(), segment.offsets.last_position


@pytest.mark.parametrize("abort_every", [0, 10])
def test_a_second_start_reads_nothing_of_a_log_that_the_first_has_read(abort_every: int) -> None:
    files = MemoryFilesystem()
    log = opened(files, SETTINGS)
    fill(log, 0, WRITTEN, abort_every=abort_every)
    first = started(files, 0, synced=log.next_offset)
    found = first.next_offset
    assert len(first.segments) > 2

    first.sync()
    point = first.covered_point
    assert point == found
    trusted = trusted_from(first)
    fill(first, WRITTEN, 20, abort_every=abort_every)  # and not synced, when it is killed
    files.reads.clear()
    second = started(files, point)

    read = [
        (name, at)
        for name, at, size in files.reads
        if name.endswith(".log") and size > HEADER_SIZE  # else it is one header, of the first batch
    ]
    assert read
    assert [one for one in read if one < trusted] == []
    assert second.next_offset == first.next_offset
    assert second.producers.encode() == first.producers.encode()
    assert everything(second) == everything(first)
    wanted = first.aborted_transactions(0, first.next_offset)
    assert second.aborted_transactions(0, second.next_offset) == wanted
    assert bool(wanted) is bool(abort_every)


def test_what_is_not_synced_is_not_covered() -> None:
    files = MemoryFilesystem()
    fill(opened(files, SETTINGS), 0, WRITTEN)
    log = started(files, 0)
    steps, up_to = log.unsynced()
    assert log.covered_point == 0

    for step in steps:
        step.sync()
        assert log.covered_point == 0
    log.synced(up_to)

    assert log.covered_point == log.next_offset


def test_what_a_producer_may_send_again_is_known_after_starts_that_follow_each_other() -> None:
    files = MemoryFilesystem()
    log = opened(files, SETTINGS)
    fill(log, 0, WRITTEN)
    synced = log.next_offset
    fill(log, WRITTEN, REMEMBERED_BATCHES)  # on their way, and not answered
    first = started(files, 0, synced=synced)
    first.sync()

    second = started(files, first.covered_point, synced=first.recovery_point)

    expect_to_know_the_last(second)


def test_what_a_producer_may_send_again_is_known_after_a_checkpoint_of_just_before_the_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing, "INDEX_LAG_ENTRIES", 1)
    files = MemoryFilesystem()
    log = opened(files, SETTINGS)
    for first, count in ((0, WRITTEN), (WRITTEN, REMEMBERED_BATCHES)):
        noted = log.recovery_point
        fill(log, first, count)
        log.sync()
        for cover in store_for_recovery(log):
            cover.sync()
    assert files.exists(f"{FOLDER}/{log.next_offset:020}.snapshot")

    expect_to_know_the_last(started(files, noted, synced=noted))


@pytest.mark.parametrize("synced", [0, WRITTEN])
def test_what_a_producer_may_send_again_is_known_after_the_first_roll_of_just_before_the_crash(
    synced: int,
) -> None:
    files = MemoryFilesystem()
    log = opened(files, Settings())
    fill(log, 0, WRITTEN)
    log.sync()
    fill(log, WRITTEN, REMEMBERED_BATCHES - 1)  # on their way, and not answered
    log.roll(now_ms=NOW_MS)
    fill(log, WRITTEN + REMEMBERED_BATCHES - 1, 1)

    expect_to_know_the_last(started(files, 0, synced=synced))


def test_what_a_producer_may_send_again_is_known_though_the_log_starts_behind_it() -> None:
    files = MemoryFilesystem()
    log = opened(files, Settings())
    fill(log, 0, WRITTEN + REMEMBERED_BATCHES)
    log.sync()
    log.delete_records(log.next_offset)

    expect_to_know_the_last(started(files, 0, start=log.start_offset))


def expect_to_know_the_last(log: Log) -> None:
    """The last batches of the producer, each as what is in the log already."""
    for sequence in range(WRITTEN, WRITTEN + REMEMBERED_BATCHES):
        again = header_of(batch(b"%050d" % sequence, producer=(PRODUCER_ID, 0, sequence)))
        found = log.producers.check(again)
        assert found is not None
        assert found.base_offset == sequence


def test_starts_that_follow_each_other_leave_two_snapshots() -> None:
    files = MemoryFilesystem()
    settings = Settings()
    log = opened(files, settings)
    for start in range(1, 6):
        fill(log, 10 * (start - 1), 10)
        files.kill()
        known = LastKnown(was_clean=False, gaps_below=0, synced=10 * start)
        log, _ = open_log(files, FOLDER, settings, known=known, now_ms=NOW_MS)
        log.sync()

    found = [name for name in files.list_dir(FOLDER) if name.endswith(".snapshot")]
    assert found == [f"{40:020}.snapshot", f"{50:020}.snapshot"]
