"""A limit on bytes per second, kept without a real second passing."""

from __future__ import annotations

from broker.background.paced_files import Pace, PacedFilesystem
from tests.support.memory_filesystem import MemoryFilesystem


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.now_s += seconds


def paced(clock: Clock, rate: float | None) -> Pace:
    return Pace(rate, now_s=lambda: clock.now_s, sleep=clock.sleep)


def test_who_is_too_fast_waits() -> None:
    clock = Clock()
    pace = paced(clock, 1000.0)
    for _ in range(50):
        pace.passed(100)
    assert 4.9 <= clock.slept_s <= 5.0


def test_time_without_work_is_not_saved_up() -> None:
    clock = Clock()
    pace = paced(clock, 1000.0)
    clock.now_s += 3600
    pace.passed(2000)
    assert clock.slept_s == 2.0


def test_who_is_slower_never_waits() -> None:
    clock = Clock()
    pace = paced(clock, 1000.0)
    for _ in range(50):
        clock.now_s += 0.02
        pace.passed(10)
    assert clock.slept_s == 0


def test_without_a_limit_nobody_waits() -> None:
    clock = Clock()
    paced(clock, None).passed(1 << 40)
    assert clock.slept_s == 0


def test_reads_and_writes_go_through_and_all_else_too() -> None:
    inner = MemoryFilesystem()
    files = PacedFilesystem(inner, 1e9)
    files.make_dir("/d")
    file = files.open_file("/d/f", create=True)
    file.write_at([b"ab", b"cd"], 0)
    file.sync()
    file.close()
    file = files.open_to_read("/d/f")
    assert (file.pread(2, 1), file.size()) == (b"bc", 4)
    file.close()
    assert files.list_dir("/d") == ["f"]
