"""Moving the offsets of a group without members: first a plan, then one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.client import said
from protocol.errors import ErrorCode
from tools.cluster import EARLIEST, LATEST
from tools.errors import NotDone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tools.cluster import Cluster, TopicPartition
    from tools.groups.committed import Committed


GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Target(NamedTuple):
    """The target: `kind` is "offset", "earliest", "latest", "time" (ms since 1970) or "shift"."""

    kind: str
    value: int = 0


class Move(NamedTuple):
    """One partition of a plan: from what is committed (None for nothing) to `new`, which is None
    where the target means nothing; `note` says what had to be decided."""

    place: TopicPartition
    old: int | None
    new: int | None
    note: str = ""


def plan(
    cluster: Cluster,
    places: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    target: Target,
) -> list[Move]:
    """The move of each partition to the target, within the offsets that its log holds now.

    Raises NotDone if a log cannot be asked: a plan is carried out as a whole or not at all.
    """
    moves = []
    asked = cluster.offsets(places, EARLIEST)
    # By identity: offset 3 is equal to the code.
    starts = {place: answer for place, answer in asked.items() if answer is not GONE}
    ends = cluster.offsets(starts, LATEST)
    times = cluster.offsets(starts, target.value) if target.kind == "time" else {}
    for place in asked:
        old = committed[place].offset if place in committed else None
        if place not in starts:
            moves.append(Move(place, old, None, "the partition does not exist any more"))
            continue
        start, end = _offset(place, starts), _offset(place, ends)
        note = ""
        if target.kind == "shift":
            if old is None:
                moves.append(Move(place, None, None, "nothing committed to shift from"))
                continue
            new = old + target.value
        elif target.kind == "time":
            new = _offset(place, times)
            if new < 0:
                new, note = end, "no record is that young: the log's end"
        else:
            new = {"offset": target.value, "earliest": start, "latest": end}[target.kind]
        if new < start:
            new, note = start, f"{new} is below the log's start {start}"
        elif new > end:
            new, note = end, f"{new} is above the log's end {end}"
        moves.append(Move(place, old, new, note))
    return moves


def _offset(place: TopicPartition, answers: Mapping[TopicPartition, int | ErrorCode]) -> int:
    answer = answers[place]
    if isinstance(answer, ErrorCode):
        raise NotDone(f"{place}: {said(answer)}")
    return answer
