"""The turns of a replay: what of each partition is written at once, and where it went on.

Without a pace a turn has the next files of each partition, up to PIECE_BYTES; with one it is a
round of the schedule, and has what of them is due in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from client.cluster import TopicPartition
from pipeline.archiving.stretches import cut
from pipeline.delivering.replay_task import ReplayTask, work_together
from pipeline.errors import WrongUse
from pipeline.session import cores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from pipeline.archiving.archive_files import ArchiveFile
    from pipeline.delivering.pace import Pace, Schedule
    from pipeline.state import State

ENDS = "ends"
"""Where runs were to end: the stretches of a table, which has no files to tell, are cut there."""
PIECE_BYTES = 512 << 20
"""Of a partition's files in one task, unless a single one is larger."""
TOGETHER_MAX = 32
"""Partitions that wait beside each other in a task, each in a thread, when there is a pace. Each
has a row group in memory."""


class Reached(NamedTuple):
    """Of a partition: the next offset of the archive, and where that is to land."""

    offset: int
    landing: int


class Turn(NamedTuple):
    """What is done at once: of each partition the next files, or with a pace what of them is
    due."""

    files: dict[TopicPartition, tuple[ArchiveFile, ...]]
    pace: Pace | None
    is_first: bool


def turns(
    state: State,
    files: dict[TopicPartition, list[ArchiveFile]],
    reached: dict[TopicPartition, Reached],
    schedule: Schedule | None,
) -> Iterator[Turn]:
    """What is to be done at once, until nothing is left. Between one and the next `reached`
    moves on."""
    pieces = _pieces(cut_where_it_stopped(state, files, reached), reached)
    if schedule is None:
        for number in range(max(map(len, pieces.values()), default=0)):
            some = {one: its[number] for one, its in pieces.items() if number < len(its)}
            yield Turn(some, None, not number)
        return
    is_first = True
    while pieces:
        some = {partition: its[0] for partition, its in pieces.items()}
        yield Turn(some, schedule.pace(), is_first)
        is_first = False
        pieces = _pieces(cut_where_it_stopped(state, files, reached), reached)


def _pieces(
    files: dict[TopicPartition, list[ArchiveFile]],
    reached: dict[TopicPartition, Reached],
) -> dict[TopicPartition, list[tuple[ArchiveFile, ...]]]:
    """The files left to do, in tasks: those of a partition run one after the other."""
    pieces: dict[TopicPartition, list[tuple[ArchiveFile, ...]]] = {}
    for partition, some in files.items():
        piece: list[ArchiveFile] = []
        made = []
        for file in some:
            if file.end <= reached[partition].offset:
                continue
            if piece and sum(one.size for one in piece) + file.size > PIECE_BYTES:
                made.append(tuple(piece))
                piece = []
            piece.append(file)
        if piece:
            made.append(tuple(piece))
        if made:
            pieces[partition] = made
    return pieces


def worked(spark: SparkSession, tasks: Sequence[ReplayTask]) -> Iterator[dict[str, Any]]:
    """The facts of each task, as soon as it is done. Those with a pace wait beside each other.

    Raises WrongUse where they are too many.
    """
    from pipeline.spark.range_query import run_tasks

    parallel = cores(spark)
    if not tasks or tasks[0].pace is None:
        yield from run_tasks(spark, tasks, ReplayTask.work, parallel=parallel)
        return
    if len(tasks) > parallel * TOGETHER_MAX:
        raise WrongUse(
            f"{len(tasks):,} partitions are too many for one pace: {TOGETHER_MAX} at most for each "
            "core of Spark's; replay fewer topics at once (--topic)"
        )
    shares = [tasks[number::parallel] for number in range(min(parallel, len(tasks)))]
    for some in run_tasks(spark, shares, work_together, parallel=len(shares)):
        yield from some


def offsets_left(
    files: dict[TopicPartition, list[ArchiveFile]], reached: dict[TopicPartition, Reached]
) -> int:
    return sum(
        max(0, file.end - max(file.start, reached[partition].offset))
        for partition, some in files.items()
        for file in some
    )


def cut_where_it_stopped(
    state: State,
    files: dict[TopicPartition, list[ArchiveFile]],
    reached: dict[TopicPartition, Reached],
) -> dict[TopicPartition, list[ArchiveFile]]:
    """The stretches of a table cut where each partition goes on, and where runs that were killed
    were to end: what they may have written since is recognised if it is made in the same way."""
    ends = {
        TopicPartition(topic, partition): some for topic, partition, some in state.read(ENDS) or ()
    }
    cuts = {}
    for partition, some in files.items():
        begin = reached[partition].offset
        edges = [end for end in ends.get(partition, ()) if end > begin]
        cuts[partition] = cut(some, [begin, *edges])
        ends[partition] = sorted({*edges, some[-1].end})
    if any(file.table is not None for some in files.values() for file in some):
        state.write(ENDS, [[*partition, some] for partition, some in sorted(ends.items())])
    return cuts
