"""When records were written and when none were, as far as headers tell: added up within bounds.

The counts of stretches of time and the longest gaps of a partition follow from those of its parts,
in the order of their offsets.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

STRETCHES_MAX = 240
"""Of a partition that have records; where there are more, stretches become twice as long."""
GAPS_MAX = 50
"""The longest ones of a partition are kept."""

Gap = tuple[int, int]
"""The times (ms) of the newest record before it, and of the one behind it."""


@dataclass
class TimeCounts:
    """Records by stretches of time, all of the same length."""

    width_ms: int = 1024
    counts: dict[int, int] = field(default_factory=dict)
    """By the number of the stretch: it begins at that many times `width_ms` after 1970."""

    def add(self, times_ms: Any, records: Any) -> None:
        """Count records at times, two arrays of integers."""
        import numpy as np

        stretches, places = np.unique(times_ms // self.width_ms, return_inverse=True)
        sums = np.zeros(len(stretches), dtype=np.int64)
        np.add.at(sums, places, records)
        for stretch, count in zip(stretches.tolist(), sums.tolist(), strict=True):
            self.counts[stretch] = self.counts.get(stretch, 0) + count
        self._keep_few()

    def join(self, other: TimeCounts) -> None:
        """Count what another one has."""
        self._widen(max(self.width_ms, other.width_ms))
        for stretch, count in other.counts.items():
            own = stretch * other.width_ms // self.width_ms
            self.counts[own] = self.counts.get(own, 0) + count
        self._keep_few()

    def bars(self) -> list[tuple[float, float, float]]:
        """Where each stretch begins and ends, and its records."""
        width = self.width_ms
        return [
            (stretch * width, (stretch + 1) * width, count)
            for stretch, count in sorted(self.counts.items())
        ]

    def _keep_few(self) -> None:
        while len(self.counts) > STRETCHES_MAX:
            self._widen(2 * self.width_ms)

    def _widen(self, width_ms: int) -> None:
        found, self.counts = self.counts, {}
        for stretch, count in found.items():
            wider = stretch * self.width_ms // width_ms
            self.counts[wider] = self.counts.get(wider, 0) + count
        self.width_ms = width_ms


def gaps_between(first_ms: Any, highest_ms: Any) -> list[Gap]:
    """The gaps before entries of which the first one's time is `first_ms`, and the greatest time
    before each `highest_ms`: two arrays of integers."""
    chosen = (first_ms > highest_ms).nonzero()[0]
    ends, begins = first_ms[chosen].tolist(), highest_ms[chosen].tolist()
    return longest(zip(begins, ends, strict=True))


def longest(gaps: Iterable[Gap]) -> list[Gap]:
    """Those that are kept, the longest first."""
    return heapq.nsmallest(GAPS_MAX, gaps, key=lambda gap: (gap[0] - gap[1], gap))


def following(gaps: Iterable[Gap], latest_ms: int) -> list[Gap]:
    """The gaps of a part that comes after records up to a time."""
    return [(max(begin, latest_ms), end) for begin, end in gaps if end > latest_ms]
