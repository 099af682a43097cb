"""Micro-batches of ranges that the client plans itself: the stream of a session of Spark Connect.

A query of Spark's would call back a process of the server after each micro-batch, which has neither
the state's lock nor what the job knows. So the client asks the stream reader where to go, and gives
the ranges to tasks. What it is about to do is noted in the state before it begins, and that it is
done afterwards (`micro_batches`). A micro-batch that was cut off is repeated with the same number
and offsets, after the tasks that it may have left behind have been ended.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from pipeline.dataframes.range_reader import ranges_of
from pipeline.spark.micro_batches import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipeline.dataframes.stream_source import StreamReader
    from pipeline.reading.sharing import Share
    from pipeline.spark.range_query import Committed, Facts, RangeJob, StageJob
    from pipeline.state import State


class Tasks(Protocol):
    """The loop's interface to Spark: a `pipeline.spark.connect_tasks.ConnectTasks`."""

    session: str
    tag: str

    def do(self, job: RangeJob | StageJob, shares: Sequence[Share], number: int) -> list[Facts]:
        """All ranges of a micro-batch, a share in each task."""

    def end(self, session: str, tag: str) -> None:
        """End what an earlier run has left behind."""

    def wait(self, seconds: float) -> None:
        """Until it is time to look again."""


def run_loop(
    reader: StreamReader,
    job: RangeJob | StageJob,
    tasks: Tasks,
    *,
    state: State,
    every_s: float | None = None,
    committed: Committed | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Do what is there now; with `every_s`, look so often for more, until it is interrupted.

    Raises what the reader, the job and its tasks raise.
    """
    if every_s is None:
        reader.prepareForTriggerAvailableNow()
    last = _last(reader, tasks, state)
    published = -1
    while True:
        looked = clock()
        if last.done:
            end = reader.latestOffset(last.end, reader.getDefaultReadLimit())
            if published < last.number:
                reader.commit(last.end)
                published = last.number
            if end != last.end:
                number = last.number + 1
                last = MicroBatch(number, last.end, end, False, tasks.session, tasks.tag)
                last.write(state)
        if not last.done:
            began = clock()
            parts = reader.partitions(last.start, last.end)
            results = tasks.do(job, [ranges_of(part) for part in parts], last.number)
            job.commit(last.number, results)
            if committed is not None:
                committed(last.number, results, clock() - began)
            last = last._replace(done=True)
            last.write(state)
        elif every_s is None:
            return
        if every_s is not None:
            tasks.wait(every_s - (clock() - looked))


def _last(reader: StreamReader, tasks: Tasks, state: State) -> MicroBatch:
    """The micro-batch that the state names last; tasks of a run that was cut off are ended."""
    last = MicroBatch.read(state)
    if last is None:
        begin = reader.initialOffset()
        last = MicroBatch(-1, begin, begin, True, tasks.session, tasks.tag)
    elif last.done:
        return last
    else:
        tasks.end(last.session, last.tag)
        last = last._replace(session=tasks.session, tag=tasks.tag)
    last.write(state)
    return last
