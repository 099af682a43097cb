"""Ranges as a stream: a query of Spark's, or our own loop.

The loop is what Spark Connect needs. A state in S3 is kept by it, too: the checkpoint of a query of
Spark's would need Hadoop's jars for S3 there, and there nothing keeps two queries from writing one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.reading.options import SourceOptions
from pipeline.session import cores, is_one_machine
from pipeline.spark.connect_tasks import ConnectTasks
from pipeline.spark.driver_tasks import DriverTasks
from pipeline.spark.micro_batches import check_way
from pipeline.spark.range_loop import run_loop
from pipeline.spark.range_query import refuse_speculation, run_query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from pipeline.spark.range_query import Committed, RangeJob, StageJob
    from pipeline.state import State


TASKS_PER_CORE = 4
"""In a micro-batch: few, as each costs, and enough for cores to end at about the same time."""
TASKS_OF_A_CLUSTER = 32


def run_stream(
    spark: SparkSession,
    job: RangeJob | StageJob,
    *,
    source: Mapping[str, str],
    state: State,
    every_s: float | None = None,
    committed: Committed | None = None,
) -> None:
    """Do the job on all ranges that `format("triglot")` has with these options.

    Without `every_s` it ends when it has done what was there at its start; with it, it looks for
    more so many seconds after it last looked, until it is interrupted. `committed` is told of each
    micro-batch. Raises ForeignState for a state that was begun with the other kind of session, and
    what goes wrong: a Failure, or what Spark makes of it.
    """
    source = {"maxPartitions": str(_tasks(spark)), **source}
    connected = "connect" in type(spark).__module__
    in_loop = connected or state.location.is_s3
    check_way(state, in_loop=in_loop)
    refuse_speculation(spark)
    if not in_loop:
        run_query(spark, job, source=source, state=state, every_s=every_s, committed=committed)
        return
    from pipeline.dataframes.stream_source import StreamReader

    reader = StreamReader(SourceOptions.parse({**source, "shape": "ranges"}, streaming=True))
    tasks = ConnectTasks(spark) if connected else DriverTasks(spark)
    try:
        run_loop(reader, job, tasks, state=state, every_s=every_s, committed=committed)
    finally:
        reader.stop()


def _tasks(spark: SparkSession) -> int:
    """How many tasks a micro-batch's ranges are shared out to, at most."""
    most = TASKS_PER_CORE * cores(spark)
    connected = "connect" in type(spark).__module__
    if not connected and is_one_machine(spark.sparkContext.master or ""):
        return most
    # A cluster may grow while the work goes on.
    return max(most, TASKS_OF_A_CLUSTER)
