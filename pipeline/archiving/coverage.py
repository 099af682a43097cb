"""The offsets that an archive has archived, kept apart from its data files.

Who compacts a table rewrites its files, and with them their names and footers. What only those
told, "planned, and nothing was there" and "never copied", is kept here, in `_coverage.json` in the
archive's folder:

    format    1
    cluster   the cluster's id, null where it has none
    batch     the last micro-batch that is counted
    topics    {"orders": {"0": [[start, end, missing], ...]}}    `end` is the first offset after
              the range, `missing` as in the footers of plain archives

Neighbours of which nothing is missing are one range, so that its size is that of the partitions and
of the gaps, and does not grow with the number of files. It is written after the table has taken the
files: what is in the table beyond it is not part of the archive yet.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from pipeline.errors import ForeignState
from pipeline.filesystem import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipeline.filesystem import Location

COVERAGE = "_coverage.json"
FORMAT = 1


class Covered(NamedTuple):
    """Offsets of a partition from `start` up to, and without, `end`, that were archived."""

    topic: str
    partition: int
    start: int
    end: int
    missing: int = 0
    """Offsets of them that were gone, or left out as corrupt."""


class Coverage:
    """All that an archive covers; `add` notes more."""

    def __init__(
        self, folder: Location, cluster: str | None, batch: int, ranges: Iterable[Covered]
    ) -> None:
        self.cluster = cluster
        self.batch = batch
        self._place = folder.under(COVERAGE)
        self._ranges: dict[str, dict[int, list[tuple[int, int, int]]]] = {}
        for one in sorted(ranges):
            self._append(one)

    @classmethod
    def read(cls, folder: Location) -> Coverage | None:
        """None if there is none. Raises ForeignState for one that is damaged, or newer."""
        place = folder.under(COVERAGE)
        try:
            with place.filesystem.open_input_stream(place.path) as stream:
                told = json.loads(stream.read())
            if told["format"] != FORMAT:
                raise ForeignState(
                    f"{place.path} is of format {told['format']}, and this version reads format "
                    f"{FORMAT}: use a newer one"
                )
            ranges = (
                Covered(topic, int(partition), start, end, missing)
                for topic, partitions in told["topics"].items()
                for partition, some in partitions.items()
                for start, end, missing in some
            )
            return cls(folder, told["cluster"], told["batch"], ranges)
        except FileNotFoundError:
            return None
        except (KeyError, ValueError, TypeError, AttributeError) as failure:
            raise ForeignState(f"{place.path} is damaged: {failure!r}") from None

    def add(self, batch: int, ranges: Iterable[Covered]) -> None:
        """Count a micro-batch's ranges and write all of it; nothing for one that is counted.

        Raises OSError.
        """
        if batch <= self.batch:
            return
        for one in sorted(ranges):
            self._append(one)
        self.batch = batch
        self.write()

    def write(self) -> None:
        """Put it in its place, whole. Raises OSError."""
        told = {
            "format": FORMAT,
            "cluster": self.cluster,
            "batch": self.batch,
            "topics": self._ranges,
        }
        write_whole(self._place, json.dumps(told).encode())

    def ends(self) -> dict[tuple[str, int], int]:
        """By topic and partition, the offset after the last one that is covered."""
        return {
            (topic, partition): max(end for _, end, _ in some)
            for topic, partitions in self._ranges.items()
            for partition, some in partitions.items()
        }

    def __iter__(self) -> Iterator[Covered]:
        """By topic, partition and offset."""
        for topic in sorted(self._ranges):
            for partition in sorted(self._ranges[topic]):
                for one in sorted(self._ranges[topic][partition]):
                    yield Covered(topic, partition, *one)

    def _append(self, one: Covered) -> None:
        some = self._ranges.setdefault(one.topic, {}).setdefault(one.partition, [])
        if some and some[-1][1] == one.start and not some[-1][2] and not one.missing:
            some[-1] = (some[-1][0], one.end, 0)
        else:
            some.append((one.start, one.end, one.missing))
