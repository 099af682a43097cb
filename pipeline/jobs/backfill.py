"""Older stretches into an archive that has later ones: the offsets between those that it has, and
before them, that the topic still has.

Each range becomes a file of its own, as in any micro-batch, and is moved into its place as soon as
it is whole. A file's name says which offsets it covers, and a run looks at the names first: what a
crash cut off is looked for again, and nothing is there twice. What comes after the last offset that
the archive has reached is left to its ordinary runs.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from client.cluster import EARLIEST, LATEST, TopicPartition
from pipeline.archiving.archive_files import STAGING, describe, names_in
from pipeline.errors import OffsetsGone, WrongUse
from pipeline.filesystem import refusing, sync
from pipeline.reading.plan import Range, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from pipeline.archiving.archive_job import ArchiveTask
    from pipeline.filesystem import Location
    from pipeline.reading.plan import Offsets
    from pipeline.reading.source import Source
    from pipeline.spark.range_query import Committed

BATCH = 0
"""The number of the micro-batch that the files say; it is none of a stream's."""


class Piece(NamedTuple):
    """One range and who archives it. Picklable."""

    task: ArchiveTask
    range: Range

    def work(self) -> dict[str, Any]:
        """Stage its file."""
        return self.task.work(self.range, BATCH)


def gaps(
    archived: Mapping[TopicPartition, Iterable[tuple[int, int]]], starts: Offsets, ends: Offsets
) -> Iterator[Range]:
    """The stretches of each partition from its start up to its end that no archived one covers."""
    for partition, end in sorted(ends.items()):
        reached = starts[partition]
        for first, after in sorted(archived.get(partition, ())):
            if reached < min(first, end):
                yield Range(*partition, reached, min(first, end))
            reached = max(reached, after)
        if reached < end:
            yield Range(*partition, reached, end)


def missing_ranges(
    folder: Location,
    source: Source,
    reached: Offsets | None,
    *,
    since_ms: int | None,
    until_ms: int | None,
    file_offsets: int,
) -> list[Range]:
    """What a plain archive lacks that the source still has, in ranges of a file each; `reached` are
    the offsets that the archive's ordinary runs go on from.

    Raises WrongUse before the first of those, OffsetsGone for a topic that was made anew.
    """
    if reached is None:
        raise WrongUse(
            "--backfill is for what an archive lacks, and this one is new: archive first"
        )
    there = source.topics()
    known = [one for one in reached if one.partition < there.get(one.topic, 0)]
    for partition, end in source.offsets(known, LATEST).items():
        if end < reached[partition]:
            raise OffsetsGone(
                f"{partition} ends at offset {end:,}, and the archive has it up to "
                f"{reached[partition]:,}: the topic has been made anew, and its older records are "
                "not those of this archive"
            )
    starts = source.offsets(known, EARLIEST)
    if since_ms is not None:
        since = source.offsets(known, since_ms)
        starts = {one: max(start, since[one]) for one, start in starts.items()}
    ends = {one: reached[one] for one in known}
    if until_ms is not None:
        until = source.offsets(known, until_ms)
        ends = {one: min(end, until[one]) for one, end in ends.items()}
    archived: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for name, named in names_in(folder).items():
        topic = named.topic or describe(folder.under(name)).topic
        archived[TopicPartition(topic, named.partition)].append((named.start, named.end))
    return [
        piece
        for gap in gaps(archived, starts, ends)
        for piece in split(
            {gap.topic_partition: gap.start}, {gap.topic_partition: gap.end}, None, file_offsets
        )
    ]


def fill(
    spark: SparkSession,
    task: ArchiveTask,
    ranges: Iterable[Range],
    committed: Committed,
    *,
    parallel: int,
) -> None:
    """Archive these ranges. Raises Refused, and what the tasks raise."""
    from pipeline.spark.range_query import run_tasks

    pieces = [Piece(replace(task, published=-1), range_) for range_ in ranges]
    began = time.monotonic()
    for number, facts in enumerate(run_tasks(spark, pieces, Piece.work, parallel=parallel)):
        publish(task.folder, facts["files"])
        committed(number, [facts], time.monotonic() - began)
        began = time.monotonic()


def publish(folder: Location, files: Mapping[str, str]) -> None:
    """Move staged files to their places."""
    staging = folder.under(STAGING, str(BATCH))
    with refusing(f"write to {folder.path}"):
        for name, staged in files.items():
            place = staging.under(staged)
            place.filesystem.move(place.path, folder.under(name).path)
        if folder.is_local:
            sync(folder.path)
