"""The outcome of a job: reported per micro-batch to a watch, added up in an outcome.

Nothing here needs Spark or Arrow. Jobs tell a `Tally`, which adds up and passes on to whoever
watches: a terminal, a machine that reads JSON lines, or nobody.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pipeline.left_out import LeftOut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from client.cluster import TopicPartition
    from pipeline.errors import Failure


@dataclass(frozen=True)
class BatchDone:
    """One micro-batch, or one piece of a bounded job, that is done and committed."""

    batch_id: int
    records: int
    bytes: int
    """As they were read: of the entries in the log, compressed as they are there."""
    seconds: float
    offsets: int = 0
    """How many offsets it covers; more than records where a topic is compacted."""
    end_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The next offset of each partition that was in it."""
    left_out: LeftOut = field(default_factory=LeftOut)
    details: Mapping[str, int] = field(default_factory=dict)
    """Counts of the job's own, under names for people: {"files": 12}. They are added up."""
    behind_s: float | None = None
    """How late the last of it came, of a job that keeps a pace."""


class Watch(Protocol):
    """A listener to a job's progress. Called from one thread at a time, not always the same."""

    def total(self, offsets: int | None) -> None:
        """The number of offsets of a bounded run; None: it has no end, or is not known."""

    def batch(self, done: BatchDone) -> None:
        """A micro-batch is done."""


class Chart(NamedTuple):
    """What a job found, over time or by size, for the report of a run."""

    title: str
    axis: str
    """TIMES, in ms, or SIZES, in bytes, of which each bar is a power of two."""
    bars: list[tuple[float, float, float]]
    """Where each begins and ends, and how high it is."""


TIMES, SIZES = "times", "sizes"


@dataclass
class Outcome:
    """The results of a whole run."""

    job: str
    records: int = 0
    bytes: int = 0
    batches: int = 0
    seconds: float = 0.0
    """From the start of the job to its end, waiting included."""
    offsets: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    details: dict[str, int] = field(default_factory=dict)

    def add(self, done: BatchDone) -> None:
        """Count one more micro-batch; `seconds` is left to the caller's clock."""
        self.records += done.records
        self.bytes += done.bytes
        self.batches += 1
        self.offsets += done.offsets
        self.left_out += done.left_out
        for name, count in done.details.items():
            self.details[name] = self.details.get(name, 0) + count

    def as_json(self) -> dict[str, Any]:
        """One object for machines; rates are per second of the whole run."""
        seconds = max(self.seconds, 1e-9)
        return {
            "job": self.job,
            "records": self.records,
            "bytes": self.bytes,
            "batches": self.batches,
            "offsets": self.offsets,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records / seconds, 1),
            "bytes_per_second": round(self.bytes / seconds, 1),
            "left_out": self.left_out.as_json(),
            "details": dict(self.details),
        }

    def line(self) -> str:
        """The closing line for people."""
        if not self.batches:
            return f"{self.job}: nothing to do ({self.seconds:.1f} s)"
        seconds = max(self.seconds, 1e-9)
        batches = "1 micro-batch" if self.batches == 1 else f"{self.batches:,} micro-batches"
        size, rate = "", ""
        if self.bytes:
            size = f", {self.bytes / 1e6:,.1f} MB"
            rate = f", {self.bytes / 1e6 / seconds:,.1f} MB/s"
        line = (
            f"{self.job}: {self.records:,} records{size} in {batches}, {self.seconds:.1f} s "
            f"({self.records / seconds:,.0f} records/s{rate})"
        )
        line += "".join(f"; {count:,} {name}" for name, count in self.details.items() if count)
        return f"{line}; left out: {self.left_out}" if self.left_out else line

    def failure(self) -> Failure | None:
        """The failure that a run which came to its end is to exit with: what a job was asked to
        judge is not as it should be. None for most jobs."""
        return None

    def charts(self) -> list[Chart]:
        """What there is to draw beside the run itself: nothing, for most jobs."""
        return []

    def lines(self) -> list[str]:
        """The lines printed at the end. A job that makes a report has it here."""
        return [self.line()]


class Tally:
    """A watch that adds everything up and passes it on."""

    def __init__(
        self, job: str, watch: Watch | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._outcome = Outcome(job)
        self._watch = watch
        self._clock = clock
        self._began = clock()

    def total(self, offsets: int | None) -> None:
        """As Watch has it."""
        if self._watch is not None:
            self._watch.total(offsets)

    def batch(self, done: BatchDone) -> None:
        """As Watch has it."""
        self._outcome.add(done)
        if self._watch is not None:
            self._watch.batch(done)

    def outcome(self) -> Outcome:
        """The outcome until now."""
        self._outcome.seconds = self._clock() - self._began
        return self._outcome
