"""The progress of a job while it runs: one line that is rewritten on a terminal, a line now and
then elsewhere, a JSON object per micro-batch for machines.

`Progress` reckons and keeps what a report draws; a view only writes. Clock, stream and width come
from outside.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from pipeline.outcome import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from client.cluster import TopicPartition
    from pipeline.outcome import BatchDone, Outcome

RATE_OVER_S = 10.0
"""A rate is that of the micro-batches that ended in so many seconds, and of the last at least."""
SAMPLES = 4_000
"""How many micro-batches are kept for a report; then every two become one."""
ON_TIME_S = 1.0
"""What comes less late than that is on time."""
REDRAW_S = 0.25
LINE_EVERY_S = 5.0
BAR_LEAST, BAR_MOST = 8, 32
"""Characters in a bar."""


@dataclass(frozen=True)
class Sample:
    """A micro-batch, or several that follow each other, and where the job was after it."""

    at_s: float
    """Since the start of the job."""
    batch_id: int
    records: int
    bytes: int
    offsets: int
    batch_s: float
    lag: int | None
    """Offsets that were still to do, or behind the logs' ends; None: not known."""


@dataclass(frozen=True)
class Status:
    """The progress of a job."""

    job: str
    elapsed_s: float
    batches: int = 0
    records: int = 0
    bytes: int = 0
    offsets: int = 0
    total: int | None = None
    lag: int | None = None
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    offsets_per_s: float = 0.0
    running: bool = True
    """False while Spark starts."""
    tasks: tuple[int, int] | None = None
    """How many of the present micro-batch's tasks are done, and how many it has."""
    underway_s: float = 0.0
    """How long the present micro-batch is in work, at most as long as the longest of the recent."""
    behind_s: float | None = None
    """How late the last of the last micro-batch came, of a job that keeps a pace."""

    @property
    def percent(self) -> float | None:
        """Of a bounded run; None for one without an end."""
        if self.total is None:
            return None
        return min(100.0, 100.0 * self.offsets / self.total) if self.total else 100.0

    @property
    def seconds_left(self) -> float | None:
        """Of a bounded run, at the present rate; None while there is none."""
        if self.total is None or not self.offsets_per_s:
            return None
        left_s = max(0, self.total - self.offsets) / self.offsets_per_s
        return max(0.0, left_s - self.underway_s)


class View(Protocol):
    """A display of the progress. Called by one thread at a time."""

    def show(self, status: Status, done: BatchDone | None) -> None:
        """Something has happened, or (without a `done`) time has passed."""

    def close(self, outcome: Outcome | None) -> None:
        """The job has ended; without an outcome it failed or was stopped."""


class Progress:
    """A Watch that reckons rates and what is left to do, for a view and a report."""

    def __init__(
        self,
        job: str,
        view: View,
        *,
        clock: Callable[[], float] = time.monotonic,
        lag_of: Callable[[Mapping[TopicPartition, int]], int | None] | None = None,
    ) -> None:
        """`lag_of` tells from the next offset of each partition how far that is behind."""
        self.job = job
        self.samples: list[Sample] = []
        self._view = view
        self._clock = clock
        self._lag_of = lag_of
        self._began = clock()
        self._running = False
        self._tally = Tally(job, clock=clock)
        self._total: int | None = None
        self._sums = Status(job, 0.0)
        # When the one before it ended, when it ended, and what it did.
        self._recent: deque[tuple[float, float, BatchDone]] = deque(maxlen=SAMPLES)
        self._end_offsets: dict[TopicPartition, int] = {}
        self._tasks_of: Callable[[], tuple[int, int] | None] | None = None
        self._tasks: tuple[int, int] | None = None
        # Micro-batches are told of by a thread of Spark's, the passing of time by the main thread.
        self._lock = threading.RLock()

    def total(self, offsets: int | None) -> None:
        """As Watch has it."""
        with self._lock:
            self._total = offsets
            self._view.show(self._status(), None)

    def batch(self, done: BatchDone) -> None:
        """As Watch has it."""
        lag = self._lag(done)
        with self._lock:
            now = self._clock()
            before = self._recent[-1][1] if self._recent else self._began
            self._recent.append((before, now, done))
            self._tally.batch(done)
            sums = self._sums
            self._sums = Status(
                self.job,
                now - self._began,
                sums.batches + 1,
                sums.records + done.records,
                sums.bytes + done.bytes,
                sums.offsets + done.offsets,
                lag=lag,
                behind_s=done.behind_s,
            )
            status = self._status()
            self._keep(status, done)
            self._view.show(status, done)

    def started(self, tasks_of: Callable[[], tuple[int, int] | None] | None = None) -> None:
        """Spark is there; from now on it is the job's time. `tasks_of` is asked for the `tasks` of
        a Status whenever time has passed."""
        with self._lock:
            self._running = True
            self._tasks_of = tasks_of
            self._began = self._clock()
            self._tally = Tally(self.job, clock=self._clock)
            self._view.show(self._status(), None)

    def tick(self) -> None:
        """Time has passed."""
        # Spark is asked outside of the lock, which its own threads wait for.
        found = self._tasks_of() if self._tasks_of is not None else None
        with self._lock:
            self._tasks = found
            self._view.show(self._status(), None)

    def close(self, outcome: Outcome | None) -> None:
        """The job has ended; without an outcome it failed or was stopped."""
        with self._lock:
            self._view.close(outcome)

    def outcome(self) -> Outcome:
        """The outcome until now."""
        return self._tally.outcome()

    def _lag(self, done: BatchDone) -> int | None:
        self._end_offsets.update(done.end_offsets)
        if self._lag_of is None or self._total is not None or not self._end_offsets:
            return None
        return self._lag_of(self._end_offsets)

    def _status(self) -> Status:
        now = self._clock()
        sums = self._sums
        lag = sums.lag if self._total is None else max(0, self._total - sums.offsets)
        over, underway = self._time_of_recent(now, idle=lag == 0)
        recent = [done for _before, _at, done in self._recent]
        return Status(
            self.job,
            now - self._began,
            sums.batches,
            sums.records,
            sums.bytes,
            sums.offsets,
            self._total,
            lag,
            sum(done.records for done in recent) / over,
            sum(done.bytes for done in recent) / over,
            sum(done.offsets for done in recent) / over,
            self._running,
            self._tasks,
            underway,
            sums.behind_s,
        )

    def _time_of_recent(self, now: float, *, idle: bool) -> tuple[float, float]:
        """Seconds that the recent micro-batches took, and seconds of work on the next one.

        It may take as long as one of them before a rate falls: until then its time does not count.
        """
        if not self._recent:
            return 1.0, 0.0
        longest = max(ended - before for before, ended, _done in self._recent)
        underway = 0.0 if idle else min(now - self._recent[-1][1], longest)
        until = now - underway
        while len(self._recent) > 1 and self._recent[0][1] < until - RATE_OVER_S:
            self._recent.popleft()
        return max(until - self._recent[0][0], 1e-9), underway

    def _keep(self, status: Status, done: BatchDone) -> None:
        if len(self.samples) >= SAMPLES:
            self.samples = [
                merged(first, second)
                for first, second in zip(self.samples[::2], self.samples[1::2], strict=True)
            ]
        self.samples.append(
            Sample(
                status.elapsed_s,
                done.batch_id,
                done.records,
                done.bytes,
                done.offsets,
                done.seconds,
                status.lag,
            )
        )


def merged(first: Sample, second: Sample) -> Sample:
    """Two that follow each other as one."""
    return Sample(
        second.at_s,
        second.batch_id,
        first.records + second.records,
        first.bytes + second.bytes,
        first.offsets + second.offsets,
        first.batch_s + second.batch_s,
        second.lag,
    )


class Both:
    """Two views of one job."""

    def __init__(self, first: View, second: View) -> None:
        self._views = (first, second)

    def show(self, status: Status, done: BatchDone | None) -> None:
        """As View has it."""
        for view in self._views:
            view.show(status, done)

    def close(self, outcome: Outcome | None) -> None:
        """As View has it."""
        for view in self._views:
            view.close(outcome)


class Silence:
    """Nothing is shown."""

    def show(self, status: Status, done: BatchDone | None) -> None:
        """As View has it."""

    def close(self, outcome: Outcome | None) -> None:
        """As View has it."""


class TerminalLine:
    """One line that is written over, cut to the terminal's width."""

    def __init__(
        self, stream: TextIO, width: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._width = width
        self._clock = clock
        self._drawn_at: float | None = None

    def show(self, status: Status, done: BatchDone | None) -> None:
        """As View has it; what comes sooner than REDRAW_S is not drawn, the next will be."""
        now = self._clock()
        if self._drawn_at is not None and now - self._drawn_at < REDRAW_S:
            return
        self._drawn_at = now
        # The last column stays free: some terminals would begin another line.
        self._write(f"\r\x1b[2K{with_bar(status, self._width() - 1)}")

    def close(self, outcome: Outcome | None) -> None:
        """As View has it: the line goes, what is printed next takes its place."""
        if self._drawn_at is not None:
            self._write("\r\x1b[2K")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


class Lines:
    """A line per micro-batch, and not more than one in LINE_EVERY_S: for logs and pipes."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._told_at: float | None = None

    def show(self, status: Status, done: BatchDone | None) -> None:
        """As View has it."""
        now = self._clock()
        if done is None or (self._told_at is not None and now - self._told_at < LINE_EVERY_S):
            return
        self._told_at = now
        with contextlib.suppress(OSError):
            self._stream.write("  ".join(parts(status)) + "\n")
            self._stream.flush()

    def close(self, outcome: Outcome | None) -> None:
        """As View has it."""


class JsonLines:
    """An object per micro-batch, and the outcome as the last."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, status: Status, done: BatchDone | None) -> None:
        """As View has it."""
        # The job is not to fail for a reader who has gone; `close` tells.
        if done is not None:
            with contextlib.suppress(BrokenPipeError):
                self._write(as_json(status, done))

    def close(self, outcome: Outcome | None) -> None:
        """As View has it."""
        if outcome is not None:
            self._write({"event": "done", **outcome.as_json()})

    def _write(self, content: Mapping[str, Any]) -> None:
        self._stream.write(json.dumps(content) + "\n")
        self._stream.flush()


def as_json(status: Status, done: BatchDone) -> dict[str, Any]:
    """A micro-batch by itself, then the run so far. `lag` and what follows it may be null."""
    return {
        "event": "progress",
        "job": status.job,
        "batch": done.batch_id,
        "records": done.records,
        "bytes": done.bytes,
        "offsets": done.offsets,
        "seconds": round(done.seconds, 3),
        "end_offsets": {str(partition): offset for partition, offset in done.end_offsets.items()},
        "left_out": done.left_out.as_json(),
        "details": dict(done.details),
        "run": {
            "seconds": round(status.elapsed_s, 3),
            "batches": status.batches,
            "records": status.records,
            "bytes": status.bytes,
            "offsets": status.offsets,
            "records_per_second": round(status.records_per_s, 1),
            "bytes_per_second": round(status.bytes_per_s, 1),
            "lag": status.lag,
            "offsets_to_do": status.total,
            "percent": _rounded(status.percent),
            "seconds_left": _rounded(status.seconds_left),
            "seconds_behind": _rounded(status.behind_s),
        },
    }


def parts(status: Status) -> list[str]:
    """The parts of a progress line, the more important first."""
    said = [status.job]
    if status.percent is not None:
        said.append(f"{status.percent:.0f}%")
    if not status.running:
        return [*said, f"starting Spark, {duration(status.elapsed_s)}"]
    tasks = ["{:,} of {:,} tasks".format(*status.tasks)] if status.tasks else []
    if not status.batches:
        return [*said, f"working, {duration(status.elapsed_s)}", *tasks]
    if status.seconds_left is not None and status.lag:
        said.append(f"{duration(status.seconds_left)} left")
    if status.behind_s is not None:
        late = status.behind_s >= ON_TIME_S
        said.append(f"{duration(status.behind_s)} behind" if late else "on time")
    said.append(f"{status.records_per_s:,.0f} records/s")
    if status.bytes:
        said.append(f"{status.bytes_per_s / 1e6:,.1f} MB/s")
    if status.total is None and status.lag is not None:
        said.append(f"lag {status.lag:,}")
    said.append(f"{status.records:,} records")
    said.append(duration(status.elapsed_s))
    return [*said, *tasks]


def in_width(said: list[str], width: int) -> str:
    """As many parts as have room; the first one is cut where even that has none."""
    line = said[0][: max(0, width)]
    for part in said[1:]:
        if len(line) + 2 + len(part) > width:
            break
        line += f"  {part}"
    return line


def with_bar(status: Status, width: int) -> str:
    """The line, and behind the percentage a bar in the room that it leaves."""
    said = parts(status)
    line = in_width(said, width)
    room = min(width - len(line) - len("  []"), BAR_MOST)
    if status.percent is None or room < BAR_LEAST:
        return line
    filled = "#" * int(room * status.percent / 100)
    return in_width([*said[:2], f"[{filled:.<{room}}]", *said[2:]], width)


def duration(seconds: float) -> str:
    """42 s, 3 min 05 s, 2 h 07 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
