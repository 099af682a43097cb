"""A plan for large clusters: `python -m bench.pipeline.plan`; what limits an archive first.

A model in plain numbers of an archive that looks for more every so many seconds. Its constants are
those of the machine that bench/results/2026-11-25-pipeline-plan.md names, two of them corrected by
`bench.pipeline.executors` (2026-11-26-lake.md). `--measure` takes the driver's part of them anew,
with a broker of ours that has so many partitions.

Assumed: records come evenly, all partitions get some in every interval; a task's work adds up as on
one core; the store answers as fast as it is asked. Not in the model: the network, brokers, skew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bench import machine
from bench.servers import Triglot
from client.cluster import Cluster, TopicPartition
from pipeline.dataframes.range_reader import ranges_of
from pipeline.dataframes.stream_source import StreamReader
from pipeline.reading.options import SourceOptions
from pipeline.spark.range_stream import TASKS_OF_A_CLUSTER, TASKS_PER_CORE
from protocol.records.builder import build_batch

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")
DAY_S = 86_400
TOPIC_PARTITIONS = 100


class Constants(NamedTuple):
    """CPU-seconds. The result file says which of them are measured, and where."""

    plan_partition: float = 25e-6
    """The driver's, per partition: metadata, ends, and the offsets as JSON."""
    micro_batch: float = 1.8
    """The driver's, whatever there is to do: Spark's plan, its log of offsets, our notes."""
    schedule_task: float = 0.006
    """The driver's, per task."""
    publish_file: float = 50e-6
    """The driver's, per file of a plain archive on a local disk ..."""
    add_file: float = 300e-6
    """... and of one that a Delta table gets besides."""
    task: float = 0.04
    """A task's, whatever it does."""
    range: float = 0.011
    """A task's, per range: fetching, and a file of few rows."""
    record: float = 2e-6
    """A task's, per record of a hundred bytes."""


class Load(NamedTuple):
    """A cluster, what comes in, and how often an archive looks for it."""

    executors: int
    partitions: int
    records_per_s: float
    every_s: float
    cores_each: int = 4
    table: bool = False
    shared: bool = True
    """Whether small ranges share tasks."""


class Plan(NamedTuple):
    """What a micro-batch costs then, in seconds, and a day, in files and requests."""

    tasks: int
    driver_s: float
    tasks_s: float
    """On the clock, with all cores busy."""
    files_per_day: float
    requests_per_s: float
    """To an object store, where a file is written, looked at, copied to its place and deleted."""


REQUESTS_PER_FILE = 5


def planned(load: Load, of: Constants) -> Plan:
    """The plan for a load, in which a micro-batch may take longer than the interval."""
    cores = load.executors * load.cores_each
    records = load.records_per_s * load.every_s
    most = max(TASKS_OF_A_CLUSTER, TASKS_PER_CORE * cores) if load.shared else load.partitions
    tasks = min(load.partitions, most)
    per_file = of.publish_file + (of.add_file if load.table else 0)
    driver = of.micro_batch + tasks * of.schedule_task
    driver += load.partitions * (of.plan_partition + per_file)
    work = tasks * of.task + load.partitions * of.range + records * of.record
    batch = driver + work / cores
    files = load.partitions * DAY_S / max(load.every_s, batch)
    requests = load.partitions * REQUESTS_PER_FILE / max(load.every_s, batch)
    return Plan(tasks, driver, work / cores, files, requests)


def measured(partitions: int) -> dict[str, float]:
    """CPU-seconds of planning a micro-batch over so many partitions; the size of its offsets."""
    place = Path(tempfile.mkdtemp(prefix="bench-"))
    broker = Triglot(place / "from")
    try:
        broker.wait_until_ready()
        names = [f"plan-{number}" for number in range(partitions // TOPIC_PARTITIONS)]
        batch = build_batch([(1, None, b"x", ())])
        with Cluster(broker.bootstrap) as cluster:
            for name in names:
                cluster.create_topic(name, TOPIC_PARTITIONS)
                for number in range(TOPIC_PARTITIONS):
                    cluster.produce(TopicPartition(name, number), [batch])
        given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": ",".join(names)}
        given |= {"startingOffsets": "earliest", "shape": "ranges", "maxPartitions": "800"}
        reader = StreamReader(SourceOptions.parse(given, streaming=True))
        with contextlib.closing(reader._source):
            begin = reader.initialOffset()
            end, planning = _timed(lambda: reader.latestOffset(begin, reader.getDefaultReadLimit()))
            text, writing = _timed(lambda: json.dumps(end))
            parts, sharing = _timed(lambda: reader.partitions(begin, end))
        assert sum(len(ranges_of(part)) for part in parts) == partitions
        return {
            "metadata and ends, CPU-seconds": planning,
            "offsets as JSON, CPU-seconds": writing,
            "ranges shared out, CPU-seconds": sharing,
            "offsets as JSON, bytes": float(len(text)),
            "tasks": float(len(parts)),
        }
    finally:
        broker.stop()
        shutil.rmtree(place)


def _timed(call: Callable[[], Result]) -> tuple[Result, float]:
    began = time.process_time()
    return call(), time.process_time() - began


LOADS = (
    Load(1, 400, 2_000, 60, cores_each=2),
    Load(50, 10_000, 1_000_000, 60, shared=False),
    Load(50, 10_000, 1_000_000, 60),
    Load(50, 10_000, 1_000_000, 600),
    Load(50, 10_000, 1_000_000, 3_600),
    Load(50, 10_000, 10_000_000, 600),
    Load(50, 10_000, 1_000_000, 600, table=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipeline.plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--measure", type=int, metavar="PARTITIONS", help="the driver's planning, here"
    )
    options = parser.parse_args()
    if options.measure:
        facts = machine.described()
        print(f"{facts['date']}; {facts['cores']} cores, {facts['cpu']}\n")
        for name, found in measured(options.measure).items():
            print(f"{name}: {found:,.3f}")
        return
    print(
        "| executors | partitions | records/s | every | table | tasks | driver, s | tasks, s "
        "| files a day | requests/s |"
    )
    print("| ---: " * 4 + "| --- " + "| ---: " * 5 + "|")
    for load in LOADS:
        plan = planned(load, Constants())
        print(
            f"| {load.executors} x {load.cores_each} | {load.partitions:,} "
            f"| {load.records_per_s:,.0f} | {load.every_s:g} s | {'Delta' if load.table else ''} "
            f"| {plan.tasks} | {plan.driver_s:.1f} | {plan.tasks_s:.1f} "
            f"| {plan.files_per_day:,.0f} | {plan.requests_per_s:,.0f} |"
        )


if __name__ == "__main__":
    main()
