"""The checkpoints of a data directory that note how far each of its logs is.

They are made as steps, to be taken in any thread, because a disk may be slow. A recovery point is
noted after the indexes that cover it; how far a log is compacted, after its folder is synced.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from storage.checkpoints import CheckpointFile
from storage.closing import store_for_recovery
from storage.layout import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    SYNCED_POINTS,
    TAKEN_OVER,
    partition_of,
)
from storage.noted import METADATA
from storage.steps import AT_ONCE, run_here
from storage.syncing import take_all

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from storage.checkpoints import Sharing
    from storage.filesystem import Filesystem
    from storage.log import Log
    from storage.noted import Noted
    from storage.recovery import LastKnown
    from storage.start_offsets import StartOffsets
    from storage.steps import Steps
    from storage.syncing import SyncStep

    Partition = tuple[str, int]


class OffsetCheckpoints:
    """What is noted of the open `logs`, which whoever opens and closes them keeps up to date."""

    def __init__(
        self,
        files: Filesystem,
        path: str,
        logs: Mapping[Partition, Log],
        starts: StartOffsets,
        sharing: Sharing | None = None,
    ) -> None:
        """`sharing` is for a directory that several processes serve."""
        self._logs = logs
        self._is_shared = sharing is not None
        self._led_since = 0
        self._starts = starts
        self._high_watermarks = CheckpointFile(files, f"{path}/{HIGH_WATERMARKS}", sharing)
        self._recovery_points = CheckpointFile(files, f"{path}/{RECOVERY_POINTS}", sharing)
        self._synced_points = CheckpointFile(files, f"{path}/{SYNCED_POINTS}", sharing)
        self._synced_before: dict[Partition, int] = {}  # as the last process noted it
        self._synced_noted: dict[Partition, int] = {}
        self._cleaner_offsets = CheckpointFile(files, f"{path}/{CLEANER_OFFSETS}", sharing)
        self._taken_over = CheckpointFile(files, f"{path}/{TAKEN_OVER}", sharing)
        self._ends_taken_over: dict[Partition, int] = {}

    def opened(self, key: Partition, *, synced: int) -> None:
        """A log was opened whose batches are on the disk up to the offset `synced`."""
        self._synced_before[key] = synced

    def taken_up(self, key: Partition, log: Log, known: LastKnown) -> None:
        """A log was opened that another process has led."""
        self.opened(key, synced=min(known.synced, log.next_offset))
        if known.gaps_below:
            self._ends_taken_over[key] = known.gaps_below
        log.segments.gaps_below = known.gaps_below

    def deleted(self, key: Partition) -> None:
        """A log is there no more: forget its offsets."""
        self._ends_taken_over.pop(key, None)
        self._synced_before.pop(key, None)

    def take_over(self, noted: Noted) -> None:
        """Note where logs end that were not made by us alone, and tell the logs.

        A disk that refuses leaves it at that: then the next start believes as much as this one did.
        """
        self._ends_taken_over = noted.ends_of(self._logs)
        self._led_since = self._ends_taken_over[METADATA]
        if self._is_shared and not noted.led_alone:
            # That the directory is ours is not said before the entries of all processes are there.
            del self._ends_taken_over[METADATA]
        for key, log in self._logs.items():
            log.segments.gaps_below = self._ends_taken_over.get(key, 0)
        if noted.is_ours and self._ends_taken_over == self._own(noted.taken_over):
            return
        with suppress(OSError):
            self._taken_over.holding(dict(self._ends_taken_over)).sync()
            if not noted.has_points:
                # In this order: without the former, gaps above these points count as our own.
                for step in self.points():
                    step.sync()

    def _own(self, noted: dict[Partition, int]) -> dict[Partition, int]:
        """What this process answers for, where there are several."""
        if not self._is_shared:
            return noted
        return {key: end for key, end in noted.items() if key == METADATA or key in self._logs}

    def all_opened(self) -> None:
        """All processes have noted where their logs ended: from now on the directory is ours. To
        be called by the controller. A disk that refuses leaves it at that."""
        if METADATA in self._ends_taken_over:
            return
        self._ends_taken_over[METADATA] = self._led_since
        with suppress(OSError):
            self._taken_over.holding(dict(self._ends_taken_over)).sync()

    def everything(self) -> list[SyncStep]:
        """The steps that note how far all logs are; to be taken in order, in any thread.

        None needs another, so all are to be taken even if one fails (`syncing.take_all`): the
        points that are noted were covered before. What is above them is read again after a crash.
        A `Cover` among the steps is told of its failure.
        """
        offsets = self.offsets()
        covers = [cover for log in self._logs.values() for cover in store_for_recovery(log)]
        return [*covers, *offsets]

    def offsets(self) -> list[SyncStep]:
        """The steps that note how far all logs are covered now, without covering more."""
        return run_here(self.gather_offsets())

    def gather_offsets(self) -> Generator[None, None, list[SyncStep]]:
        """The same, gathered a few logs at a time: others may use the loop in between."""
        files = self._recovery_points, self._high_watermarks
        # What a deletion notes meanwhile is newer: it has to win.
        turns = [file.turn() for file in files]
        points: dict[tuple[str, int], int] = {}
        watermarks: dict[tuple[str, int], int] = {}
        for number, (key, log) in enumerate(list(self._logs.items()), 1):
            points[key], watermarks[key] = log.covered_point, log.written_offset
            if number % AT_ONCE == 0:
                yield None
        return [
            file.holding(offsets, turn)
            for file, offsets, turn in zip(files, (points, watermarks), turns, strict=True)
        ]

    def points(self) -> list[SyncStep]:
        """The step that notes the recovery points alone."""
        points = {key: log.covered_point for key, log in self._logs.items()}
        return [self._recovery_points.holding(points)]

    def gaps(self, log: Log, below: int) -> list[SyncStep]:
        """The steps that note the recovery points, and that compaction may leave gaps in a log
        below an offset, which its recovery point is past; before segments are replaced."""
        key = partition_of(log.name)
        if key is not None and self._logs.get(key) is log:  # else the topic was deleted meanwhile
            self._ends_taken_over[key] = max(below, self._ends_taken_over.get(key, 0))
        taken_over = self._taken_over.holding(dict(self._ends_taken_over))
        return [*self.points(), taken_over]

    def synced(self, *, even_if_noted: bool = False) -> list[SyncStep]:
        """The step that notes up to where the batches of all logs are on the disk, with or without
        their indexes; none if that is noted already."""
        before = self._synced_before
        points = {
            key: max(log.recovery_point, before.get(key, 0)) for key, log in self._logs.items()
        }
        if points == self._synced_noted and not even_if_noted:
            return []
        self._synced_noted = points
        noted = {key: point for key, point in points.items() if point}
        return [self._synced_points.holding(noted)]

    def cleaned(self) -> list[SyncStep]:
        """The step that notes how far each log is compacted (`Log.cleaned_to`).

        To be taken when the folder of a log whose segments were replaced has been synced, or old
        segments that come back after a crash would count as clean.
        """
        known = {key: log.cleaned_to for key, log in self._logs.items()}
        cleaned = {key: offset for key, offset in known.items() if offset is not None}
        return [self._cleaner_offsets.holding(cleaned)]

    def write(self) -> Steps[None]:
        """Note how far all logs are covered and where they start. Raises OSError."""
        every = [
            *(yield from self.gather_offsets()),
            self._starts.checkpoint(),
            *self.cleaned(),
            *self.synced(even_if_noted=True),
            self._taken_over.holding(dict(self._ends_taken_over)),
        ]
        for _, error in (yield partial(take_all, every)):
            raise error
