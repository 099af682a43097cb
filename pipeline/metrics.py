"""Metrics of a job, and of users' own queries, for Prometheus: a port that answers with a page.

    triglot pipeline archive ... --every 10s --metrics 127.0.0.1:9108

    with metrics.listen(spark, "127.0.0.1:9108"):       queries over format("triglot")
        query.awaitTermination()

The page is written by prometheus_client. Names are told in docs/pipeline-on-a-cluster.md.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from pipeline.errors import NotInstalled, Refused, WrongUse
from pipeline.reading.plan import offsets_from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from pipeline.console.progress import Status
    from pipeline.outcome import BatchDone, Outcome

ENDS_KEPT = 4_000
"""How many ends of the logs are remembered, to tell how old a position is."""


def address_of(text: str) -> tuple[str, int]:
    """HOST:PORT. Raises WrongUse."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65_536):
        raise WrongUse(f"wanted HOST:PORT like 127.0.0.1:9108 for the metrics, found {text!r}")
    return host.strip("[]"), int(port)


@contextlib.contextmanager
def served(address: str, registry: Any) -> Iterator[int]:
    """Answer at HOST:PORT while it lasts; yields the port, which is another one for port 0.

    Raises WrongUse, Refused where nobody can listen there.
    """
    from prometheus_client import start_http_server

    host, port = address_of(address)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as failure:
        raise Refused(f"cannot listen on {address} for the metrics: {failure.strerror}") from None
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def new_registry() -> Any:
    """What holds the metrics of one page. Raises NotInstalled."""
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as error:
        raise NotInstalled(
            f"metrics need prometheus_client ({error}): pip install triglot[pipeline]"
        ) from None
    return CollectorRegistry()


class JobMetrics:
    """A View of a job's progress (`console.progress`) that keeps its metrics."""

    def __init__(self, job: str, registry: Any, clock: Callable[[], float] = time.time) -> None:
        from prometheus_client import Counter, Gauge

        def counter(name: str, text: str, *labels: str) -> Any:
            return Counter(f"triglot_pipeline_{name}", text, ("job", *labels), registry=registry)

        def gauge(name: str, text: str) -> Any:
            return Gauge(f"triglot_pipeline_{name}", text, ("job",), registry=registry).labels(job)

        self._job = job
        self._clock = clock
        self._records = counter("records", "Records that are done and committed.").labels(job)
        self._bytes = counter("bytes", "Bytes of the logs that they were in.").labels(job)
        self._offsets = counter("offsets", "Offsets that are done.").labels(job)
        self._batches = counter("batches", "Micro-batches that are committed.").labels(job)
        self._batch_seconds = counter("batch_seconds", "Seconds spent in them.").labels(job)
        self._counted = counter("counted", "What the job counts: files, bytes, ...", "what")
        self._left_out = counter("left_out", "What was left out, by reason.", "reason")
        self._lag = gauge("lag_records", "Offsets that are behind the ends of the logs.")
        self._lag_seconds = gauge(
            "lag_seconds", "For how long at least the next one has been there."
        )
        self._last = gauge("last_batch_timestamp_seconds", "When the last micro-batch was done.")
        self._ends: deque[tuple[float, int]] = deque(maxlen=ENDS_KEPT)

    def show(self, status: Status, done: BatchDone | None) -> None:
        """As View has it."""
        if done is not None:
            self._count(done)
        if status.lag is None:
            return
        self._lag.set(status.lag)
        if done is not None:
            self._ends.append((status.elapsed_s, status.offsets + status.lag))
        while len(self._ends) > 1 and self._ends[0][1] <= status.offsets:
            self._ends.popleft()
        behind = self._ends and self._ends[0][1] > status.offsets
        self._lag_seconds.set(status.elapsed_s - self._ends[0][0] if behind else 0)

    def close(self, outcome: Outcome | None) -> None:
        """As View has it."""

    def _count(self, done: BatchDone) -> None:
        self._records.inc(done.records)
        self._bytes.inc(done.bytes)
        self._offsets.inc(done.offsets)
        self._batches.inc()
        self._batch_seconds.inc(done.seconds)
        self._last.set(self._clock())
        for what, count in done.details.items():
            self._counted.labels(self._job, what).inc(count)
        left_out = done.left_out
        for reason in ("offsets_missing", "batches_corrupt", "offsets_corrupt"):
            self._left_out.labels(self._job, reason).inc(getattr(left_out, reason))


@contextlib.contextmanager
def listen(spark: SparkSession, address: str) -> Iterator[int]:
    """Metrics of the streaming queries of a session, at HOST:PORT while it lasts; yields the port.

    Labels are a query's name, or its id. Raises WrongUse, NotInstalled, Refused.
    """
    registry = new_registry()
    listener = _listener(registry)
    with served(address, registry) as port:
        spark.streams.addListener(listener)
        try:
            yield port
        finally:
            spark.streams.removeListener(listener)


def _listener(registry: Any) -> Any:
    from prometheus_client import Counter, Gauge
    from pyspark.sql.streaming.listener import StreamingQueryListener

    rows = Counter("triglot_query_rows", "Rows read.", ("query",), registry=registry)
    batches = Counter("triglot_query_batches", "Micro-batches.", ("query",), registry=registry)
    failed = Counter("triglot_query_failed", "Queries that failed.", registry=registry)
    running = Gauge("triglot_query_running", "Queries that run.", registry=registry)
    seconds = Gauge(
        "triglot_query_batch_seconds", "Of the last micro-batch.", ("query",), registry=registry
    )
    lag = Gauge(
        "triglot_query_lag_records", "Offsets behind the logs' ends.", ("query",), registry=registry
    )

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            running.inc()

        def onQueryProgress(self, event: Any) -> None:
            progress = event.progress
            query = progress.name or str(progress.id)
            rows.labels(query).inc(progress.numInputRows)
            batches.labels(query).inc()
            seconds.labels(query).set(progress.batchDuration / 1000)
            lag.labels(query).set(sum(lag_of(one) for one in progress.sources))

        def onQueryIdle(self, event: Any) -> None:
            """Nothing has come."""

        def onQueryTerminated(self, event: Any) -> None:
            running.dec()
            if event.exception is not None:
                failed.inc()

    return Listener()


def lag_of(source: Any) -> int:
    """Of a source's progress: offsets from where it is to the logs' ends; 0 where it tells none."""
    try:
        latest, end = (
            offsets_from_json(json.loads(told)) for told in (source.latestOffset, source.endOffset)
        )
        return sum(max(0, offset - end.get(place, offset)) for place, offset in latest.items())
    except (TypeError, ValueError, AttributeError):
        return 0
