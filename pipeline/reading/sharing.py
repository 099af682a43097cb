"""The ranges that share one of Spark's partitions, and so a task.

A task costs by itself what reading some thousands of records does, in the JVM, in the Python
process that it runs in and in connections. So small ranges are read one after the other by one
task, each of them in order and as a whole.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Range

Share = list["Range"]
"""The ranges of one partition of Spark's, in the order of topics, partitions and offsets."""

SMALL_OFFSETS = 1_000
"""Ranges with fewer offsets share partitions, where nothing else is said ..."""
SHARED_OFFSETS = 10_000
"""... of about so many offsets: not more, as records may be large ..."""
SHARED_RANGES = 50
"""... and of so many ranges, each of which is a fetch or two; a tenth of a second of work ..."""
SHARED_LEAST = 8
"""... and so many partitions at least, as there may be many cores."""
RANGE_OFFSETS = 5_000
"""The work on a range that has nothing in it, as the offsets that could be read meanwhile."""


def shares(ranges: Sequence[Range], options: SourceOptions) -> list[Share]:
    """The ranges of each partition of Spark's; the same ones for the same ranges and options.

    With `maxPartitions` there are not more than that. With `minPartitions`, and without either
    where ranges are few or large, each range has its own.
    """
    if options.max_partitions is not None:
        return shared_out(ranges, options.max_partitions)
    small = [range_ for range_ in ranges if range_.size < SMALL_OFFSETS]
    if options.min_partitions is not None or len(small) <= SHARED_LEAST:
        return [[range_] for range_ in ranges]
    number = max(
        SHARED_LEAST,
        -(-sum(range_.size for range_ in small) // SHARED_OFFSETS),
        -(-len(small) // SHARED_RANGES),
    )
    large = [[range_] for range_ in ranges if range_.size >= SMALL_OFFSETS]
    return sorted(large + shared_out(small, number))


def shared_out(ranges: Iterable[Range], most: int) -> list[Share]:
    """At most so many shares, of about the same work each: the largest range that is left goes to
    the share that has least."""
    lightest: list[tuple[int, int]] = [(0, number) for number in range(most)]
    found: dict[int, Share] = {}
    for range_ in sorted(ranges, key=lambda range_: (-range_.size, range_)):
        work, number = lightest[0]
        heapq.heapreplace(lightest, (work + range_.size + RANGE_OFFSETS, number))
        found.setdefault(number, []).append(range_)
    return sorted(sorted(share) for share in found.values())
