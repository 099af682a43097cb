"""A mirror without Spark: its job is given what Spark would give it.

python -m tests.pipeline.mirroring FROM TO STATE TOPIC        # one micro-batch; may be killed
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any

from client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from pipeline.archiving import archive_files
from pipeline.archiving.parquet_writer import Compression
from pipeline.archiving.staged import StagedFile
from pipeline.filesystem import locate
from pipeline.jobs.mirror import Mirror
from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import Range, starting_offsets
from pipeline.reading.ranges import batches_of, read_range, records_of
from pipeline.state import State
from protocol.records.batch import Batch
from protocol.records.legacy import read_messages
from protocol.records.walk import walk

if TYPE_CHECKING:
    from pathlib import Path

    from protocol.records.record import Record

PLANNED = "planned"


def micro_batch(mirror: Mirror, *, commit: bool = True) -> list[dict[str, Any]]:
    """What there is at the source, in one micro-batch; the one before again if it was not
    committed. As Spark does, the ranges are written down first. The first one begins at 0, unless
    the mirror is told where."""
    mirror.check()
    with Cluster(mirror.servers) as source, Cluster(mirror.to) as cluster:
        state = State.open(mirror.state, mirror.identity(source, cluster))
        try:
            names = mirror.names(source)
            job = mirror.job(state, source, cluster, names)
            partitions = source.partitions(names)
            begins = {}
            if mirror.starting != "earliest":
                bound = SourceOptions.parse(mirror.options).starting
                begins = {
                    str(partition): offset
                    for partition, offset in starting_offsets(source, partitions, bound).items()
                }
            planned = state.read(PLANNED) or {"batch": -1, "done": True, "ends": begins}
            if planned["done"]:
                ends = source.offsets(partitions, LATEST, committed_only=True)
                planned = {
                    "batch": planned["batch"] + 1,
                    "done": False,
                    "begins": planned["ends"],
                    "ends": {str(partition): end for partition, end in ends.items()},
                }
                state.write(PLANNED, planned)
            results = [
                job.work(range_of(partition, planned), planned["batch"]) for partition in partitions
            ]
            if commit:
                job.commit(planned["batch"], results)
                state.write(PLANNED, {**planned, "done": True})
            return results
        finally:
            state.close()


def range_of(partition: TopicPartition, planned: dict[str, Any]) -> Range:
    begin = planned["begins"].get(str(partition), 0)
    return Range(*partition, begin, planned["ends"].get(str(partition), begin))


def stored(servers: str, topic: str, partition: int = 0) -> list[bytes]:
    """The entries of a partition, as they are stored."""
    place = TopicPartition(topic, partition)
    with Cluster(servers) as cluster:
        begin = cluster.offsets([place], EARLIEST)[place]
        end = cluster.offsets([place], LATEST)[place]
        return [
            bytes(chunk.entries[at : at + size])
            for chunk in read_range(cluster, Range(topic, partition, begin, end))
            for at, size, _ in walk(chunk.entries)
        ]


def records(entries: list[bytes]) -> list[Record]:
    found: list[Record] = []
    for entry in entries:
        batch = Batch(memoryview(entry))
        if entry[16] < 2:
            found += read_messages(entry)
        elif not batch.is_control:
            found += batch.records()
    return found


def archive(
    servers: str,
    topic: str,
    folder: Path,
    *,
    shape: str,
    step: int = 12,
    partitions: int = 2,
    committed_only: bool = False,
) -> str:
    """As `archive` would leave it: a file for every `step` offsets."""
    where = locate(str(folder))
    with Cluster(servers) as cluster:
        for partition in range(partitions):
            place = TopicPartition(topic, partition)
            end = cluster.offsets([place], LATEST, committed_only=committed_only)[place]
            for start in range(0, end, step):
                range_ = Range(topic, partition, start, min(start + step, end))
                name = archive_files.name_of(*range_[:4])
                with StagedFile(where, name, shape, Compression()) as file:
                    found = (
                        records_of(cluster, range_, headers=True, committed_only=committed_only)
                        if shape == "records"
                        else batches_of(cluster, range_, committed_only=committed_only)
                    )
                    for rows in found:
                        file.add(rows)
                    file.finish(footer(range_, shape))
    return str(folder)


def footer(range_: Range, shape: str) -> dict[bytes, bytes]:
    """What an archive's file of this range says of itself."""
    return archive_files.metadata(
        shape=shape,
        topic=range_.topic,
        partition=range_.partition,
        start=range_.start,
        end=range_.end,
        cluster=None,
        batch=0,
    )


def digest(entries: list[bytes]) -> tuple[int, str]:
    """How many records there are, and a hash of all their content but offsets."""
    found = records(entries)
    content = [(one.timestamp_ms, one.key, one.value, one.headers) for one in found]
    return len(found), hashlib.sha256(repr(content).encode()).hexdigest()


if __name__ == "__main__":
    servers, to, state_folder, topic_name = sys.argv[1:]
    micro_batch(Mirror(servers, to, state_folder, (topic_name,)))
