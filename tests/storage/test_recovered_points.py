"""What a start after a crash has looked through, the next one does not look through again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.records.layout import HEADER_SIZE
from storage.recovery import LastKnown, open_log
from tests.storage.logs import FOLDER, NOW_MS, Settings, append, batch, everything, opened
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


def started(files: MemoryFilesystem, point: int) -> Log:
    """What a start finds after the process was killed whose recovery point was noted so."""
    files.kill()
    known = LastKnown(recovery_point=point, was_clean=False, gaps_below=0)
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
    fill(opened(files, SETTINGS), 0, WRITTEN, abort_every=abort_every)
    first = started(files, 0)
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


def test_starts_that_follow_each_other_leave_two_snapshots() -> None:
    files = MemoryFilesystem()
    files.make_dir(FOLDER)
    settings = Settings()
    log = opened(files, settings)
    for start in range(5):
        fill(log, 10 * start, 10)
        files.kill()
        known = LastKnown(was_clean=False, gaps_below=0)  # nobody has noted anything
        log, _ = open_log(files, FOLDER, settings, known=known, now_ms=NOW_MS)
        log.sync()

    found = [name for name in files.list_dir(FOLDER) if name.endswith(".snapshot")]
    assert len(found) <= 2
    assert f"{50:020}.snapshot" in found
