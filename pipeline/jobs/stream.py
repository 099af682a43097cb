"""An example to copy: records and bytes per key and window of event time, kept up to date.

    records  ->  windows, closed by a watermark  ->  Parquet files and messages in a topic

A record belongs to the windows that its own timestamp is in, not to those in which it comes. The
watermark is the greatest timestamp seen less `delay_s`: a window that ended before it is written
and never again, and a record that comes for it later is left out. So is one without a timestamp,
as all of the oldest message format are.

What a micro-batch closes goes to two places. The files are exactly once: a micro-batch that Spark
repeats after a failure replaces its own folder, `batch=N`. The messages are at least once, since a
topic takes nothing back: they are keyed as the records are, and (key, start) tells a repeated one.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from pipeline.archiving.archive_files import STATE
from pipeline.errors import ForeignState, WrongUse
from pipeline.filesystem import locate, refusing
from pipeline.jobs.range_runs import backlog
from pipeline.outcome import BatchDone, Outcome, Tally
from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import offsets_from_json
from pipeline.state import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from pipeline.outcome import Watch
    from pipeline.reading.plan import Offsets
    from pipeline.reading.source import Source

MAX_OFFSETS = 1_000_000
"""In a micro-batch; the state of open windows is kept in the memory of the executors."""
POLL_S = 1


# What a user would write


def windows(records: DataFrame, window_s: float, delay_s: float) -> DataFrame:
    """Counts per key and window of a stream of records: start, end, key, records, bytes."""
    from pyspark.sql import functions as f

    size = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(
        f.octet_length("value"), f.lit(0)
    )
    span = f.window("timestamp", _milliseconds(window_s))
    counts = (
        records.withWatermark("timestamp", _milliseconds(delay_s))
        .groupBy(span.alias("window"), "key")
        .agg(f.count("*").alias("records"), f.sum(size).alias("bytes"))
    )
    return counts.select("window.start", "window.end", "key", "records", "bytes")


def write_files(closed: DataFrame, folder: str, batch_id: int) -> None:
    """The micro-batch's windows as Parquet, over what an earlier attempt at it has left."""
    place = f"{folder}/batch={batch_id}"
    closed.coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(place)


def of_client(command_config: str | None) -> dict[str, str]:
    """The option that names a file of a client's properties, if there is one."""
    return {} if command_config is None else {"commandConfig": command_config}


def write_messages(
    closed: DataFrame, servers: str, topic: str, command_config: str | None = None
) -> None:
    """The same as messages: JSON, with the key that was counted."""
    from pyspark.sql import functions as f

    told = f.to_json(f.struct("start", "end", "records", "bytes"))
    messages = closed.select("key", told.cast("binary").alias("value"))
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        **of_client(command_config),
    }
    messages.write.format("triglot").options(**options).mode("append").save()


# The job: checks, a state, and who is told


@dataclass(frozen=True)
class Stream:
    """A running count of records, and where it is written."""

    servers: str
    """The brokers of both topics, "host:port,..."."""
    topics: tuple[str, ...]
    to: str
    """A folder, local or a URI, for the files: a new or an empty one, or that of this job."""
    to_topic: str
    """A topic that is there, for the messages."""
    window_s: float = 60.0
    delay_s: float = 30.0
    """How late a record may come."""
    state: str | None = None
    """What has been done; by default in `_state` in the folder."""
    every_s: float | None = None
    """Go on for ever, and look so often for more; None: end when all is done that is there now.
    Windows that are open then are written by a later run."""
    starting: str = "earliest"
    """Or `latest`, or JSON as in the option startingOffsets; counts for a new state only."""
    max_offsets: int = MAX_OFFSETS
    command_config: str | None = None
    """A file with Kafka's client properties, for TLS and SASL, on every machine that runs tasks."""

    @property
    def options(self) -> dict[str, str]:
        """For `format("triglot")`."""
        return {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": ",".join(self.topics),
            "startingOffsets": self.starting,
            "maxOffsetsPerTrigger": str(self.max_offsets),
            **of_client(self.command_config),
        }

    def check(self) -> None:
        """Everything that can be known before a JVM starts.

        Raises WrongUse, Unreachable, NoSuchTopic, ForeignState, and Refused where the folder cannot
        be made.
        """
        for name in ("window_s", "delay_s", "every_s"):
            value = getattr(self, name)
            if value is not None and not value >= 0.001:
                raise WrongUse(f"{name} is {value}: give at least 0.001 s")
        if self.to_topic in self.topics:
            raise WrongUse(f"{self.to_topic!r} is read and written: the counts would be counted")
        options = SourceOptions.parse(self.options, streaming=True)
        with contextlib.closing(options.source()) as source:
            options.select(source)
            source.partitions([self.to_topic])
            identity = self._identity(source)
        State.check(self._state_path, identity)
        with refusing(f"write to {self.to}"):
            self._check_folder()
            locate(self.to).make()

    def run(self, spark: SparkSession, watch: Watch | None = None) -> Outcome:
        """Do it, and wait for the end. Raises Failure, or what Spark makes of it."""
        tally = Tally("stream", watch)
        options = SourceOptions.parse(self.options, streaming=True)
        with contextlib.closing(options.source()) as source:
            identity = self._identity(source)
            known = State(locate(self._state_path))
            tally.total(backlog(source, options, known) if self.every_s is None else None)
        with contextlib.closing(State.open(self._state_path, identity)) as state:
            query = self._start(spark, state)
            told = -1
            try:
                ended = False
                while not ended:
                    ended = bool(query.awaitTermination(POLL_S))
                    told = _tell(query.recentProgress, told, tally)
            finally:
                with contextlib.suppress(Exception):
                    query.stop()
        return tally.outcome()

    def _start(self, spark: SparkSession, state: State) -> StreamingQuery:
        folder = locate(self.to).uri

        def write(closed: DataFrame, batch_id: int) -> None:
            closed.persist()  # computed once, written twice
            if not closed.isEmpty():
                write_files(closed, folder, batch_id)
                write_messages(closed, self.servers, self.to_topic, self.command_config)
            closed.unpersist()

        records = spark.readStream.format("triglot").options(**self.options).load()
        counts = windows(records, self.window_s, self.delay_s)
        writer = counts.writeStream.outputMode("append").foreachBatch(write)
        writer = writer.option("checkpointLocation", state.checkpoint)
        if self.every_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=_milliseconds(self.every_s)).start()

    @property
    def _state_path(self) -> str:
        return f"{self.to.rstrip('/')}/{STATE}" if self.state is None else self.state

    def _identity(self, source: Source) -> dict[str, str]:
        """The windows too: counts of one length cannot be gone on with in another."""
        return {
            "job": "stream",
            "cluster": source.cluster_id() or self.servers,
            "topics": ",".join(sorted(self.topics)),
            "to_topic": self.to_topic,
            "to": STATE if self.state is None else self.to,
            "window": _milliseconds(self.window_s),
            "delay": _milliseconds(self.delay_s),
        }

    def _check_folder(self) -> None:
        """A new query counts its micro-batches from 0, and would replace those of an older one."""
        if State(locate(self._state_path)).names():
            return
        folder = locate(self.to)
        selector = fs.FileSelector(folder.path, allow_not_found=True)
        found = sorted(info.base_name for info in folder.filesystem.get_file_info(selector))
        others = [name for name in found if name != STATE and not name.startswith(".")]
        if others:
            raise ForeignState(
                f"{self.to} has other files in it ({others[0]}), and there is no state in "
                f"{self._state_path}: name an empty folder or a new one"
            )


def stream(
    servers: str,
    topics: Sequence[str],
    to: str,
    to_topic: str,
    *,
    spark: SparkSession | None = None,
    watch: Watch | None = None,
    **rest: Any,
) -> Outcome:
    """Count, and wait for the end: what `Stream` has as fields, by name.

    In the session `spark`, the active one, or a new one. Raises Failure.
    """
    from pipeline.session import session

    job = Stream(servers, tuple(topics), to, to_topic, **rest)
    job.check()
    with session() as active:
        return job.run(spark or active, watch)


def _milliseconds(seconds: float) -> str:
    """As Spark has intervals."""
    return f"{round(seconds * 1000)} milliseconds"


def _tell(progress: Sequence[StreamingQueryProgress], told: int, watch: Watch) -> int:
    """Of the micro-batches after the one that was told last; the number of the last one now."""
    for one in progress:
        if one.batchId <= told:
            continue
        told = one.batchId
        ends = _offsets(one.sources[0].endOffset)
        starts = _offsets(one.sources[0].startOffset)
        late = sum(operator.numRowsDroppedByWatermark for operator in one.stateOperators)
        watch.batch(
            BatchDone(
                one.batchId,
                one.numInputRows,
                0,
                one.batchDuration / 1000,
                # The first of a query does not say where it began.
                offsets=sum(end - starts.get(place, end) for place, end in ends.items())
                if starts
                else one.numInputRows,
                end_offsets=ends,
                details={"late rows": late},
            )
        )
    return told


def _offsets(told: str | None) -> Offsets:
    return offsets_from_json(json.loads(told or "null") or {})
