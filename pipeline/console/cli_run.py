"""A run of a command of `triglot pipeline`: checks, then Spark, then the job, then one line.

Neither Python's nor Java's stack traces reach the user. Failures are a line on standard error, and
with --json an object on standard output too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from pipeline.errors import Failure, NotInstalled, PipelineFailure, exit_code

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from client.cluster import TopicPartition
    from pipeline.console.cli_jobs import Job
    from pipeline.console.progress import Progress, Sample, View
    from pipeline.outcome import Outcome
    from pipeline.session import Where

    Draw = Callable[[Outcome, Sequence[Sample]], None]

TICK_S = 0.25
LAG_TIMEOUT_S = 5.0


class Stopped(KeyboardInterrupt):
    """SIGINT or SIGTERM has come; raised in the main thread, wherever that is."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def run_job(job: Job, arguments: argparse.Namespace) -> int:
    """Raises Failure, BrokenPipeError."""
    from pipeline.console import preflight, report
    from pipeline.console.progress import Both, Progress

    where = spark_of(arguments) if job.on_spark else None
    given = job.parameters(arguments)
    job.refuse(given)
    with _quiet(), _signals_raise() as catch_signals, contextlib.ExitStack() as open_:
        try:
            if where is not None:
                preflight.check(where)
            draw = None if arguments.report is None else report.writer(arguments.report)
            made = job.make(given)
            made.check()
            lag_of = _lag_of(arguments) if getattr(arguments, "every_s", None) else None
            view = _view(arguments)
            if arguments.metrics is not None:
                view = Both(view, open_.enter_context(_measured(job.name, arguments.metrics)))
            progress = Progress(job.name, view, lag_of=lag_of)
        except Stopped as stopped:
            return _tell_stopped(stopped, job, None, arguments.json)
        report_of = partial(_reported, draw, progress, as_json=arguments.json)
        try:
            with _ticking(progress):
                outcome = _run(made, progress, where, job.name, catch_signals)
        except BaseException as end:
            progress.close(None)
            report_of(progress.outcome())
            if isinstance(end, KeyboardInterrupt):
                return _tell_stopped(end, job, progress, arguments.json)
            raise
        progress.close(outcome)
        if not arguments.json:
            for line in outcome.lines():
                say(line, sys.stdout)
        told = report_of(outcome)
        failure = outcome.failure()
        return told if failure is None else tell_failure(failure, as_json=arguments.json)


def _run(
    made: Any, progress: Progress, where: Where | None, name: str, catch_signals: Callable[[], None]
) -> Outcome:
    from pipeline.session import session, tasks

    outcome: Outcome
    if where is None:
        outcome = made.run(None, progress)
        return outcome

    with session(
        master=where.master, remote=where.remote, conf=where.conf, name=f"triglot {name}"
    ) as spark:
        catch_signals()  # Spark has set a handler of its own
        progress.started(partial(tasks, spark) if sys.stderr.isatty() else None)
        outcome = made.run(spark, progress)
        return outcome


def _reported(draw: Draw | None, progress: Progress, outcome: Outcome, *, as_json: bool) -> int:
    """Write the report; returns the exit code. The outcome is not lost where that fails."""
    if draw is not None and progress.samples:
        try:
            draw(outcome, progress.samples)
        except Failure as failure:
            return tell_failure(failure, as_json=as_json)
    return 0


def run_doctor(arguments: argparse.Namespace) -> int:
    """Its exit code is that of the first thing that fails."""
    from pipeline.console import doctor

    with _quiet(), _signals_raise():
        found = []
        try:
            wanted = doctor.Wanted(*(getattr(arguments, name) for name in doctor.Wanted._fields))
            for finding in doctor.examine(spark_of(arguments), wanted):
                found.append(finding)
                if not arguments.json:
                    say(finding.line(), sys.stdout)
                    sys.stdout.flush()
        except Stopped as stopped:
            return 128 + stopped.number
    if arguments.json:
        _write_json({"findings": [finding._asdict() for finding in found]})
    return next((finding.exit for finding in found if finding.exit), 0)


def spark_of(arguments: argparse.Namespace) -> Where:
    """The Spark to run on, from the arguments."""
    from pipeline.session import Where

    return Where(arguments.master, arguments.remote, dict(arguments.conf))


def tell_failure(failure: Failure, *, as_json: bool) -> int:
    """Say it, and answer its exit code."""
    if as_json:
        _write_json(
            {
                "event": "error",
                "error": str(failure),
                "code": type(failure).__name__,
                "exit": exit_code(failure),
            }
        )
    _complain(str(failure))
    return exit_code(failure)


def unforeseen(error: Exception) -> Failure:
    """The failure that stands for what no part of the pipeline has made one of."""
    from pipeline.session import missing

    if isinstance(error, ImportError):
        return NotInstalled(missing(error))
    if isinstance(error, OSError) and error.strerror:
        return PipelineFailure(": ".join(filter(None, (error.filename, error.strerror))))
    descriptor, path = tempfile.mkstemp(prefix="triglot-pipeline-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        traceback.print_exception(error, file=stream)
    return PipelineFailure(
        f"a defect of triglot, {type(error).__name__}: {error} (where it was: {path})"
    )


def say(text: str, stream: TextIO) -> None:
    """One line. Topics and paths may hold anything, also what a terminal would obey."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    encoding = stream.encoding or "utf-8"
    stream.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def _tell_stopped(
    stopped: KeyboardInterrupt, job: Job, progress: Progress | None, as_json: bool
) -> int:
    # While Spark starts, a handler of its own can be the one that catches Ctrl-C.
    exit_code = 128 + (stopped.number if isinstance(stopped, Stopped) else signal.SIGINT)
    done = None if progress is None else progress.outcome()
    if as_json:
        counts = {} if done is None else done.as_json()
        _write_json({"event": "stopped", **counts, "exit": exit_code})
    records = f" after {done.records:,} records" if done is not None and done.batches else ""
    _complain(f"{job.name} stopped{records}; {job.stopped}")
    return exit_code


def _complain(line: str) -> None:
    # Where nobody reads it, the exit code tells.
    with contextlib.suppress(OSError):
        say(f"triglot pipeline: {line}", sys.stderr)


def _write_json(content: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


def _view(arguments: argparse.Namespace) -> View:
    from pipeline.console import progress

    if arguments.json:
        return progress.JsonLines(sys.stdout)
    if arguments.quiet:
        return progress.Silence()
    if sys.stderr.isatty():
        return progress.TerminalLine(sys.stderr, _columns)
    return progress.Lines(sys.stderr)


@contextlib.contextmanager
def _measured(job: str, address: str) -> Iterator[View]:
    """A view that keeps metrics, which are answered at HOST:PORT."""
    from pipeline import metrics

    registry = metrics.new_registry()
    with metrics.served(address, registry):
        yield metrics.JobMetrics(job, registry)


def _columns() -> int:
    # shutil asks standard output alone, which may be a file.
    with contextlib.suppress(OSError, ValueError):
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
        if columns:
            return columns
    return shutil.get_terminal_size().columns


def _lag_of(
    arguments: argparse.Namespace,
) -> Callable[[Mapping[TopicPartition, int]], int | None] | None:
    """Asks the brokers that are read from; what they do not answer is not known."""
    from client.cluster import LATEST, Cluster
    from pipeline.reading.security_options import security_of

    security = security_of(getattr(arguments, "command_config", None))
    cluster = Cluster(arguments.servers, timeout_s=LAG_TIMEOUT_S, security=security)

    def lag_of(next_offsets: Mapping[TopicPartition, int]) -> int | None:
        try:
            ends = cluster.offsets(next_offsets, LATEST)
        except Failure:
            return None
        return sum(max(0, ends[one] - offset) for one, offset in next_offsets.items())

    return lag_of


@contextlib.contextmanager
def _ticking(progress: Progress) -> Iterator[None]:
    """Time passes on the screen while the main thread waits for Spark."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(TICK_S):
            with contextlib.suppress(OSError, ValueError):
                progress.tick()

    thread = threading.Thread(target=tick, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def _signals_raise() -> Iterator[Callable[[], None]]:
    """The first SIGINT or SIGTERM raises Stopped in the main thread, a second one kills.

    Yields what sets the handlers again. In another thread than the main one it does nothing.
    """
    caught = (signal.SIGINT, signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def stop(number: int, frame: object) -> NoReturn:
        for one in caught:
            signal.signal(one, signal.SIG_DFL)
        raise Stopped(number)

    def catch() -> None:
        for one in caught:
            signal.signal(one, stop)

    before = {one: signal.getsignal(one) for one in caught}
    catch()
    try:
        yield catch
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Spark's Python side warns of packages that no pipeline uses, and the bridge to its JVM logs
    the stack of what interrupts it."""
    silent = logging.NullHandler()
    logging.getLogger().addHandler(silent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger().removeHandler(silent)
