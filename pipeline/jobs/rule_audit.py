"""An audit of the data in topics, or in an archive, by rules of a file; it changes nothing.

Spark reads the records and finds what breaks a rule (`pipeline.rules`). Topics are read up to where
they end when the audit begins, each of its queries the same offsets.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from client.cluster import EARLIEST
from pipeline.archiving.spark_files import spark_files
from pipeline.errors import RulesBroken, WrongUse
from pipeline.jobs.audit import CHARTED_MAX, Audit
from pipeline.outcome import TIMES, BatchDone, Chart, Outcome, Tally
from pipeline.reading.plan import ending_offsets, offsets_to_json
from pipeline.rules.breaches import (
    Breach,
    broken_by_doubles,
    broken_by_gaps,
    broken_by_records,
    gaps,
    queries,
    stretches,
)
from pipeline.rules.rows import Rows
from pipeline.rules.rules import GAP, PARTITION, UNIQUE, read_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from pipeline.errors import Failure
    from pipeline.outcome import Watch
    from pipeline.reading.plan import Offsets
    from pipeline.tables.table import Catalog

COLUMNS = 120
"""Of a chart over time."""


@dataclass
class Judged(Outcome):
    """The rules that records break."""

    rules: int = 0
    breaches: list[Breach] = field(default_factory=list)
    drawn: list[Chart] = field(default_factory=list)

    def charts(self) -> list[Chart]:
        """Of the topics with most records: these over time, their values' sizes, and gaps."""
        return self.drawn

    def as_json(self) -> dict[str, Any]:
        """As an Outcome, and what breaks which rule."""
        told = [breach.as_json() for breach in self.breaches]
        return {**super().as_json(), "rules": self.rules, "breaches": told}

    def lines(self) -> list[str]:
        """A line for each rule and topic, its first examples, and one for all."""
        lines = []
        for one in self.breaches:
            what = "gap" if one.check == GAP else "record"
            broken = f"1 {what} breaks" if one.count == 1 else f"{one.count:,} {what}s break"
            lines.append(f"{one.topic}: {broken} rule '{one.rule}'")
            lines += [
                f"  partition {example.partition} offset {example.offset:,}: {example.found}"
                for example in one.examples
            ]
        return [*lines, f"{self.rules:,} rules: {super().line()}"]

    def failure(self) -> Failure | None:
        """As Outcome has it: RulesBroken."""
        if not self.breaches:
            return None
        broken = len({one.rule for one in self.breaches})
        return RulesBroken(
            f"{broken:,} of {self.rules:,} rules are broken: what breaks them is told above"
        )


@dataclass(frozen=True)
class RuleAudit:
    """An audit by the rules in a file.

    Of topics of `servers` ("host:port,...") or of the data directory `path`: all of them where
    neither `topics` nor a `pattern` is given. Or of the archive in the folder `archive` (a local
    path or URI): all its topics.
    """

    rules: str
    servers: str | None = None
    path: str | None = None
    archive: str | None = None
    catalog: Catalog | None = None
    """Of an archive that is an Iceberg table, where it is registered; by default as archive noted
    it."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    command_config: str | None = None
    """A file with Kafka's client properties, for TLS and SASL, on every machine that runs tasks."""
    on_gap: str = "skip"
    committed_only: bool = False

    def check(self) -> None:
        """Everything that can be known before a JVM starts. Raises Failure."""
        read_rules(self.rules)
        if self.archive is None:
            self._topics.check()
        elif self.topics or self.pattern is not None:
            raise WrongUse("of an archive all topics are read: a rule's own topics choose")
        else:
            spark_files(self.archive, self.catalog)

    def run(
        self,
        spark: SparkSession,
        watch: Watch | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> Judged:
        """Look at everything that is there now."""
        rules = read_rules(self.rules)
        tally = Tally("audit", watch)
        ends: Offsets = {}
        offsets = 0
        if self.archive is None:
            starts, ends = self._bounds()
            offsets = sum(ends[one] - start for one, start in starts.items())
            tally.total(offsets)
            rows = Rows.of_records(self._frame(spark, starts, ends))
        else:
            rows = Rows.of_archive(spark, self.archive, self.catalog)
        steps = _shares(offsets, queries(rules))
        judged = Judged(tally.outcome().job, rules=len(rules))

        last = clock()
        made = stretches(rows, rules).persist()
        try:
            topics = _by_topic(made)
            judged.breaches += broken_by_records(made, rules)
            for rule in rules:
                if rule.check == GAP:
                    judged.breaches += broken_by_gaps(made, rule)
            judged.drawn = list(_charts(made, topics))
        finally:
            made.unpersist()
        tally.batch(_done(0, topics, steps[0], ends, clock() - last))
        for number, rule in enumerate((one for one in rules if one.check == UNIQUE), start=1):
            last = clock()
            judged.breaches += broken_by_doubles(rows, rule)
            tally.batch(_done(number, [], steps[number], {}, clock() - last))
        told = tally.outcome()
        for one in fields(told):
            setattr(judged, one.name, getattr(told, one.name))
        order = {rule.name: number for number, rule in enumerate(rules)}
        judged.breaches.sort(key=lambda breach: (breach.topic, order[breach.rule]))
        return judged

    @property
    def _topics(self) -> Audit:
        read = (self.servers, self.path, self.topics, self.pattern, self.command_config)
        return Audit(*read, on_gap=self.on_gap)

    def _bounds(self) -> tuple[Offsets, Offsets]:
        """From where to where each partition is read."""
        options = self._topics.options
        with contextlib.closing(options.source()) as source:
            partitions = options.select(source)
            starts = source.offsets(partitions, EARLIEST)
            ends = ending_offsets(source, partitions, committed_only=self.committed_only)
        # Where retention has just taken all.
        return starts, {one: max(end, starts[one]) for one, end in ends.items()}

    def _frame(self, spark: SparkSession, starts: Offsets, ends: Offsets) -> DataFrame:
        assigned: dict[str, list[int]] = {}
        for partition in sorted(starts):
            assigned.setdefault(partition.topic, []).append(partition.partition)
        options = {
            "kafka.bootstrap.servers": self.servers,
            "commandConfig": self.command_config,
            "path": self.path,
            "assign": json.dumps(assigned),
            "startingOffsets": json.dumps(offsets_to_json(starts)),
            "endingOffsets": json.dumps(offsets_to_json(ends)),
            "onGap": self.on_gap,
            "kafka.isolation.level": "read_committed" if self.committed_only else None,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return spark.read.format("triglot").options(**given).load()


def rule_audit(
    rules: str,
    *,
    topics: Sequence[str] = (),
    spark: SparkSession | None = None,
    watch: Watch | None = None,
    **rest: Any,
) -> Judged:
    """Judge data by the rules in a file: what `RuleAudit` has as fields, by name.

    In the session `spark`, the active one, or a new one. Raises Failure.
    """
    from pipeline.session import session

    job = RuleAudit(rules, topics=tuple(topics), **rest)
    job.check()
    with session() as active:
        return job.run(spark or active, watch)


def _shares(offsets: int, count: int) -> list[int]:
    """So many offsets shared out among so many queries."""
    return [offsets * (one + 1) // count - offsets * one // count for one in range(count)]


def _by_topic(made: DataFrame) -> list[Row]:
    """The records of each topic, their values' bytes, and between which times they are; the topic
    with most records first."""
    from pyspark.sql import functions as F

    sums = [F.sum(name).alias(name) for name in ("records", "bytes")]
    span = [F.min("begin_ms").alias("begin_ms"), F.max("end_ms").alias("end_ms")]
    topics = made.groupBy("topic").agg(*sums, *span).collect()
    return sorted(topics, key=lambda row: (-row.records, row.topic))


def _done(
    number: int, topics: Sequence[Row], offsets: int, ends: Offsets, seconds: float
) -> BatchDone:
    records, size = (sum(row[name] or 0 for row in topics) for name in ("records", "bytes"))
    return BatchDone(number, records, size, seconds, offsets=offsets, end_offsets=ends)


def _charts(made: DataFrame, topics: Sequence[Row]) -> Iterator[Chart]:
    """Of the topics with most records, in stretches that are as long for all of them."""
    from pyspark.sql import functions as F

    drawn = [row for row in topics if row.begin_ms is not None][:CHARTED_MAX]
    if not drawn:
        return
    first_ms = min(row.begin_ms for row in drawn)
    width_ms = (max(row.end_ms for row in drawn) - first_ms) // COLUMNS + 1
    names = [row.topic for row in drawn]
    column = F.floor((F.col("begin_ms") - first_ms) / width_ms).alias("column")
    counted = made.where(F.col("topic").isin(names) & F.col("begin_ms").isNotNull())
    sums = counted.groupBy("topic", column).agg(
        F.sum("records").alias("records"), F.sum("bytes").alias("bytes")
    )
    pauses = gaps(counted, per=PARTITION).groupBy("topic", column)
    longest = pauses.agg(F.max(F.expr("end_ms - begin_ms")).alias("gap_ms"))
    bars: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for row in sums.collect():
        begin = first_ms + row.column * width_ms
        place = (begin, begin + width_ms)
        bars.setdefault((row.topic, "records"), []).append((*place, row.records))
        if row.bytes is not None:
            mean = row.bytes / row.records
            bars.setdefault((row.topic, "mean size of a value, bytes"), []).append((*place, mean))
    for row in longest.collect():
        begin = first_ms + row.column * width_ms
        what = "longest time without a record in a partition, seconds"
        bars.setdefault((row.topic, what), []).append((begin, begin + width_ms, row.gap_ms / 1000))
    for topic in names:
        for (of, what), some in bars.items():
            if of == topic:
                yield Chart(f"{topic}: {what}", TIMES, sorted(some))
