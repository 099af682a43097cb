"""`python -m bench.pipeline.upsert`: a table of newest values, against a plain merge in Delta.

A million records of 100,000 keys in four partitions, lz4, are brought into a Delta table that has a
row for each key already. Ours are the steps of `archive --mode upsert` without Spark: ranges are
fetched, decoded, reduced and staged, and merged in one commit. The plain merge has the same records
as Parquet, takes the newest of each key by Arrow, as Delta refuses a key that comes twice, and
merges with the same conditions. Both in this process, in turn; CPU-seconds are of all its threads.

Estimate, on paper: 1.25 x, since fetching and decoding a million records takes half a second, and
the merge of 100,000 rows into as many takes a whole one.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from bench import machine
from bench.pipeline.topics import fill
from bench.servers import Triglot
from client.cluster import LATEST, Cluster, TopicPartition
from pipeline.filesystem import locate
from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import Range
from pipeline.reading.ranges import records_of
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.upserting.current_table import CurrentTable
from pipeline.upserting.newest import newest_of
from pipeline.upserting.upsert_job import UpsertJob, UpsertTask

TOPIC, PARTITIONS = "bench-users", 4
SAME = "t.topic = s.topic AND t.partition = s.partition AND t.key = s.key"


class Taken(NamedTuple):
    """Seconds on the clock, and of CPU."""

    wall: float
    cpu: float


class Upserts:
    """The topic, its records as Parquet, and tables of either way with a row for each key."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.folder = folder
        told = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "shape": "ranges"}
        self.source = SourceOptions.parse(told, streaming=True)
        with closing(self.source.source()) as source:
            places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
            ends = source.offsets(places, LATEST)
            self.ranges = [Range(*place, 0, ends[place]) for place in places]
            for range_ in self.ranges:
                with pq.ParquetWriter(self._rows(range_), RECORDS_AND_HEADERS) as writer:
                    for some in records_of(source, range_, headers=True):
                        writer.write_batch(some)

    def _rows(self, range_: Range) -> Path:
        return self.folder / f"{range_.partition}.parquet"

    def _table(self, name: str) -> CurrentTable:
        """Anew, with an older row for each key."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        table = CurrentTable.make(locate(str(folder)), RECORDS_AND_HEADERS, name, expected=False)
        table.merge(0, [locate(str(self._older(range_))) for range_ in self.ranges], {})
        return table

    def _older(self, range_: Range) -> Path:
        """The newest rows of a partition, as if they had been written before."""
        path = self.folder / f"older-{range_.partition}.parquet"
        if not path.exists():
            rows = newest_of(pq.ParquetFile(self._rows(range_)).iter_batches())
            at = rows.schema.get_field_index("offset")
            older = pc.subtract(rows["offset"], 2**32)
            pq.write_table(rows.set_column(at, rows.schema.field(at), older), path)
        return path

    def ours(self) -> Taken:
        table = self._table("ours")
        task = UpsertTask(self.source, locate(str(self.folder / "ours")))
        job = UpsertJob(task, table)
        began, cpu = time.perf_counter(), time.process_time()
        job.commit(1, [job.work(range_, 1) for range_ in self.ranges])
        return Taken(time.perf_counter() - began, time.process_time() - cpu)

    def plain(self) -> Taken:
        self._table("plain")
        table = DeltaTable(str(self.folder / "plain"))
        began, cpu = time.perf_counter(), time.process_time()
        newest = [newest_of(pq.ParquetFile(self._rows(one)).iter_batches()) for one in self.ranges]
        source = pa.concat_tables(newest).to_reader()
        merger = table.merge(source, SAME, source_alias="s", target_alias="t")
        merger = merger.when_matched_delete("s.offset > t.offset AND s.value IS NULL")
        merger = merger.when_matched_update_all("s.offset > t.offset")
        merger.when_not_matched_insert_all("s.value IS NOT NULL").execute()
        return Taken(time.perf_counter() - began, time.process_time() - cpu)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline.upsert", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5, help="after one to warm up; default 5")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        broker = Triglot(Path(place) / "data")
        try:
            broker.wait_until_ready()
            with Cluster(broker.bootstrap) as cluster:
                fill(cluster, TOPIC, options.records, PARTITIONS, keys=options.keys)
            ways = Upserts(broker.bootstrap, Path(place))
            rounds = [(ways.ours(), ways.plain()) for _ in range(options.rounds + 1)][1:]
        finally:
            broker.stop()
    facts = machine.described()
    print(f"{facts['date']}; {facts['cores']} cores, {facts['cpu']}")
    for field in Taken._fields:
        ours, plain = (median(getattr(one[way], field) for one in rounds) for way in (0, 1))
        print(f"{field}: ours {ours:.2f} s, plain {plain:.2f} s: {ours / plain:.2f} x (wanted 1.3)")


if __name__ == "__main__":
    main()
