"""The micro-batches that a state knows of, and up to where they went.

A state is kept in one way or the other, by whoever plans the micro-batches:

    checkpoint/offsets/N   by a query of Spark's, before micro-batch N begins: a version, a line of
                           metadata, and a line for each source, ours {"orders": {"0": 23}}
    checkpoint/commits/N   when it is done
    micro_batch.json       by the loop (`range_loop`), through Spark Connect and in S3: the last one
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from pyarrow import fs

from pipeline.errors import ForeignState
from pipeline.filesystem import refusing
from pipeline.reading.plan import Offsets, offsets_from_json
from pipeline.state import CHECKPOINT, COMMITS, PLANS

if TYPE_CHECKING:
    from pipeline.dataframes.stream_source import StreamOffset
    from pipeline.state import State

NOTE = "micro_batch"


class MicroBatch(NamedTuple):
    """The last one that the loop has planned; number -1, and done, is where the stream began."""

    number: int
    start: StreamOffset
    end: StreamOffset
    done: bool
    session: str
    """The session of Spark Connect that its tasks run in, and the tag that they have there; without
    it an empty one, and the run's own."""
    tag: str

    @classmethod
    def read(cls, state: State) -> MicroBatch | None:
        """None if the loop has not begun. Raises ForeignState."""
        noted = state.read(NOTE)
        try:
            return None if noted is None else cls(**noted)
        except TypeError as failure:
            path = state.location.under(NOTE).path
            raise ForeignState(f"{path}.json is no micro-batch: {failure}") from None

    def write(self, state: State) -> None:
        state.write(NOTE, self._asdict())


def check_way(state: State, *, in_loop: bool) -> None:
    """Raises ForeignState for a state that was begun in the other way: neither could go on."""
    path = state.location.path
    with refusing(f"use {path} for the state"):
        queried = in_loop and state.location.under(CHECKPOINT).exists()
    if queried:
        raise ForeignState(
            f"the state in {path} has a checkpoint of Spark's, which cannot be gone on with "
            "through Spark Connect, or in S3: run this without it (--remote), as before, or begin "
            "anew with another --state and destination"
        )
    if not in_loop and MicroBatch.read(state) is not None:
        raise ForeignState(
            f"the state in {path} was begun through Spark Connect: go on through it (--remote), or "
            "begin anew with another --state and destination"
        )


def planned(state: State, number: int) -> bool:
    """Whether the state knows a micro-batch. Spark keeps the last hundred or so."""
    last = MicroBatch.read(state)
    if last is not None:
        return number <= last.number
    return state.location.under(CHECKPOINT, PLANS, str(number)).exists()


def reached(state: State) -> Offsets | None:
    """The next offset of each partition after the last micro-batch that is done; None before one.

    Raises ForeignState for a checkpoint that is no query's over our source, Refused.
    """
    last = MicroBatch.read(state)
    if last is not None:
        return offsets_from_json(last.end if last.done else last.start)
    commits = state.location.under(CHECKPOINT, COMMITS)
    selector = fs.FileSelector(commits.path, allow_not_found=True)
    with refusing(f"use {state.location.path} for the state"):
        found = commits.filesystem.get_file_info(selector)
    done = [int(info.base_name) for info in found if info.base_name.isdecimal()]
    if not done:
        return None
    log = state.location.under(CHECKPOINT, PLANS, str(max(done)))
    try:
        with log.filesystem.open_input_stream(log.path) as stream:
            return offsets_from_json(json.loads(stream.read().splitlines()[2]))
    except (OSError, ValueError, IndexError, AttributeError) as failure:
        raise ForeignState(f"{log.path} is no list of offsets: {failure}") from None
