"""The common part of archive and mirror: how much there is to do, and telling of what is done."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from client.cluster import EARLIEST, TopicPartition
from pipeline.errors import WrongUse
from pipeline.left_out import LeftOut
from pipeline.outcome import BatchDone
from pipeline.reading.plan import (
    ending_offsets,
    offsets_from_json,
    offsets_to_json,
    starting_offsets,
)
from pipeline.reading.source import Bound
from pipeline.spark.micro_batches import reached

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Offsets
    from pipeline.reading.source import Source
    from pipeline.state import State

STARTING = "starting"


def check_interval(every_s: float | None) -> None:
    """Raises WrongUse."""
    if every_s is not None and not (every_s > 0 and math.isfinite(every_s)):
        raise WrongUse(f"every {every_s} s is no interval: give more than 0")


def backlog(source: Source, options: SourceOptions, state: State) -> int:
    """The number of offsets from where a run begins now to the present ends."""
    partitions = options.select(source)
    ends = ending_offsets(source, partitions, committed_only=options.committed_only)
    begins = reached(state)
    if begins is None:
        begins = starting_offsets(source, partitions, options.starting)
    else:
        new = [partition for partition in partitions if partition not in begins]
        begins = begins | starting_offsets(source, new, Bound("startingOffsets", EARLIEST))
    told = options.ending.each
    if told:
        ends = {one: min(end, told[one]) for one, end in ends.items() if one in told}
    return sum(max(0, end - begins[partition]) for partition, end in ends.items())


def first_offsets(state: State, options: SourceOptions) -> Offsets:
    """The offsets that a run which began this state was told to begin at, by number.

    They are noted once: what a later run is told counts for nothing.
    """
    noted = state.read(STARTING)
    if noted is None:
        bound = options.starting
        told = {} if bound.is_time or reached(state) is not None else bound.each
        begins = {partition: offset for partition, offset in told.items() if offset >= 0}
        state.write(STARTING, offsets_to_json(begins))
        return begins
    return offsets_from_json(noted)


def batch_done(
    number: int, results: Sequence[Mapping[str, Any]], seconds: float, details: Mapping[str, int]
) -> BatchDone:
    """The report of a micro-batch for a watch, from the facts of its tasks."""
    ends: dict[TopicPartition, int] = {}
    for facts in results:
        partition = TopicPartition(facts["topic"], facts["partition"])
        ends[partition] = max(facts["end"], ends.get(partition, 0))
    behind = [facts["behind_ms"] for facts in results if facts.get("behind_ms") is not None]
    return BatchDone(
        number,
        sum(facts["records"] for facts in results),
        sum(facts["bytes"] for facts in results),
        seconds,
        offsets=sum(facts["offsets"] for facts in results),
        end_offsets=ends,
        left_out=sum((LeftOut.of_json(facts) for facts in results), LeftOut()),
        details=details,
        behind_s=max(behind) / 1000 if behind else None,
    )
