"""Syncs of many files run side by side, and all are done when the call returns."""

from __future__ import annotations

import concurrent.futures
import errno
import threading
from functools import partial
from typing import TYPE_CHECKING

from broker.workers import SYNCS_AT_ONCE, SideBySide

if TYPE_CHECKING:
    from typing import NoReturn

    import pytest


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


def test_jobs_are_done_one_by_one_where_no_file_can_be_opened_to_import_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_descriptor(name: str) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files", name)

    monkeypatch.delattr(concurrent.futures, "ThreadPoolExecutor", raising=False)
    monkeypatch.setattr(concurrent.futures, "__getattr__", no_descriptor)
    done: list[int] = []

    SideBySide()([partial(done.append, number) for number in range(3)])

    assert done == [0, 1, 2]
