"""An audit of a table of newest values beside its topics; it changes nothing.

The table tells up to which offset it has each partition. Below that each key of the topic has to
be in it with its newest record, and no other key. A partition is compared by one task, in memory:
its newest records and the table's rows.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from client.cluster import EARLIEST, LATEST
from pipeline.archiving.owner import owner_of
from pipeline.errors import Different, ForeignState, NoSuchTopic
from pipeline.filesystem import Location, locate
from pipeline.jobs.audit import Audit
from pipeline.left_out import LeftOut
from pipeline.outcome import BatchDone, Outcome, Tally
from pipeline.reading.plan import Range
from pipeline.upserting.comparison import Comparison, compare_range
from pipeline.upserting.current_table import CurrentTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from pipeline.errors import Failure
    from pipeline.outcome import Watch
    from pipeline.reading.options import SourceOptions

UPSERT = "upsert"
_COUNTS = ("equal", "missing", "different", "undeleted", "unknown", "written_over", "before_start")


class Piece(NamedTuple):
    """What a task compares: a partition from its log's start to its end now, and the offset up to
    which the table has it."""

    range: Range
    end: int


@dataclass
class Compared(Outcome):
    """The comparison of each partition that the table has."""

    table: str = ""
    partitions: list[Comparison] = field(default_factory=list)

    @property
    def differences(self) -> int:
        """The number of keys with which the table is wrong."""
        return sum(one.differences for one in self.partitions)

    def as_json(self) -> dict[str, Any]:
        """As an Outcome, and the comparison of each partition."""
        told = [one.as_json() for one in self.partitions]
        return {**super().as_json(), "differences": self.differences, "partitions": told}

    def lines(self) -> list[str]:
        """A line for each partition that differs, and one for all."""
        total = {name: sum(getattr(one, name) for one in self.partitions) for name in _COUNTS}
        lines = [
            f"{one.topic}-{one.partition} below offset {one.end:,}: "
            + ", ".join(one.examples)
            + (", ..." if one.differences > len(one.examples) else "")
            for one in self.partitions
            if one.differences
        ]
        counts = ", ".join(
            f"{count:,} {name.replace('_', ' ')}" for name, count in total.items() if count
        )
        return [*lines, f"{len(self.partitions):,} partitions compared: {counts or 'no keys'}"]

    def failure(self) -> Failure | None:
        """As Outcome has it: Different."""
        if not self.differences:
            return None
        return Different(
            f"the table in {self.table} differs from its topics in {self.differences:,} keys: "
            "make it anew from the start of the topics, in another folder"
        )


@dataclass(frozen=True)
class TableAudit:
    """An audit of the table in a folder that `archive` keeps with mode upsert.

    Of `servers` ("host:port,...") or of the data directory `path`; of all topics that the table
    has, or those of them that `topics` or a `pattern` names.
    """

    against_table: str
    servers: str | None = None
    path: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    command_config: str | None = None
    """A file with Kafka's client properties, for TLS and SASL, on every machine that runs tasks."""
    on_gap: str = "skip"
    committed_only: bool = False
    """Whether the table is of committed records alone, as `archive --committed` makes it."""

    @property
    def options(self) -> SourceOptions:
        """Raises WrongUse."""
        read = (self.servers, self.path, self.topics, self.pattern, self.command_config)
        options = Audit(*read, on_gap=self.on_gap).options
        return replace(options, on_corrupt="skip", committed_only=self.committed_only)

    def check(self) -> None:
        """Everything that can be known before a JVM starts. Raises Failure."""
        if not self._pieces():
            raise NoSuchTopic(f"the table in {self.against_table} has none of these topics")

    def run(
        self,
        spark: SparkSession,
        watch: Watch | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> Compared:
        """Compare everything that the table has now."""
        from pipeline.session import cores
        from pipeline.spark.range_query import run_tasks

        pieces = self._pieces()
        tally = Tally("audit", watch)
        tally.total(sum(piece.range.size for piece in pieces))
        work = partial(compare_piece, self.options, *self._table())
        found: list[Comparison] = []
        last = clock()
        answers = run_tasks(spark, pieces, work, parallel=cores(spark))
        for number, (piece, answer) in enumerate(zip(pieces, answers, strict=True)):
            found.append(Comparison.of_json(answer))
            before, last = last, clock()
            tally.batch(
                BatchDone(
                    number,
                    answer["records"],
                    0,
                    last - before,
                    offsets=piece.range.size,
                    end_offsets={piece.range.topic_partition: piece.range.end},
                    left_out=LeftOut.of_json(answer),
                )
            )
        told = tally.outcome()
        return Compared(
            **{one.name: getattr(told, one.name) for one in fields(told)},
            table=self.against_table,
            partitions=found,
        )

    def _table(self) -> tuple[Location, str, str | None]:
        """Its folder, the id of its state, and the envelope that values were in."""
        owner = owner_of(folder := locate(self.against_table))
        if owner is None or owner.get("mode") != UPSERT:
            raise ForeignState(
                f"{self.against_table} is no table of newest values: name a folder that "
                "triglot pipeline archive --mode upsert has made"
            )
        return folder, str(owner["state"]), owner.get("envelope")

    def _pieces(self) -> list[Piece]:
        folder, state_id, _ = self._table()
        table = CurrentTable.open(folder, state_id)
        options = self.options
        with contextlib.closing(options.source()) as source:
            ends = {
                partition: end
                for partition in options.select(source)
                if (end := table.end(partition)) is not None
            }
            starts, latest = source.offsets(ends, EARLIEST), source.offsets(ends, LATEST)
        return [
            Piece(Range(*partition, starts[partition], latest[partition]), end)
            for partition, end in sorted(ends.items())
        ]


def compare_piece(
    options: SourceOptions, folder: Location, state_id: str, envelope: str | None, piece: Piece
) -> dict[str, Any]:
    """In a task: the comparison of a partition, as JSON has it."""
    left_out = LeftOut()
    rows = CurrentTable.open(folder, state_id).rows_of(piece.range.topic_partition)
    found = compare_range(options, piece.range, rows, piece.end, left_out, envelope)
    return {
        **found.as_json(),
        "records": found.records,
        **left_out.as_json(),
        "examples": found.examples,
    }


def table_audit(
    against_table: str,
    *,
    topics: Sequence[str] = (),
    spark: SparkSession | None = None,
    watch: Watch | None = None,
    **rest: Any,
) -> Compared:
    """Compare a table with its topics: what `TableAudit` has as fields, by name.

    In the session `spark`, the active one, or a new one. Raises Failure.
    """
    from pipeline.session import session

    job = TableAudit(against_table, topics=tuple(topics), **rest)
    job.check()
    with session() as active:
        return job.run(spark or active, watch)
