"""A command `copy`, whose job does without Spark what a test wants."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import session
from pipeline.console import cli_flags, cli_jobs, preflight
from pipeline.console.cli_jobs import Job
from pipeline.errors import Failure
from pipeline.outcome import BatchDone, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pipeline.outcome import Outcome, Watch

Capture = pytest.CaptureFixture[str]
Runs = list[dict[str, Any]]

FLAGS = (
    cli_flags.FROM,
    cli_flags.TOPIC,
    cli_flags.MAX_OFFSETS,
    cli_flags.SINCE,
    cli_flags.COMMITTED,
    cli_flags.EVERY,
    cli_flags.Flag("--to", "to", "where to", required=True),
)


@dataclasses.dataclass
class Made:
    """A job that does what a test wants when it is checked and run."""

    given: Mapping[str, Any]
    on_check: Callable[[], None] = lambda: None
    on_run: Callable[[], None] = lambda: None

    def check(self) -> None:
        self.on_check()

    def run(self, spark: object, watch: Watch) -> Outcome:
        tally = Tally("copy", watch)
        tally.total(300)
        tally.batch(BatchDone(0, 100, 1000, 0.5, 100))
        self.on_run()
        tally.batch(BatchDone(1, 200, 2000, 0.5, 200))
        return tally.outcome()


def copy_job(
    monkeypatch: pytest.MonkeyPatch,
    on_check: Callable[[], None] = lambda: None,
    on_run: Callable[[], None] = lambda: None,
) -> Runs:
    """A command `copy`, run without Spark; what it was given each time."""
    runs: Runs = []

    def make(given: Mapping[str, Any]) -> Made:
        runs.append(dict(given))
        return Made(given, on_check, on_run)

    @contextlib.contextmanager
    def no_session(**where: object) -> Iterator[None]:
        yield None

    monkeypatch.setitem(cli_jobs.JOBS, "copy", Job("copy", "copies", "  copy it\n", FLAGS, make))
    monkeypatch.setattr(session, "session", no_session)
    monkeypatch.setattr(preflight, "check", lambda where: None)
    return runs


def failing(failure: Failure) -> Callable[[], None]:
    def fail() -> None:
        raise failure

    return fail
