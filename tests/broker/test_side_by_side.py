"""Syncs of many files run side by side, and all are done when the call returns."""

from __future__ import annotations

import errno
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from broker.workers import SYNCS_AT_ONCE, SideBySide

if TYPE_CHECKING:
    from typing import NoReturn


def test_jobs_run_at_the_same_time_and_are_done_in_the_end() -> None:
    run_all = SideBySide()
    together = threading.Barrier(SYNCS_AT_ONCE, timeout=10)
    done: list[int] = []

    def job(number: int) -> None:
        together.wait()  # breaks unless so many are under way at once
        done.append(number)

    run_all([partial(job, number) for number in range(2 * SYNCS_AT_ONCE)])
    run_all.stop()

    assert sorted(done) == list(range(2 * SYNCS_AT_ONCE))


def test_a_single_job_needs_no_thread() -> None:
    where: list[threading.Thread] = []

    SideBySide()([lambda: where.append(threading.current_thread())])

    assert where == [threading.current_thread()]


def test_jobs_are_done_one_by_one_where_the_system_has_no_room_for_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_room(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_room)
    done: list[int] = []

    SideBySide()([partial(done.append, number) for number in range(3)])

    assert done == [0, 1, 2]


def test_no_jobs_are_done_at_once() -> None:
    SideBySide()([])


def test_what_one_of_them_raises_comes_when_all_are_done() -> None:
    run_all = SideBySide()
    done: list[int] = []

    def job(number: int) -> None:
        if number == 1:
            raise OSError(errno.EIO, "Input/output error")
        done.append(number)

    with pytest.raises(OSError, match="Input/output error"):
        run_all([partial(job, number) for number in range(5)])
    run_all.stop()

    assert sorted(done) == [0, 2, 3, 4]
