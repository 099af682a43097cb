"""Trust in the wall clock when something is deleted for its age."""

from __future__ import annotations

import pytest

from storage.errors import MalformedFile
from storage.trusted_time import SLACK_MS, ClockState, TrustedTime, read_clock_state
from tests.support.memory_filesystem import MemoryFilesystem

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
PATH = "/data/clock-checkpoint"


class Clocks:
    """A wall clock that can be set, beside one that only counts."""

    def __init__(self, stored: ClockState | None = None, *, wall_ms: int = NOW_MS) -> None:
        self.wall_ms, self.elapsed_ms, self.wait_ms = wall_ms, 0, DAY_MS
        self.time = TrustedTime(stored, wall_ms=wall_ms, elapsed_ms=0, wait_ms=DAY_MS)

    def passed(self, ms: int, *, set_by: int = 0) -> int:
        """So much time passes and the clock is set by so much; the time that is believed then."""
        self.wall_ms += ms + set_by
        self.elapsed_ms += ms
        return self.believed()

    def believed(self) -> int:
        return self.time.now_ms(
            wall_ms=self.wall_ms, elapsed_ms=self.elapsed_ms, wait_ms=self.wait_ms
        )


def test_a_clock_that_goes_is_believed() -> None:
    clocks = Clocks()
    for hours in range(1, 100):
        assert clocks.passed(HOUR_MS) == NOW_MS + hours * HOUR_MS
    assert clocks.time.jump_ms == 0


def test_a_clock_that_is_put_right_by_seconds_is_believed() -> None:
    clocks = Clocks()
    assert clocks.passed(HOUR_MS, set_by=30_000) == NOW_MS + HOUR_MS + 30_000
    assert clocks.passed(HOUR_MS, set_by=-SLACK_MS) == NOW_MS + 2 * HOUR_MS + 30_000 - SLACK_MS


def test_a_jump_ahead_is_not_believed_until_it_has_lasted() -> None:
    clocks = Clocks()
    assert clocks.passed(HOUR_MS, set_by=10 * YEAR_MS) == NOW_MS + HOUR_MS
    assert clocks.time.jump_ms == 10 * YEAR_MS
    assert clocks.passed(DAY_MS - 1) == NOW_MS + HOUR_MS + DAY_MS - 1
    assert clocks.passed(1) == clocks.wall_ms
    assert clocks.time.jump_ms == 0


def test_a_jump_that_is_taken_back_leaves_nothing() -> None:
    clocks = Clocks()
    clocks.passed(HOUR_MS, set_by=10 * YEAR_MS)
    clocks.passed(HOUR_MS, set_by=-10 * YEAR_MS)
    assert clocks.believed() == NOW_MS + 2 * HOUR_MS
    assert clocks.time.jump_ms == 0
    assert clocks.passed(2 * DAY_MS) == clocks.wall_ms


def test_another_jump_begins_the_wait_anew() -> None:
    clocks = Clocks()
    clocks.passed(0, set_by=YEAR_MS)
    clocks.passed(DAY_MS - 1, set_by=9 * YEAR_MS)
    assert clocks.passed(HOUR_MS) == NOW_MS + DAY_MS - 1 + HOUR_MS
    assert clocks.passed(DAY_MS - HOUR_MS) == clocks.wall_ms


def test_a_clock_that_went_back_is_taken_at_its_word() -> None:
    clocks = Clocks()
    assert clocks.passed(HOUR_MS, set_by=-YEAR_MS) == NOW_MS + HOUR_MS - YEAR_MS
    assert clocks.time.jump_ms == -YEAR_MS
    assert clocks.passed(HOUR_MS, set_by=YEAR_MS) == NOW_MS + 2 * HOUR_MS
    assert clocks.time.jump_ms == 0


def test_no_wait_believes_the_clock_at_once_and_it_stays_believed() -> None:
    clocks = Clocks()
    clocks.passed(0, set_by=YEAR_MS)
    clocks.wait_ms = 0
    assert clocks.believed() == clocks.wall_ms
    clocks.wait_ms = DAY_MS
    assert clocks.passed(HOUR_MS) == clocks.wall_ms


def test_a_broker_that_was_off_for_less_than_the_wait_holds_nothing_back() -> None:
    clocks = Clocks(ClockState(NOW_MS, NOW_MS), wall_ms=NOW_MS + DAY_MS)
    assert clocks.believed() == NOW_MS + DAY_MS


def test_after_a_longer_time_off_time_goes_on_from_where_it_stopped_for_the_wait() -> None:
    clocks = Clocks(ClockState(NOW_MS, NOW_MS), wall_ms=NOW_MS + 20 * DAY_MS)
    assert clocks.passed(HOUR_MS) == NOW_MS + HOUR_MS
    assert clocks.time.jump_ms == 20 * DAY_MS
    assert clocks.passed(DAY_MS) == clocks.wall_ms


def test_the_wait_goes_on_over_restarts_of_each_day() -> None:
    clocks = Clocks(ClockState(NOW_MS, NOW_MS), wall_ms=NOW_MS + 20 * DAY_MS)
    clocks.passed(2 * HOUR_MS)
    again = Clocks(clocks.time.state(), wall_ms=clocks.wall_ms + 20 * HOUR_MS)
    assert again.passed(HOUR_MS) == NOW_MS + 3 * HOUR_MS
    again = Clocks(again.time.state(), wall_ms=again.wall_ms + 20 * HOUR_MS)
    assert again.believed() == again.wall_ms


def test_a_clock_that_was_put_right_while_the_broker_was_off_is_believed() -> None:
    clocks = Clocks()
    clocks.passed(HOUR_MS, set_by=10 * YEAR_MS)
    again = Clocks(clocks.time.state(), wall_ms=NOW_MS + 3 * HOUR_MS)
    assert again.believed() == NOW_MS + 3 * HOUR_MS


def test_a_machine_that_starts_in_1970_and_asks_for_the_time_then_holds_nothing_back() -> None:
    clocks = Clocks(ClockState(NOW_MS, NOW_MS), wall_ms=0)
    assert clocks.passed(1000) == 1000
    assert clocks.passed(1000, set_by=NOW_MS) == clocks.wall_ms
    assert clocks.time.jump_ms == 0


def test_what_is_noted_is_read_back() -> None:
    files = MemoryFilesystem()
    files.make_dir("/data")
    for state in (ClockState(NOW_MS, NOW_MS), ClockState(NOW_MS, NOW_MS + YEAR_MS, NOW_MS + 5)):
        files.write_atomic(PATH, state.encode())
        assert read_clock_state(files, "/data") == state


def test_a_new_directory_has_no_time() -> None:
    assert read_clock_state(MemoryFilesystem(), "/data") is None


@pytest.mark.parametrize("data", [None, b"", b"0\n1\n17000", b"0\n1\n-5 1 -1\n", b"\xff\n"])
def test_without_a_good_file_the_newest_checkpoint_tells_the_time(data: bytes | None) -> None:
    files = MemoryFilesystem()
    files.make_dir("/data")
    if data is not None:
        files.write_atomic(PATH, data)
        with pytest.raises(MalformedFile):
            ClockState.decode(data, PATH)
    files.write_atomic("/data/meta.properties", b"")
    files.set_modified_ms("/data/meta.properties", NOW_MS - DAY_MS)
    files.write_atomic("/data/recovery-point-offset-checkpoint", b"")
    files.set_modified_ms("/data/recovery-point-offset-checkpoint", NOW_MS)
    assert read_clock_state(files, "/data") == ClockState(NOW_MS, NOW_MS)


def test_every_flipped_bit_of_the_file_only_holds_back() -> None:
    data = ClockState(NOW_MS, NOW_MS).encode()
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            try:
                stored = ClockState.decode(bytes(flipped), PATH)
            except MalformedFile:
                continue
            clocks = Clocks(stored)
            assert clocks.passed(1000) <= clocks.wall_ms
