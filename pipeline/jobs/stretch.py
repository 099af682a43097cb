"""A stretch of time of the source, as offsets of each partition.

A partition begins at its first record with a timestamp at or after `since`, and ends before its
first one at or after `until`, by the order of its offsets (ListOffsets). So where timestamps do
not rise with the offsets, no record of that time lies below the stretch, some above it may, and
within it others may be. The offsets are looked for once, and noted in the state: a run that goes on
has the same stretch, whatever has come or gone meanwhile.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from client.cluster import EARLIEST, LATEST
from pipeline.errors import ForeignState, WrongUse
from pipeline.reading.plan import offsets_from_json, offsets_to_json
from pipeline.spark.micro_batches import reached
from protocol.records.walk import last_offset, walk

if TYPE_CHECKING:
    from client.cluster import TopicPartition
    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Offsets
    from pipeline.reading.source import Source
    from pipeline.state import State

NOTE = "stretch"


class Times(NamedTuple):
    """From when until when, ms since 1970; None is no limit."""

    since_ms: int | None = None
    until_ms: int | None = None

    def check(self, *, starting: str, every_s: float | None) -> None:
        """Raises WrongUse."""
        since_ms, until_ms = self
        if since_ms is not None and starting != "earliest":
            raise WrongUse("--since and --starting exclude each other: both say where to begin")
        if until_ms is not None and every_s is not None:
            raise WrongUse(
                "--until ends a run, and --every goes on for ever: leave one of them out"
            )
        if since_ms is not None and until_ms is not None and since_ms >= until_ms:
            raise WrongUse("--since is not before --until: there is no time between them")

    def check_state(self, state: State) -> None:
        """Raises ForeignState for a state that was begun with other times. Without times a run goes
        on where the one before ended, whatever its times were."""
        noted = state.read(NOTE)
        if self == Times() or (noted is None and reached(state) is None):
            return
        begun = Times() if noted is None else Times(*noted["times"])
        if begun != self:
            raise ForeignState(
                f"the state in {state.location.path} was begun with {begun}, not with {self}: give "
                "the same times or none, or another destination and --state"
            )

    def __str__(self) -> str:
        told = [
            f"{name} {time_ms}"
            for name, time_ms in (("--since", self.since_ms), ("--until", self.until_ms))
            if time_ms is not None
        ]
        return " ".join(told) or "no times"


class Stretch(NamedTuple):
    """Options that say it: startingOffsets and endingOffsets as JSON, None for no limit."""

    starting: str | None
    ending: str | None


def stretch_of(
    times: Times, state: State, source: Source, options: SourceOptions, *, whole_batches: bool
) -> Stretch:
    """What is noted, or found now and noted. Raises ForeignState as `Times.check_state`.

    With `whole_batches` an end inside of a batch becomes the end of that batch, and it may hold
    records of a later time.
    """
    if times == Times():
        return Stretch(None, None)
    times.check_state(state)
    noted = state.read(NOTE)
    if noted is None:
        partitions = options.select(source)
        begins = source.offsets(partitions, EARLIEST if times[0] is None else times[0])
        ends: Offsets = {}
        if times.until_ms is not None:
            ends = source.offsets(partitions, times.until_ms)
            if whole_batches:
                last = source.offsets(partitions, LATEST)
                ends = {
                    one: _end_of_batch(source, one, end) if begins[one] < end < last[one] else end
                    for one, end in ends.items()
                }
            # An earlier record may have a later time than all of the stretch.
            ends = {one: max(end, begins[one]) for one, end in ends.items()}
        noted = {
            "times": list(times),
            "begins": offsets_to_json(begins),
            "ends": offsets_to_json(ends),
        }
        state.write(NOTE, noted)
    begins, ends = (offsets_from_json(noted[name]) for name in ("begins", "ends"))
    return Stretch(
        json.dumps(offsets_to_json(begins)),
        json.dumps(offsets_to_json(ends)) if ends else None,
    )


def _end_of_batch(source: Source, partition: TopicPartition, end: int) -> int:
    """Formats 0 and 1 do not say where an entry begins: there the one with `end` counts in."""
    entries = source.fetch(partition, end, max_bytes=1, max_wait_ms=0).entries
    for position, _, magic in walk(entries):
        begins = int.from_bytes(entries[position : position + 8], "big")
        if magic < 2 or begins < end:
            return last_offset(entries, position, magic) + 1
        return end
    return end
