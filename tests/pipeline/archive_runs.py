"""Topics to be archived, and runs of the archive job without Spark."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.jobs.archive import Archive
from pipeline.reading.plan import Range
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.state import State
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.walk import walk
from tests.support.broker_process import BrokerProcess
from tests.support.caller import NOW_MS, Caller

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipeline.spark.range_query import RangeJob

#: Of topics; each test has its own.
names = (f"archived-{number}" for number in itertools.count())


class Topic(NamedTuple):
    """A topic of the shared broker, and what another client sees in it."""

    caller: Caller
    name: str
    partitions: int = 1

    def write(
        self, batches: int = 10, *, each: int = 20, partition: int = 0, codec: int = 3
    ) -> int:
        """Batches with nulls and headers; the offset after the last record."""
        end = 0
        for number in range(batches):
            records = [
                (
                    NOW_MS + 1000 * number + index,
                    None if index % 3 == 0 else b"key %d" % index,
                    None if index % 7 == 1 else b"value %d of batch %d" % (index, number),
                    (("h", b"\x00\xff"), ("h", None)) if index % 5 == 0 else (),
                )
                for index in range(each)
            ]
            appended = self.caller.produce(
                self.name, build_batch(records, codec=codec), partition=partition
            )
            end = appended.base_offset + each
        return end

    def stored(self, partition: int = 0) -> list[bytes]:
        """The batches of the log."""
        found = self.caller.fetch(self.name, 0, partition=partition)
        data = memoryview(bytes(found.records or b""))
        return [bytes(data[at : at + size]) for at, size, _ in walk(data)]

    def rows(self) -> list[tuple[Any, ...]]:
        """What the plain reader makes of them: partition, offset, ms, key, value, headers."""
        return [
            (partition, record.offset, record.timestamp_ms, record.key, record.value, headers)
            for partition in range(self.partitions)
            for entry in self.stored(partition)
            for record in Batch(memoryview(entry)).records()
            for headers in [[tuple(header) for header in record.headers] or None]
        ]


def made(caller: Caller, name: str | None = None, partitions: int = 1) -> Topic:
    topic = Topic(caller, name or next(names), partitions)
    caller.create_topic(topic.name, partitions)
    return topic


class Runs:
    """The steps of Spark and `start`, run after run: a plan that is kept, work, commit."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.folder = Path(archive.to)

    def start(self) -> Any:
        self.archive.check()
        with contextlib.closing(self.archive.parsed().source()) as source:
            identity = self.archive.identity(source)
        self.state = State.open(self.archive.state or f"{self.archive.to}/_state", identity)
        try:
            return self.archive.job(self.state, "cluster-1")
        finally:
            self.state.close()

    def work(self, job: RangeJob, batch_id: int, ranges: Iterable[Range]) -> list[dict[str, Any]]:
        state = Path(self.archive.state or self.folder / "_state")
        log = state / "checkpoint" / "offsets" / str(batch_id)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("v1")
        shipped = pickle.loads(pickle.dumps(job))
        return [json.loads(json.dumps(shipped.work(range_, batch_id))) for range_ in ranges]

    def micro_batch(self, batch_id: int, *ranges: Range) -> list[dict[str, Any]]:
        job = self.start()
        results = self.work(job, batch_id, ranges)
        job.commit(batch_id, results)
        return results


def archive_of(broker: BrokerProcess, folder: Path | str, *topics: Topic, **more: Any) -> Archive:
    chosen = tuple(topic.name for topic in topics)
    return Archive(to=str(folder), servers=broker.bootstrap, topics=chosen, **more)


def archived(folder: Path) -> list[tuple[Any, ...]]:
    """Rows of all files as any reader finds them, in the form of `Topic.rows`."""
    return rows_of(pq.read_table(folder, schema=RECORDS_AND_HEADERS))


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """In the form of `Topic.rows`."""
    return sorted(
        (
            (
                row["partition"],
                row["offset"],
                round(row["timestamp"].timestamp() * 1000),
                row["key"],
                row["value"],
                row["headers"] and [(one["key"], one["value"]) for one in row["headers"]],
            )
            for row in table.to_pylist()
        ),
        key=lambda row: row[:2],
    )


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.parquet"))


def replaced(value: Any, **fields: Any) -> Any:
    return dataclasses.replace(value, **fields)


def inside(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
