"""`python -m bench.pipeline`: two brokers, a topic, and what each load takes; a table at the end.

    read      batches and records to noop, and Spark's connector, against the same rows in Parquet
    mirror    batches passed on, against records read and produced again by the connector
    archive   a topic to zstd Parquet, by us and by the connector
    values    Avro with a registry to the columns of an Iceberg table, and by the connector and
              Spark's from_avro to Parquet
    small     the same three of 200 topics of two partitions with 50 records each
    kills     an archive and a mirror whose drivers are killed five times

Estimates, on paper, for two cores that the broker shares. Of the rate of Parquet: batches 1.5 x (no
record is touched), records 0.5 x (decoding in Python's workers, and Arrow into the JVM). Mirror:
8 times as many MB per CPU-second (nothing is decompressed). Archive: twice as fast (no row passes
through the JVM). Values: 0.3 million records per CPU-second, and 1.2 x the connector, as rows pass
into the JVM and back. Of small partitions each at most as much CPU time: tasks have many of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench import machine
from bench.pipeline.avro_topics import SCHEMA, fill_avro
from bench.pipeline.kills import distinct_rows, run_killed
from bench.pipeline.topics import fill, fill_many, stored
from bench.servers import CHECKOUT, Server, Triglot
from client.cluster import Cluster
from tests.support.schema_registry import SchemaRegistry
from tests.support.spark_connector import spark_jars

if TYPE_CHECKING:
    from collections.abc import Sequence

LOADS = ("read", "mirror", "archive", "values", "small", "kills")
TOPIC = "bench-orders"
PARTITIONS = 4
VALUES = "bench-values"
SMALL = tuple(f"bench-small-{number}" for number in range(200))
SMALL_PARTITIONS, SMALL_RECORDS = 2, 50


class Row(NamedTuple):
    """A line of the table; `wanted` is what was promised, `estimate` what was expected."""

    load: str
    figure: str
    found: str
    wanted: str = ""
    estimate: str = ""


class Bench:
    """A topic at one broker, another broker to write to, and a folder."""

    def __init__(self, source: Server, other: Server, folder: Path, records: int) -> None:
        self.source = source
        self.other = other
        self.folder = folder
        self.records = records
        self.bytes = 0
        """Of the topic, as its batches are stored."""

    def fill(self) -> None:
        with Cluster(self.source.bootstrap) as cluster:
            fill(cluster, TOPIC, self.records, PARTITIONS)
            self.bytes = sum(one.bytes for one in stored(cluster, TOPIC))

    def spark(
        self, load: str, rounds: int, topics: Sequence[str] = (TOPIC,), registry: str = ""
    ) -> dict[str, tuple[float, float]]:
        """Median seconds, on the clock and of CPU, of each way."""
        folder = self.folder / load
        folder.mkdir()
        command = [sys.executable, "-m", "bench.pipeline.spark_session", load]
        command += [self.source.bootstrap, self.other.bootstrap, ",".join(topics)]
        command += [str(rounds), spark_jars(), str(folder), registry]
        with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as ran:
            assert ran.stdout is not None
            for line in ran.stdout:
                print(line, end="", file=sys.stderr, flush=True)
        if ran.returncode:
            raise subprocess.CalledProcessError(ran.returncode, command)
        taken: dict[str, tuple[float, float]] = json.loads(line)
        return taken

    def read(self, rounds: int) -> list[Row]:
        taken = self.spark("read", rounds)
        rates = {name: self.records / wall for name, (wall, _) in taken.items()}
        wanted = {"batches": ("0.8", "1.5"), "records": ("0.4", "0.5"), "connector": ("", "0.15")}
        rows = [Row("read", "Parquet, million records/s", f"{rates['parquet'] / 1e6:.2f}")]
        for name, (least, estimate) in wanted.items():
            ratio = f"{rates[name] / rates['parquet']:.2f}"
            rows.append(Row("read", f"{name}, million records/s", f"{rates[name] / 1e6:.2f}"))
            rows.append(Row("read", f"{name} / Parquet", ratio, least, estimate))
        return rows

    def mirror(self, rounds: int) -> list[Row]:
        taken = self.spark("mirror", rounds)
        per_cpu = {name: self.bytes / 1e6 / cpu for name, (_, cpu) in taken.items()}
        rows = [
            Row("mirror", f"{name}, MB per CPU-second", f"{value:.1f}")
            for name, value in per_cpu.items()
        ]
        wall = taken["connector"][0] / taken["triglot"][0]
        ratio = per_cpu["triglot"] / per_cpu["connector"]
        rows.append(Row("mirror", "triglot / connector, per CPU-second", f"{ratio:.1f}", "3", "8"))
        rows.append(Row("mirror", "triglot / connector, on the clock", f"{wall:.1f}"))
        return rows

    def archive(self, rounds: int) -> list[Row]:
        taken = self.spark("archive", rounds)
        rows = [
            Row("archive", f"{name}, million records/s", f"{self.records / wall / 1e6:.2f}")
            for name, (wall, _) in taken.items()
        ]
        ratio = taken["connector"][0] / taken["triglot"][0]
        cpu = taken["connector"][1] / taken["triglot"][1]
        rows.append(Row("archive", "triglot / connector", f"{ratio:.2f}", "1", "2"))
        rows.append(Row("archive", "triglot / connector, per CPU-second", f"{cpu:.2f}"))
        return rows

    def values(self, rounds: int) -> list[Row]:
        with SchemaRegistry() as registry:
            schema_id = registry.register(f"{VALUES}-value", SCHEMA)
            with Cluster(self.source.bootstrap) as cluster:
                fill_avro(cluster, VALUES, self.records, PARTITIONS, schema_id=schema_id)
            taken = self.spark("values", rounds, (VALUES,), registry.url)
        wanted = {"triglot": ("0.25", "0.3"), "connector": ("", "0.25")}
        rows = [
            Row(
                "values",
                f"{name}, million records per CPU-second",
                f"{self.records / cpu / 1e6:.3f}",
                *wanted[name],
            )
            for name, (_, cpu) in taken.items()
        ]
        wall, cpu = (taken["connector"][at] / taken["triglot"][at] for at in (0, 1))
        rows.append(
            Row("values", "triglot / connector, per CPU-second", f"{cpu:.2f}", "1.5", "1.2")
        )
        rows.append(Row("values", "triglot / connector, on the clock", f"{wall:.2f}"))
        return rows

    def small(self, rounds: int) -> list[Row]:
        with Cluster(self.source.bootstrap) as cluster:
            fill_many(cluster, SMALL, SMALL_PARTITIONS, SMALL_RECORDS)
        taken = self.spark("small", rounds, SMALL)
        rows = []
        for name in ("archive", "read", "mirror"):
            ours, theirs = taken[f"{name} triglot"], taken[f"{name} connector"]
            rows += [
                Row("small", f"{name}, triglot, CPU-seconds", f"{ours[1]:.2f}"),
                Row("small", f"{name}, connector, CPU-seconds", f"{theirs[1]:.2f}"),
                Row(
                    "small", f"{name}, CPU: triglot / connector", f"{ours[1] / theirs[1]:.2f}", "1"
                ),
                Row("small", f"{name}, clock: triglot / connector", f"{ours[0] / theirs[0]:.2f}"),
            ]
        return rows

    def kills(self, kills: int, within_s: float) -> list[Row]:
        lake, state = self.folder / "lake", self.folder / "mirror-state"
        common = ("--topic", TOPIC, "--once", "--max-offsets", str(self.records // 40))
        command = ("archive", "--from", self.source.bootstrap, "--to", str(lake), *common)
        archived = run_killed(command, lake / "_state", kills=kills, within_s=within_s, seed=1)
        rows, distinct = distinct_rows(lake)
        places = ("--from", self.source.bootstrap, "--to", self.other.bootstrap)
        arguments = ("mirror", *places, "--state", str(state), *common)
        mirrored = run_killed(arguments, state, kills=kills, within_s=within_s, seed=2)
        with Cluster(self.source.bootstrap) as source, Cluster(self.other.bootstrap) as target:
            before, after = stored(source, TOPIC), stored(target, TOPIC)
        same = "identical" if before == after else "different"
        count = sum(one.records for one in after)
        return [
            Row("kills", "archive: kills", str(archived.kills), "5"),
            Row("kills", "archive: micro-batches done by then", told(archived.batches)),
            Row("kills", "archive: rows", f"{rows:,}", f"{self.records:,}"),
            Row("kills", "archive: distinct rows", f"{distinct:,}", f"{self.records:,}"),
            Row("kills", "mirror: kills", str(mirrored.kills), "5"),
            Row("kills", "mirror: micro-batches done by then", told(mirrored.batches)),
            Row("kills", "mirror: records", f"{count:,}", f"{self.records:,}"),
            Row("kills", "mirror: digests of the partitions", same, "identical"),
        ]


def told(batches: list[int]) -> str:
    return ", ".join(map(str, batches))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipeline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("loads", nargs="*", metavar="LOAD", help="; ".join(LOADS))
    parser.add_argument("--records", type=int, default=8_000_000, help="default 8,000,000")
    parser.add_argument("--rounds", type=int, default=3, help="after one to warm up; default 3")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument(
        "--within", type=float, default=2.0, help="seconds until a kill, at most, once it works"
    )
    parser.add_argument("--output", type=Path, help="write the table there, too")
    options = parser.parse_args()
    if unknown := set(options.loads) - set(LOADS):
        parser.error(f"no load is called {' or '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = parsed()
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as place, ExitStack() as started:
        brokers = []
        for name in ("from", "to"):
            broker = Triglot(Path(place) / name)
            started.callback(broker.stop)
            broker.wait_until_ready()
            brokers.append(broker)
        folder = Path(place) / "work"
        folder.mkdir()
        bench = Bench(brokers[0], brokers[1], folder, options.records)
        loads = options.loads or LOADS
        if not set(loads) <= {"small", "values"}:
            bench.fill()
        for load in loads:
            if load == "kills":
                found += bench.kills(options.kills, options.within)
            else:
                found += getattr(bench, load)(options.rounds)
    facts = machine.described()
    table = [
        f"{facts['date']}; {facts['cores']} cores, {facts['cpu']}; {options.records:,} records in "
        f"{PARTITIONS} partitions, {bench.bytes / 1e6:,.0f} MB of lz4 batches; medians of "
        f"{options.rounds} rounds.",
        "",
        "| load | figure | found | wanted | estimate |",
        "| --- | --- | ---: | ---: | ---: |",
        *(f"| {' | '.join(row)} |" for row in found),
    ]
    print("\n".join(table))
    if options.output is not None:
        options.output.write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
