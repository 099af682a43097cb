"""One committed offset, and the place that it is for."""

from __future__ import annotations

from typing import NamedTuple

#: Group, topic, partition.
Place = tuple[str, str, int]


class Committed(NamedTuple):
    """The offset that a group has committed for a partition. `commit_ms` is exact to the second."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = 0
    expire_ms: int = -1
    """The time to expire whatever the retention is (OffsetCommit v1 to v4); -1: no such time."""
