"""Tasks on a Spark Connect server, and the end of those that a client has left behind there.

What a client has begun goes on when the client is gone: the server waits for it to come again, five
minutes by default. The next client must not do the same work beside that, and ends it first. A tag
tells it from whatever else the session does.
"""

from __future__ import annotations

import copy
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING

from pipeline.spark.range_query import StageJob, run_tasks, work_on

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from pipeline.reading.sharing import Share
    from pipeline.spark.range_query import Facts, RangeJob

ENDING_S = 6.0
"""Spark sees within 2 s that a task is to end, and kills its Python after 2 s more."""
KEPT_S = 600.0
"""A server forgets a session that has asked for nothing for an hour."""


class ConnectTasks:
    """The tasks of one run, in a session of Spark Connect."""

    def __init__(self, spark: SparkSession, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._spark = spark
        self._sleep = sleep
        self.session: str = spark.session_id  # type: ignore[attr-defined]
        self.tag = f"triglot-{uuid.uuid4().hex}"

    def do(self, job: RangeJob | StageJob, shares: Sequence[Share], number: int) -> list[Facts]:
        """All ranges of a micro-batch, a share in each task. Raises what Spark makes of it if one
        fails."""
        self._spark.addTag(self.tag)
        try:
            if isinstance(job, StageJob):
                return job.do(self._spark, [one for share in shares for one in share], number)
            work = partial(work_on, job, number)
            answers = run_tasks(self._spark, shares, work, parallel=max(1, len(shares)))
            return [facts for some in answers for facts in some]
        finally:
            self._spark.removeTag(self.tag)

    def end(self, session: str, tag: str) -> None:
        """End the tasks that a client has left behind, and wait until they are gone."""
        if not session:
            return  # they were those of a driver, and ended with it
        from pyspark.errors.exceptions.connect import SparkConnectException
        from pyspark.sql.connect.client import ChannelBuilder, SparkConnectClient

        own = self._spark.client
        place = copy.deepcopy(own._builder)
        place.set(ChannelBuilder.PARAM_SESSION_ID, session)
        client = SparkConnectClient(place, user_id=own._user_id)
        try:
            client.interrupt_tag(tag)
        except SparkConnectException as failure:
            # The session has ended, and its tasks with it.
            if "INVALID_HANDLE.SESSION" not in str(failure):
                raise
        finally:
            client.close()
        self._sleep(ENDING_S)

    def wait(self, seconds: float) -> None:
        """Sleep, and keep the session."""
        while seconds > 0:
            self._spark.conf.get("spark.speculation", "false")
            self._sleep(min(seconds, KEPT_S))
            seconds -= KEPT_S
