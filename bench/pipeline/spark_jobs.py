"""The ways that are compared, ours and Spark's own, each as a function of one session."""

from __future__ import annotations

import json
import os
import shutil
import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import concat, expr, lit

from bench.pipeline.avro_topics import SCHEMA
from bench.pipeline.processes import cpu_seconds
from bench.pipeline.topics import stored
from client.cluster import Cluster
from pipeline.jobs.archive import Archive
from pipeline.jobs.mirror import Mirror
from pipeline.tables.table import Catalog
from pipeline.values.wanted import Decoding, Values
from pipeline.values.wire_format import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


class Taken(NamedTuple):
    """Seconds on the clock, and of CPU by Spark and its workers."""

    wall: float
    cpu: float


class Ways:
    """All of them read `topics` of `servers`; `other` is the cluster that is written to."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        servers: str,
        other: str,
        topics: tuple[str, ...],
        registry: str = "",
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.servers = servers
        self.other = other
        self.topics = topics
        self.registry = registry
        """The URL of one that has the schema of values."""
        self.rename = ""
        """The names of the last mirror's copies, as `Mirror` has it."""
        self._number = 0

    def new(self, name: str) -> str:
        """A name that nothing has yet."""
        self._number += 1
        return f"{name}-{self._number}"

    # Reading

    def rows(self, kind: str, **options: str) -> DataFrame:
        """The topics as `format(kind)` gives them."""
        reader = self.spark.read.format(kind).option("kafka.bootstrap.servers", self.servers)
        return reader.option("subscribe", ",".join(self.topics)).options(**options).load()

    def parquet(self) -> Path:
        """The topics' records as Parquet, written once by Spark."""
        path = self.folder / "rows"
        if not path.exists():
            rows = self.rows("triglot", shape="records")
            rows.write.option("compression", "zstd").parquet(str(path))
        return path

    def read_parquet(self) -> None:
        to_noop(self.spark.read.parquet(str(self.parquet())))

    def read_records(self) -> None:
        to_noop(self.rows("triglot", shape="records"))

    def read_batches(self) -> None:
        to_noop(self.rows("triglot", shape="batches"))

    def read_connector(self) -> None:
        to_noop(self.rows("kafka"))

    # Mirroring

    def mirror(self) -> None:
        self.rename, state = "{topic}-" + self.new("copy"), self.folder / self.new("state")
        job = Mirror(self.servers, self.other, str(state), self.topics, rename=self.rename)
        job.run(self.spark)

    def check_mirror(self) -> None:
        """Whether the last copies are the topics, but for the bytes that a broker sets."""
        with Cluster(self.servers) as source, Cluster(self.other) as target:
            for topic in self.topics:
                if stored(source, topic) != stored(target, self.rename.format(topic=topic)):
                    raise RuntimeError(f"the mirrored topic '{topic}' differs")

    def reproduce(self) -> None:
        suffix = self.new("produced")
        with Cluster(self.servers) as source, Cluster(self.other) as target:
            for topic in self.topics:
                target.create_topic(f"{topic}-{suffix}", len(source.partitions([topic])))
        rows = self.rows("kafka", includeHeaders="true")
        named = concat("topic", lit(f"-{suffix}")).alias("topic")
        writer = rows.select(named, "key", "value", "headers", "partition").write.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", self.other)
        writer.option("kafka.compression.type", "lz4").save()

    # Archiving

    def archive(self) -> None:
        folder = self.folder / self.new("archive")
        Archive(str(folder), servers=self.servers, topics=self.topics).run(self.spark)
        shutil.rmtree(folder)

    def archive_connector(self) -> None:
        folder = self.folder / self.new("archive")
        reader = self.spark.readStream.format("kafka").option("includeHeaders", "true")
        reader = reader.option("kafka.bootstrap.servers", self.servers)
        reader = reader.option("subscribe", ",".join(self.topics))
        rows = reader.option("startingOffsets", "earliest").load()
        writer = rows.select(*COLUMNS, "headers").writeStream.format("parquet")
        writer = writer.option("compression", "zstd").option("path", str(folder / "rows"))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        shutil.rmtree(folder)

    # Values as columns

    def values(self) -> None:
        """Avro with the registry to the columns of an Iceberg table."""
        folder = self.folder / self.new("values")
        uri = f"sqlite:///{self.folder / self.new('catalog')}.db"
        Archive(
            str(folder),
            servers=self.servers,
            topics=self.topics,
            table="iceberg",
            catalog=Catalog("bench.orders", "bench", {"type": "sql", "uri": uri}),
            values=Values(value=Decoding("avro"), registry=self.registry),
        ).run(self.spark)
        shutil.rmtree(folder)

    def values_connector(self) -> None:
        """The same columns as Parquet, with a schema that is known: without a registry's ids, and
        without a table, whose jar there is none of for Spark 4.3."""
        folder = self.folder / self.new("values")
        reader = self.spark.readStream.format("kafka").option("includeHeaders", "true")
        reader = reader.option("kafka.bootstrap.servers", self.servers)
        reader = reader.option("subscribe", ",".join(self.topics))
        rows = reader.option("startingOffsets", "earliest").load()
        payload = expr(f"substring(value, {HEADER_SIZE + 1})")
        decoded = rows.withColumn("decoded", from_avro(payload, json.dumps(SCHEMA)))
        kept = [name for name in (*COLUMNS, "headers") if name != "value"]
        writer = decoded.select(*kept, "decoded.*").writeStream.format("parquet")
        writer = writer.option("compression", "zstd").option("path", str(folder / "rows"))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        shutil.rmtree(folder)


def to_noop(rows: DataFrame) -> None:
    """Read it all, in Spark's own rows, and drop them."""
    rows.write.format("noop").mode("overwrite").save()


def medians(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, Taken]:
    """Each once to warm it up, then in turn so many times."""
    found: dict[str, list[Taken]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            cpu, began = cpu_seconds(os.getpid()), time.perf_counter()
            way()
            taken = Taken(time.perf_counter() - began, cpu_seconds(os.getpid()) - cpu)
            print(f"{number}  {name}: {taken.wall:.2f} s, {taken.cpu:.2f} CPU-s", flush=True)
            if number:
                found[name].append(taken)
    return {
        name: Taken(median(one.wall for one in some), median(one.cpu for one in some))
        for name, some in found.items()
    }
