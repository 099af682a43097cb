"""Records as they come, for a page that stays open: what has been appended since the last look.

A reader that is slow misses records, and is told how many; nothing is kept for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.clock import monotonic_s
from protocol.client import said
from protocol.errors import ErrorCode
from tools.cluster import LATEST
from tools.console.reading import Budget, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Lock

    from protocol.partitions import TopicPartition
    from tools.cluster import Cluster
    from tools.console.reading import StoredRecord

RECORDS_MAX = 50
"""Of each partition at a look."""
BEHIND_MAX = 500
"""Offsets of a partition that are caught up with; of more only the last are looked at."""


class Look(NamedTuple):
    """What a look has found. `skipped` records were not looked at. `over` says why there is no
    further one; empty while there is."""

    records: list[StoredRecord]
    skipped: int
    over: str


class Tail:
    """The ends of some partitions. For one thread at a time."""

    def __init__(self, places: Sequence[TopicPartition], wanted: bytes, turn: Lock) -> None:
        """`wanted` is text that a record has to have; `turn` as in `Reading`."""
        self._places = places
        self._wanted = wanted
        self._turn = turn
        self._positions: dict[TopicPartition, int] = {}

    def look(self, cluster: Cluster) -> Look:
        """What has come since the last look; the first finds nothing. Raises Failure."""
        ends = cluster.offsets(self._places, LATEST)
        records: list[StoredRecord] = []
        skipped = 0
        budget = Budget(monotonic_s, seconds=1.0)
        for place, end in ends.items():
            if isinstance(end, ErrorCode):
                return Look(records, skipped, f"{place}: {said(end)}")
            position = self._positions.setdefault(place, end)
            if end - position > BEHIND_MAX:
                skipped += end - position - RECORDS_MAX
                position = end - RECORDS_MAX
            if position < end and not budget.spent:
                reading = Reading(cluster, place, budget, self._turn, wanted=self._wanted)
                records += reading.forwards(position, end, RECORDS_MAX)
                position = reading.next_offset
                if reading.problem:
                    return Look(records, skipped, reading.problem)
            self._positions[place] = position
        records.sort(key=lambda one: (one.timestamp_ms, one.place, one.offset))
        return Look(records, skipped, "")
