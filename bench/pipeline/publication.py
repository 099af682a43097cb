"""`python -m bench.pipeline.publication`: what it takes the driver to publish a micro-batch.

A micro-batch of so many files, ten of a partition, is archived by the code of tasks. Measured is
the driver's part after it, `ArchiveJob.commit`, as plain Parquet and as a table of each kind, each
time in a new folder.

Estimate, on paper: a plain file is a rename and a line in the note, 50 us; one of a table is an
entry of its log as well, and another 100 us as long as the driver need not open it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import machine
from bench.pipeline.topics import fill
from bench.servers import Triglot
from client.cluster import Cluster
from pipeline.archiving.archive_job import ArchiveJob
from pipeline.jobs.archive import Archive
from pipeline.reading.connections import Connections
from pipeline.reading.plan import Range
from pipeline.state import State
from pipeline.tables.table import KINDS, Catalog

TOPIC = "bench-orders"
FILES_OF_A_PARTITION = 10


class Taken(NamedTuple):
    """Seconds on the clock, and of CPU by all threads."""

    wall: float
    cpu: float


def published(bootstrap: str, folder: Path, kind: str, files: int) -> Taken:
    """One micro-batch of an archive that is begun."""
    catalog = None
    if kind == "iceberg":
        uri = f"sqlite:///{folder.parent / folder.name}.db"
        catalog = Catalog("bench.orders", "bench", {"type": "sql", "uri": uri})
    archive = Archive(str(folder), servers=bootstrap, topics=(TOPIC,), table=kind, catalog=catalog)
    with closing(archive.parsed().source()) as source:
        identity, cluster = archive.identity(source), source.cluster_id()
    with (
        closing(State.open(str(folder / "_state"), identity)) as state,
        Connections() as connections,
    ):
        job = archive.job(state, cluster)
        assert isinstance(job, ArchiveJob)
        ranges = [
            Range(TOPIC, number // FILES_OF_A_PARTITION, at, at + 1)
            for number in range(files)
            for at in [number % FILES_OF_A_PARTITION]
        ]
        results = [job.work(range_, 0, connections) for range_ in ranges]
        os.sync()
        began, cpu = time.perf_counter(), time.process_time()
        job.commit(0, results)
        return Taken(time.perf_counter() - began, time.process_time() - cpu)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipeline.publication", description=__doc__
    )
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        broker = Triglot(Path(place) / "data")
        try:
            broker.wait_until_ready()
            with Cluster(broker.bootstrap) as cluster:
                fill(cluster, TOPIC, options.files, options.files // FILES_OF_A_PARTITION)
            found = [
                {
                    kind: published(
                        broker.bootstrap, Path(place) / f"{kind}-{number}", kind, options.files
                    )
                    for kind in KINDS
                }
                for number in range(options.rounds)
            ]
        finally:
            broker.stop()
    facts = machine.described()
    load = os.getloadavg()[0]
    print(f"{facts['date']}; {facts['cores']} cores, {facts['cpu']}; load average {load:.1f}")
    for kind in KINDS:
        wall, cpu = (median(getattr(one[kind], name) for one in found) for name in Taken._fields)
        print(f"{kind}, {options.files:,} files: {wall:.2f} s, {cpu:.2f} CPU-s (wanted 10 s)")


if __name__ == "__main__":
    main()
