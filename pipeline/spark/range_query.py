"""Work on ranges of offsets in Spark's tasks, by tasks that fetch and write by themselves.

A row is a range. Its records never pass through the JVM: a task gets some ranges, does the work on
one after the other in Python, and answers with a small dictionary of facts for each. Spark plans,
schedules, tries again and remembers; a micro-batch that was not finished is repeated with the same
number and the same ranges.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from pipeline.errors import WrongUse
from pipeline.reading.connections import Connections
from pipeline.reading.plan import Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from pipeline.state import State

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Facts = dict[str, Any]
"""What a task found and did: numbers, strings and lists, as JSON has them."""
Committed = Callable[[int, list[Facts], float], None]
"""Told of a micro-batch that is committed: its number, its results, the seconds that it took."""

SPECULATION = (
    "spark.speculation is true: two copies of a task would write the same; start Spark with --conf "
    "spark.speculation=false"
)
WAVES = 20
"""A bounded job is run in about so many pieces, so that there is progress to tell of."""


class RangeJob(Protocol):
    """The work on each range, and on the answers. Picklable: tasks get a copy."""

    def work(self, range_: Range, batch_id: int, connections: Connections | None = None) -> Facts:
        """In a task, whose ranges share `connections`; with None it makes its own. May be called
        again with the same arguments: Spark repeats what failed."""

    def commit(self, batch_id: int, results: list[Facts]) -> None:
        """In the driver, when every range of the micro-batch is done. May be repeated too: a driver
        can be killed before Spark has noted that it happened."""


@runtime_checkable
class StageJob(Protocol):
    """A job whose records pass through Spark: it makes a stage of its own of the ranges."""

    def do(self, spark: SparkSession, ranges: Sequence[Range], batch_id: int) -> list[Facts]:
        """In the driver, with tasks of its own; the answers of all ranges. May be repeated."""

    def commit(self, batch_id: int, results: list[Facts]) -> None:
        """As RangeJob has it."""


def run_query(
    spark: SparkSession,
    job: RangeJob | StageJob,
    *,
    source: Mapping[str, str],
    state: State,
    every_s: float | None = None,
    committed: Committed | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Do it as a query over `format("triglot")`, and wait for its end: `run_stream` has the rest.

    Its checkpoint is in the state. What comes after a micro-batch is called in this process.
    """

    def micro_batch(ranges: DataFrame, batch_id: int) -> None:
        began = clock()
        results = _answers(ranges, job, batch_id)
        job.commit(batch_id, results)
        if committed is not None:
            committed(batch_id, results, clock() - began)

    stream = spark.readStream.format("triglot").options(**source, shape="ranges").load()
    writer = stream.writeStream.foreachBatch(micro_batch)
    writer = writer.option("checkpointLocation", state.checkpoint)
    if every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{every_s} seconds")
    query = writer.start()
    try:
        query.awaitTermination()
    finally:
        with contextlib.suppress(Exception):
            query.stop()


def refuse_speculation(spark: SparkSession) -> None:
    """Raises WrongUse where Spark would run a second copy of a task that is slow: both would write.
    A session cannot change it."""
    if is_speculative(spark):
        raise WrongUse(SPECULATION)


def is_speculative(spark: SparkSession) -> bool:
    """Whether Spark runs a second copy of a task that is slow."""
    return bool(spark.conf.get("spark.speculation", "false") == "true")


def work_on(job: RangeJob, batch_id: int, ranges: Iterable[Range]) -> list[Facts]:
    """The work of a task."""
    with Connections() as connections:
        return [job.work(range_, batch_id, connections) for range_ in ranges]


def _answers(ranges: DataFrame, job: RangeJob | StageJob, batch_id: int) -> list[Facts]:
    if isinstance(job, StageJob):
        every = [Range(*row) for row in ranges.collect()]
        return job.do(ranges.sparkSession, every, batch_id)

    def work(rows: Iterable[Row]) -> list[Facts]:
        return work_on(job, batch_id, [Range(*row) for row in rows])

    # Of a data frame's own functions, those that see a whole task want pandas.
    found: list[Facts] = ranges.rdd.mapPartitions(work).collect()
    return found


def run_tasks(
    spark: SparkSession, tasks: Sequence[Task], work: Callable[[Task], Answer], *, parallel: int
) -> Iterator[Answer]:
    """Do bounded work: one Spark task for each of `tasks`, some at a time, and their answers, which
    are as JSON has them.

    `parallel` is how many the cluster can run at once.
    """
    from pyspark.sql.functions import udf

    refuse_speculation(spark)
    at_once = max(parallel, -(-len(tasks) // WAVES))
    for begin in range(0, len(tasks), at_once):
        some = list(tasks[begin : begin + at_once])

        def one(index: int, some: list[Task] = some) -> str:
            return json.dumps(work(some[index]))

        answer = udf(one, "string", useArrow=False).asNondeterministic()
        # A range of numbers is what Spark cuts into exactly as many partitions as it is told to.
        for row in spark.range(0, len(some), 1, len(some)).select(answer("id")).collect():
            yield json.loads(row[0])
