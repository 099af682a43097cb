"""A benchmark: a load, the figures it gives, and what was expected of them beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.servers import Server


class Figure(NamedTuple):
    """One number that a case gives for a server."""

    name: str
    #: Digits after the point in a table.
    digits: int = 2
    #: What we expected of our broker before the first run, from the prototypes' measurements.
    estimate: float | None = None


class Scale(NamedTuple):
    """The size of a case's load. A benchmark that is too short measures its own edges."""

    produced_bytes_of_small: int
    produced_bytes_of_large: int
    fetched_bytes: int
    single_records: int
    raw_s: float
    latency_s: float
    starts: int
    #: Seconds from the first answer to the look at an idle server's memory.
    idle_s: float
    #: What lies in the log directory when a server is killed, in batches.
    recovered_bytes: int = 2_000_000_000
    #: Of a log that is searched by time.
    segments: int = 1_000
    #: Of a server that holds many.
    partitions: int = 10_000
    #: Committed offsets that are loaded.
    entries: int = 1_000_000
    #: Consumer groups that heartbeat at the same time.
    groups: int = 1_000
    #: In a log that is fetched from.
    transactions: int = 10_000
    #: Loaded by a start.
    transactional_ids: int = 100_000


FULL = Scale(100_000_000, 300_000_000, 300_000_000, 60_000, 1.5, 3.0, 2, 1.0)
QUICK = Scale(
    *(40_000_000, 100_000_000, 100_000_000, 20_000, 0.5, 1.0, 1, 1.0),
    entries=100_000,
    transactional_ids=20_000,
)
TINY = Scale(
    200_000, 400_000, 2_000_000, 300, 0.05, 0.05, 1, 0.05, 4_000_000, 10, 40, 2_000, 5, 40, 200
)


class Case:
    """A load. It is run against each server in turn, in every round."""

    #: Groups of cases are tables of the report.
    group: str
    name: str
    figures: tuple[Figure, ...]

    def prepare(self, server: Server, scale: Scale) -> None:
        """Called once for each server, before the first round."""

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        """One round: a number for each figure. `folder` is empty and is removed afterwards."""
        raise NotImplementedError
