"""A worker thread whose jobs are done when the test says so, on the test's own thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class ManualWorker:
    """As `broker.workers.Worker`. What it tells the loop is told at once."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def run(
        self,
        job: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        self.jobs.append((job, done))

    def do_one(self) -> None:
        """Do the job that has waited for longest, and tell."""
        job, done = self.jobs.pop(0)
        done(job())

    def do_all(self) -> None:
        """Do all of them, and those that come from that."""
        while self.jobs:
            self.do_one()

    def lose_the_last_word(self) -> None:
        """Do what is queued and tell nobody, as at a stop."""
        for job, _ in self.jobs:
            job()
        self.jobs.clear()
