"""An audit of stored topics by the headers of their batches; it changes nothing.

Formats, codecs, checksums, holes, the order of time, sizes, and what stops a topic from moving to
Apache Kafka 4. Of a cluster, or of the data directory of a broker that is stopped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nlargest
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from client.cluster import TopicPartition
from pipeline.errors import NoSuchTopic
from pipeline.jobs.audit_facts import Facts, joined, of_json
from pipeline.jobs.audit_findings import Finding, findings, old_before_ms
from pipeline.jobs.audit_times import longest
from pipeline.outcome import SIZES, TIMES, BatchDone, Chart, Outcome, Tally
from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import Range, batch_ranges
from pipeline.reading.ranges import batches_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from pipeline.outcome import Watch

CHARTED = ("times", "gaps", "first_ms")
"""Of the facts."""
CHARTED_MAX = 12
"""Topics."""
RANGE_OFFSETS = 2_000_000
"""A partition of more offsets is shared out among tasks."""


@dataclass
class Audited(Outcome):
    """The facts of each partition, and the findings on each topic."""

    partitions: list[Facts] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def topics(self) -> list[Facts]:
        """The facts of each topic as a whole."""
        return [
            joined_topic(list(some)) for _, some in groupby(self.partitions, lambda one: one.topic)
        ]

    def charts(self) -> list[Chart]:
        """Of the topics with most records: these over time, gaps between them, and sizes."""
        most = nlargest(CHARTED_MAX, self.topics(), key=lambda facts: facts.records)
        return [chart for facts in most for chart in _charts(facts)]

    def as_json(self) -> dict[str, Any]:
        """As an Outcome, and all facts and findings; but for what only a chart wants."""
        told = [facts.as_json() for facts in self.partitions]
        return {
            **super().as_json(),
            "partitions": [
                {name: value for name, value in one.items() if name not in CHARTED} for one in told
            ],
            "findings": [finding._asdict() for finding in self.findings],
        }

    def lines(self) -> list[str]:
        """The report for people: a table of topics, then what was found."""
        rows = [("topic", "partitions", "records", "MB", "formats", "codecs", "holes", "corrupt")]
        for facts in self.topics():
            count = sum(1 for one in self.partitions if one.topic == facts.topic)
            unopened = f"+{facts.unopened:,} wrappers" if facts.unopened else ""
            rows.append(
                (
                    *(facts.topic, f"{count:,}", f"{facts.records:,}{unopened}"),
                    f"{facts.bytes / 1e6:,.1f}",
                    _shares(facts.format_bytes, facts.bytes),
                    _shares(facts.codecs, facts.entries),
                    *(f"{facts.offsets_in_holes:,}", f"{facts.left_out.batches_corrupt:,}"),
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        told = [f"{one.kind:5}  {one.topic}: {one.line}" for one in self.findings]
        return [*table, "", *(told or ["nothing stops these topics from moving to Kafka 4"])]


def joined_topic(partitions: Sequence[Facts]) -> Facts:
    """The facts of a topic. Offsets are per partition, and are left out; the oldest format that a
    partition ends with counts as that of the last entry."""
    last = [facts.last_format for facts in partitions if facts.last_format is not None]
    apart = [replace(facts, first_offset=None, last_offset=None) for facts in partitions]
    total = joined(apart)
    total.gaps = longest(gap for facts in partitions for gap in facts.gaps)
    total.backwards_ms = max(facts.backwards_ms for facts in partitions)
    total.last_format = min(last, default=None)
    return total


def _charts(facts: Facts) -> Iterator[Chart]:
    topic = facts.topic
    if bars := facts.times.bars():
        yield Chart(f"{topic}: records", TIMES, bars)
    if gaps := sorted(facts.gaps):
        bars = [(begin, end, (end - begin) / 1000) for begin, end in gaps]
        yield Chart(f"{topic}: longest times without a record in a partition, seconds", TIMES, bars)
    if facts.sizes:
        powers = sorted((int(power), count) for power, count in facts.sizes.items())
        yield Chart(
            f"{topic}: entries by size",
            SIZES,
            [(power, 2 * power, count) for power, count in powers],
        )


def _shares(counts: Mapping[str, int], total: int) -> str:
    return ", ".join(
        f"{name} {count / max(total, 1):.0%}" for name, count in sorted(counts.items())
    )


@dataclass(frozen=True)
class Audit:
    """An audit of topics of `servers` ("host:port,...") or of the data directory `path`; all of
    them where neither `topics` nor a `pattern` is given."""

    servers: str | None = None
    path: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    command_config: str | None = None
    """A file with Kafka's client properties, for TLS and SASL, on every machine that runs tasks."""
    on_gap: str = "skip"
    """An audit goes on where records were deleted while it looked, unless told otherwise."""

    @property
    def options(self) -> SourceOptions:
        """Raises WrongUse."""
        given = {
            "kafka.bootstrap.servers": self.servers,
            "commandConfig": self.command_config,
            "path": self.path,
            "onGap": self.on_gap,
        }
        if self.topics:
            given["subscribe"] = ",".join(self.topics)
        else:
            given["subscribePattern"] = self.pattern or ".*"
        return SourceOptions.parse(
            {name: value for name, value in given.items() if value is not None}, streaming=False
        )

    def check(self) -> None:
        """Everything that can be known before a JVM starts. Raises Failure."""
        source = self.options.source()
        try:
            if not self.options.select(source):
                where = self.path if self.servers is None else self.servers
                raise NoSuchTopic(
                    f"{where} has no topics"
                    if self.pattern is None
                    else f"no topic on {where} matches {self.pattern!r}"
                )
        finally:
            source.close()

    def run(
        self,
        spark: SparkSession,
        watch: Watch | None = None,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> Audited:
        """Look at everything that is there now."""
        from pipeline.session import cores
        from pipeline.spark.range_query import run_tasks

        options = self.options
        tally = Tally("audit", watch)
        source = options.source()
        try:
            partitions = options.select(source)
            topics = sorted({partition.topic for partition in partitions})
            ranges = batch_ranges(source, options)
            configs = {topic: source.topic_configs(topic) for topic in topics}
        finally:
            source.close()
        began = now_ms()
        limits = {topic: old_before_ms(configs[topic], began) for topic in topics}
        tasks = [piece for range_ in ranges for piece in _pieces(range_)]
        tally.total(sum(task.size for task in tasks))
        parts = {partition: [Facts(*partition)] for partition in partitions}
        parallel = cores(spark)
        work = partial(audit_range, options, limits)
        last = clock()
        for number, answer in enumerate(run_tasks(spark, tasks, work, parallel=parallel)):
            task, facts, before = tasks[number], of_json(answer), last
            last = clock()
            parts[task.topic_partition].append(facts)
            tally.batch(_done(number, task, facts, seconds=last - before))
        outcome = Audited(**vars(tally.outcome()))
        outcome.partitions = [joined(some) for some in parts.values()]
        _begin_with(ranges, outcome.partitions)
        for facts in outcome.topics():
            outcome.findings += findings(facts, configs[facts.topic], began)
        return outcome


def audit_range(options: SourceOptions, limits: Mapping[str, int | None], range_: Range) -> Any:
    """In a task: the facts of a range, as JSON has them."""
    facts = Facts(range_.topic, range_.partition)
    source = options.source()
    try:
        for rows in batches_of(
            source,
            range_,
            on_gap=options.on_gap,
            on_corrupt="skip",
            left_out=facts.left_out,
            fetch_bytes=options.fetch_bytes,
        ):
            facts.add(rows, old_before_ms=limits[range_.topic])
    finally:
        source.close()
    return facts.as_json()


def _begin_with(ranges: Sequence[Range], partitions: Sequence[Facts]) -> None:
    """What was deleted of a partition's first batch is below its first offset."""
    begins = {range_.topic_partition: range_.start for range_ in reversed(ranges)}
    for facts in partitions:
        if facts.first_offset is not None:
            begin = begins.get(TopicPartition(facts.topic, facts.partition), 0)
            facts.first_offset = max(facts.first_offset, begin)


def _pieces(range_: Range) -> list[Range]:
    edges = [*range(range_.start, range_.end, RANGE_OFFSETS), range_.end]
    return [range_._replace(start=start, end=end) for start, end in pairwise(edges)]


def _done(number: int, task: Range, facts: Facts, *, seconds: float) -> BatchDone:
    return BatchDone(
        number,
        facts.records,
        facts.bytes,
        seconds,
        offsets=task.size,
        end_offsets={task.topic_partition: task.end},
        left_out=facts.left_out,
    )


def audit(
    *,
    servers: str | None = None,
    path: str | None = None,
    topics: Sequence[str] = (),
    pattern: str | None = None,
    command_config: str | None = None,
    on_gap: str = "skip",
    spark: SparkSession | None = None,
    watch: Watch | None = None,
) -> Audited:
    """Check, look, and tell, in the session `spark`, the active one, or a new one.

    Raises Failure.
    """
    from pipeline.session import session

    job = Audit(servers, path, tuple(topics), pattern, command_config, on_gap)
    job.check()
    with session() as active:
        return job.run(spark or active, watch)
