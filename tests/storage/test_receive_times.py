"""The file and the stretches that say when a log's records came in."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from storage.errors import MalformedFile
from storage.receive_times import LEAST_MS, PARTS, STRETCHES_MAX, decode
from storage.recovery import LastKnown, open_log
from tests.storage.logs import FOLDER, NOW_MS, Settings, append, batch, new_log, opened

if TYPE_CHECKING:
    from storage.log import Log
    from storage.receive_times import Stretch

PATH = f"{FOLDER}/receive-times-checkpoint"
GOOD = b"0\n3\n0 100 200\n7 250 300\n9 300 300\n"
DAY_MS = 24 * 3600 * 1000


def put(log: Log, now_ms: int) -> None:
    append(log, batch(timestamp_ms=-1), now_ms=now_ms)
    log.write()


def told(stretches: list[Stretch]) -> list[tuple[int, int, int]]:
    return [(one.offset, one.first_ms, one.last_ms) for one in stretches]


def test_the_file_is_written_at_a_roll_and_at_a_clean_stop() -> None:
    files, log = new_log(Settings(segment_bytes=2 * len(batch())))
    put(log, NOW_MS)
    put(log, NOW_MS + 10)
    assert not files.exists(PATH)
    put(log, NOW_MS + 5000)  # into a new segment
    log.sync()
    assert files.read_bytes(PATH) == (
        f"0\n2\n0 {NOW_MS} {NOW_MS + 10}\n2 {NOW_MS + 10} {NOW_MS + 10}\n".encode()
    )

    put(log, NOW_MS + 5010)
    log.close(clean=True)

    late = NOW_MS + 5000
    assert told(decode(files.read_bytes(PATH), PATH)) == [
        (0, NOW_MS, NOW_MS + 10),
        (2, late, late + 10),
        (4, late + 10, late + 10),
    ]


def test_a_log_that_was_only_opened_writes_nothing() -> None:
    files, log = new_log()
    put(log, NOW_MS)
    log.close(clean=True)
    before = len(files.calls)

    opened(files).close(clean=False)

    assert not [call for call in files.calls[before:] if "receive-times" in str(call)]


def test_a_restart_goes_on_where_the_file_ends() -> None:
    files, log = new_log()
    put(log, NOW_MS)
    log.close(clean=True)
    log = opened(files)
    put(log, NOW_MS + 1)

    stretches = log.received.stretches(log, now_ms=NOW_MS + 2)

    assert told(stretches) == [(0, NOW_MS, NOW_MS), (1, NOW_MS + 1, NOW_MS + 1)]


def test_a_segment_without_timestamps_goes_on_ageing_over_restarts() -> None:
    settings = Settings(segment_ms=10 * DAY_MS)
    files, log = new_log(settings)
    put(log, NOW_MS)

    for day in range(4, 20, 4):
        log.close(clean=True)
        log = opened(files, settings, now_ms=NOW_MS + day * DAY_MS)
        put(log, NOW_MS + day * DAY_MS)

    # The one of day 12 is the first for which the segment is too old.
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_a_segment_without_timestamps_ages_after_a_crash_by_when_its_file_was_last_written() -> (
    None
):
    settings = Settings(segment_ms=10 * DAY_MS)
    files, log = new_log(settings)
    put(log, NOW_MS)
    log.close(clean=False)
    files.set_modified_ms(f"{FOLDER}/00000000000000000000.log", NOW_MS)

    log = opened(files, settings, now_ms=NOW_MS + 11 * DAY_MS)
    put(log, NOW_MS + 11 * DAY_MS)

    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_a_clock_that_was_put_back_does_not_make_a_segment_older() -> None:
    _, log = new_log(Settings(segment_ms=DAY_MS))
    put(log, NOW_MS + 3650 * DAY_MS)
    put(log, NOW_MS)
    put(log, NOW_MS + 1)
    put(log, NOW_MS + DAY_MS + 2)

    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_what_the_file_does_not_tell_of_came_in_before_the_log_file_was_last_changed() -> None:
    files, log = new_log(Settings(segment_bytes=2 * len(batch())))
    put(log, NOW_MS)
    put(log, NOW_MS)
    put(log, NOW_MS + 100)
    log.sync()
    files.mtime_ms = NOW_MS + 700
    put(log, NOW_MS + 700)
    log.close(clean=False)
    log, _ = open_log(files, FOLDER, Settings(), now_ms=NOW_MS)

    stretches = log.received.stretches(log, now_ms=NOW_MS + DAY_MS)

    assert told(stretches) == [(0, NOW_MS, NOW_MS), (2, NOW_MS, NOW_MS + 700)]


def test_a_file_of_a_longer_log_says_nothing_of_what_comes_in_later() -> None:
    files, log = new_log()
    for number in range(5):
        put(log, NOW_MS + number * DAY_MS)
    log.close(clean=True)
    name = f"{FOLDER}/{0:020d}.log"
    files.write_bytes(name, files.read_bytes(name)[: 2 * len(batch())])
    log, _ = open_log(files, FOLDER, Settings(), now_ms=NOW_MS)
    assert log.next_offset == 2

    for number in range(5, 9):
        put(log, NOW_MS + number * DAY_MS)

    stretches = log.received.stretches(log, now_ms=NOW_MS + 9 * DAY_MS)
    assert [one.offset for one in stretches] == [0, 1, 2, 3, 4, 5]
    assert stretches[3].first_ms == NOW_MS + 6 * DAY_MS


def test_a_file_that_outlived_its_records_is_cut_before_their_offsets_are_given_out_again() -> None:
    files, log = new_log()
    for number in range(5):
        put(log, NOW_MS + number * DAY_MS)
    log.close(clean=True)
    name = f"{FOLDER}/{0:020d}.log"
    files.write_bytes(name, files.read_bytes(name)[: 2 * len(batch())])
    log, _ = open_log(files, FOLDER, Settings(), now_ms=NOW_MS)
    files.mtime_ms = NOW_MS + 9 * DAY_MS
    for _ in range(4):
        put(log, files.mtime_ms)
    log.close(clean=False)

    log, _ = open_log(files, FOLDER, Settings(), now_ms=NOW_MS)

    stretches = log.received.stretches(log, now_ms=NOW_MS + 9 * DAY_MS)
    assert [one.last_ms for one in stretches if one.offset >= 2] == [NOW_MS + 9 * DAY_MS]


def test_stretches_below_the_log_start_are_dropped() -> None:
    _, log = new_log()
    for number in range(10):
        put(log, NOW_MS + number * DAY_MS)
    log.delete_records(7)

    stretches = log.received.stretches(log, now_ms=NOW_MS + 10 * DAY_MS)

    assert [one.offset for one in stretches] == [7, 8, 9]


def test_there_are_never_many_and_none_is_wide() -> None:
    rng = random.Random(7)
    files, log = new_log()
    now_ms, came = NOW_MS, []
    for _ in range(5000):
        now_ms += rng.choice((1, 10, 700, 5000, 100_000))
        put(log, now_ms)
        came.append(now_ms)
    log.close(clean=True)
    log = opened(files, known=LastKnown())

    stretches = log.received.stretches(log, now_ms=now_ms)

    assert 10 < len(stretches) <= STRETCHES_MAX + 1
    width_ms = max(LEAST_MS, (now_ms - NOW_MS) // PARTS)
    ends = [*(one.offset for one in stretches[1:]), len(came)]
    for stretch, end in zip(stretches, ends, strict=True):
        assert stretch.first_ms <= came[stretch.offset]
        assert came[end - 1] <= stretch.last_ms
        assert stretch.last_ms - stretch.first_ms <= width_ms


def test_a_good_file_is_read() -> None:
    assert told(decode(GOOD, PATH)) == [(0, 100, 200), (7, 250, 300), (9, 300, 300)]
    assert decode(b"", PATH) == []
    assert decode(b"0\n0\n", PATH) == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (GOOD[:-1], "cut"),
        (GOOD.replace(b"9 300", b"7 300"), "does not rise"),
        (GOOD.replace(b"100 200", b"100 99"), "does not rise"),
        (GOOD.replace(b"250 300\n9", b"150 300\n9"), "does not rise"),
        (GOOD.replace(b"0 100", b"-1 100"), "not an offset"),
        (GOOD.replace(b"0 100", b"0 -100"), "does not rise"),
        (GOOD.replace(b"0 100", b"x 100"), "not an offset"),
        (GOOD.replace(b"100", b"1e2"), "not a number"),
        (b"0\n1\n5 1 1\n", "no beginning"),
        (b"1\n0\n", "version"),
        (b"0\n2\n0 1 1\n", "promises"),
        (bytes(50), "cut"),
    ],
)
def test_a_bad_file_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedFile, match=reason):
        decode(data, PATH)


def test_a_cut_or_spoilt_file_never_passes_for_an_older_one() -> None:
    """Whatever part of a write reaches the disk: all of it, or the file counts as lost."""
    for size in range(1, len(GOOD)):
        for rest in (b"", bytes(len(GOOD) - size)):
            with pytest.raises(MalformedFile):
                decode(GOOD[:size] + rest, PATH)


def test_a_spoilt_file_is_told_of() -> None:
    files, log = new_log()
    put(log, NOW_MS)
    log.close(clean=True)
    files.write_bytes(PATH, b"what")
    log = opened(files)

    assert len(log.received.stretches(log, now_ms=NOW_MS)) == 1

    assert "cut" in (log.received.trouble or "")


def test_a_disk_that_refuses_the_file_stops_nobody() -> None:
    files, log = new_log(Settings(segment_bytes=2 * len(batch())))
    put(log, NOW_MS)
    put(log, NOW_MS)
    log.sync()
    put(log, NOW_MS)
    steps, up_to = log.unsynced()
    files.capacity = 0
    for step in steps:
        step.sync()
    log.synced(up_to)

    assert not files.exists(PATH)
    assert log.recovery_point == 3
