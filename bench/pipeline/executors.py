"""The plan for large clusters, beside clusters of 1, 2 and 4 executors: `python -m
bench.pipeline.executors`.

Each is a standalone cluster of Spark's on this machine, with executors of one core, and archives
400 partitions with few records: once to warm up, then a few times, of which the medians are told
beside what `bench.pipeline.plan` says. More executors than there are cores show what the tasks
cost, and not how long they take.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench import machine
from bench.pipeline.plan import Constants, Load, planned
from bench.pipeline.processes import cpu_seconds
from bench.pipeline.topics import fill_many
from bench.servers import CHECKOUT, Triglot
from client.cluster import Cluster
from pipeline.jobs.archive import Archive
from pipeline.session import session
from tests.pipeline.spark_places import ON_LOOPBACK, Place, standalone

TOPICS = tuple(f"bench-small-{number}" for number in range(200))
PARTITIONS, RECORDS = 2, 50
SIZES = (1, 2, 4)


def archives(master: str, servers: str, folder: Path, rounds: int) -> None:
    """Prints a line after each: seconds on the clock, CPU-seconds of the driver with its JVM. The
    next one begins when a line has been read from standard input."""
    with session(master=master, conf=ON_LOOPBACK) as spark:
        for number in range(rounds + 1):
            input()
            began, cpu = time.perf_counter(), cpu_seconds(os.getpid())
            Archive(str(folder / str(number)), servers=servers, topics=TOPICS).run(spark)
            print(time.perf_counter() - began, cpu_seconds(os.getpid()) - cpu, flush=True)


def measured(place: Place, servers: str, folder: Path, rounds: int) -> tuple[float, float, float]:
    """Medians: the clock, the driver's CPU, the executors' CPU."""
    folder.mkdir()
    words = ["--at", place.flags[1], servers, str(folder), "--rounds", str(rounds)]
    command = [sys.executable, "-m", "bench.pipeline.executors", *words]
    found: list[tuple[float, float, float]] = []
    with subprocess.Popen(
        command,
        cwd=CHECKOUT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as ran:
        assert ran.stdin is not None
        assert ran.stdout is not None
        for _ in range(rounds + 1):
            before = sum(cpu_seconds(root) for root in place.roots)
            ran.stdin.write("\n")
            ran.stdin.flush()
            wall, driver = map(float, ran.stdout.readline().split())
            tasks = sum(cpu_seconds(root) for root in place.roots) - before
            found.append((wall, driver, tasks))
            print(f"{wall:.1f} s, driver {driver:.1f}, executors {tasks:.1f}", file=sys.stderr)
    clock, of_driver, of_tasks = (median(column) for column in zip(*found[1:], strict=True))
    return clock, of_driver, of_tasks


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline.executors", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="after one to warm up; default 3")
    parser.add_argument("--at", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.at is not None:
        master, servers, folder = options.at
        archives(master, servers, Path(folder), options.rounds)
        return
    facts = machine.described()
    print(f"{facts['date']}; {facts['cores']} cores, {facts['cpu']}\n")
    print(
        "| executors | driver, CPU-s | planned | tasks, CPU-s | planned | on the clock, s | load |"
    )
    print("| ---: " * 7 + "|")
    with ExitStack() as kept:
        folder = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        broker = Triglot(folder / "data")
        kept.callback(broker.stop)
        broker.wait_until_ready()
        with Cluster(broker.bootstrap) as cluster:
            fill_many(cluster, TOPICS, PARTITIONS, RECORDS)
        partitions = len(TOPICS) * PARTITIONS
        for number in SIZES:
            load = Load(number, partitions, partitions * RECORDS, 1, cores_each=1)
            plan = planned(load, Constants())
            with standalone(folder / f"spark-{number}", number) as place:
                at = folder / f"archives-{number}"
                clock, driver, tasks = measured(place, broker.bootstrap, at, options.rounds)
            print(
                f"| {number} | {driver:.1f} | {plan.driver_s:.1f} | {tasks:.1f} "
                f"| {plan.tasks_s * number:.1f} | {clock:.1f} | {os.getloadavg()[0]:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
