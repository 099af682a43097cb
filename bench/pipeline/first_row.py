"""`python -m bench.pipeline.first_row`: from a session that is up to the first row of a topic.

Each round has a process, and so a JVM, of its own. Estimate, on paper: 3 s, most of it Python
processes that import Spark and Arrow: one for the data source, one for its plan, one for the task.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench import machine
from bench.pipeline.processes import cpu_seconds
from bench.pipeline.topics import fill
from bench.servers import CHECKOUT, Triglot
from client.cluster import Cluster
from pipeline.session import session

TOPIC = "bench-orders"


def first_row(bootstrap: str) -> tuple[float, float]:
    """Seconds on the clock, and of CPU by Spark and its workers."""
    with session(master="local[2,4]") as spark:
        began, cpu = time.perf_counter(), cpu_seconds(os.getpid())
        read = spark.read.format("triglot").option("kafka.bootstrap.servers", bootstrap)
        assert read.option("subscribe", TOPIC).load().first() is not None
        return time.perf_counter() - began, cpu_seconds(os.getpid()) - cpu


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline.first_row", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.at is not None:
        print(*first_row(options.at))
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        broker = Triglot(Path(place) / "data")
        try:
            broker.wait_until_ready()
            with Cluster(broker.bootstrap) as cluster:
                fill(cluster, TOPIC, 100_000, 4)
            command = [sys.executable, "-m", "bench.pipeline.first_row", "--at", broker.bootstrap]
            rounds = [
                [float(word) for word in subprocess.check_output(command, cwd=CHECKOUT).split()]
                for _ in range(options.rounds)
            ]
        finally:
            broker.stop()
    facts = machine.described()
    load = os.getloadavg()[0]
    print(f"{facts['date']}; {facts['cores']} cores, {facts['cpu']}; load average {load:.1f}")
    wall, cpu = map(median, zip(*rounds, strict=True))
    print(f"first row: {wall:.1f} s (wanted 4), {cpu:.1f} CPU-s")


if __name__ == "__main__":
    main()
