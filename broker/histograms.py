"""Histograms of durations, in the shape in which Prometheus takes them."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of the buckets, in seconds; above the last is one more."""


class Histogram:
    """Durations, counted by bucket. `counts` has one number per bound and one for all above."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count so many durations of this length."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += count
        self.sum_s += seconds * count
