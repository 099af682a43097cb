"""Tasks of a session of this process, for micro-batches that no query of Spark's plans."""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import TYPE_CHECKING

from pipeline.errors import ForeignState
from pipeline.spark.range_query import StageJob, run_tasks, work_on

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from pipeline.reading.sharing import Share
    from pipeline.spark.range_query import Facts, RangeJob


class DriverTasks:
    """The tasks of one run. They end with it: executors leave when their driver has gone."""

    session = ""

    def __init__(self, spark: SparkSession, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._spark = spark
        self._sleep = sleep
        self.tag = f"triglot-{uuid.uuid4().hex}"

    def do(self, job: RangeJob | StageJob, shares: Sequence[Share], number: int) -> list[Facts]:
        """All ranges of a micro-batch, a share in each task. Raises what Spark makes of it if one
        fails."""
        if isinstance(job, StageJob):
            return job.do(self._spark, [one for share in shares for one in share], number)
        work = partial(work_on, job, number)
        answers = run_tasks(self._spark, shares, work, parallel=max(1, len(shares)))
        return [facts for some in answers for facts in some]

    def end(self, session: str, tag: str) -> None:
        """Nothing is left of what another process has begun, unless a server was to do it.

        Raises ForeignState.
        """
        if session:
            raise ForeignState(
                "the last run was cut off on a server of Spark Connect, where its tasks may still "
                "be at work: go on through it (--remote)"
            )

    def wait(self, seconds: float) -> None:
        """Until it is time to look again."""
        self._sleep(max(0.0, seconds))
