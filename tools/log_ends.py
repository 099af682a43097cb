"""Where the logs of partitions begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.client import said
from protocol.errors import ErrorCode
from tools.cluster import EARLIEST, LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tools.cluster import Cluster


class LogEnds(NamedTuple):
    """The first offset of a log, the one that the next record gets, and their distance; None for
    what the leader does not tell, and `note` says why."""

    start: int | None
    end: int | None
    records: int | None
    note: str


def log_ends(cluster: Cluster, places: Iterable[TopicPartition]) -> dict[TopicPartition, LogEnds]:
    """Those of each partition. Raises Failure."""
    wanted = list(places)
    starts, ends = cluster.offsets(wanted, EARLIEST), cluster.offsets(wanted, LATEST)
    return {place: _log_ends(starts[place], ends[place]) for place in wanted}


def _log_ends(start: int | ErrorCode, end: int | ErrorCode) -> LogEnds:
    for answer in (end, start):
        if isinstance(answer, ErrorCode):
            return LogEnds(None, None, None, said(answer))
    return LogEnds(start, end, end - start, "")
