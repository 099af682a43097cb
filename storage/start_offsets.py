"""The start offsets of a directory's logs, noted on the disk before a log starts there.

    1  new starts are announced: from now on the checkpoint has them, whoever writes it
    2  the checkpoint is on the disk
    3  the logs start there; if the disk refused, they do not, and the checkpoint forgets them

So a start that a client was told is never lost, and one whose storing failed has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.checkpoints import CheckpointFile
from storage.layout import LOG_STARTS
from storage.removal import Removal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.checkpoints import Sharing
    from storage.filesystem import Filesystem
    from storage.log import Log
    from storage.syncing import SyncStep

    Partition = tuple[str, int]


class StartOffsets:
    """The log starts of `logs`, the open logs of the directory `path` by partition."""

    def __init__(
        self,
        files: Filesystem,
        path: str,
        logs: Mapping[Partition, Log],
        sharing: Sharing | None = None,
    ) -> None:
        self._logs = logs
        self._checkpoint = CheckpointFile(files, f"{path}/{LOG_STARTS}", sharing)
        self._opened_at: dict[Partition, int] = {}
        self._announced: dict[Log, int] = {}
        self._leaving: set[Removal] = set()

    def opened(self, partition: Partition) -> None:
        """A log has been opened."""
        self._opened_at[partition] = self._logs[partition].start_offset

    def checkpoint(self) -> SyncStep:
        """The step that notes where all logs start, or are about to."""
        return self._checkpoint.holding(self._noted())

    def announce(self, starts: Mapping[Log, int]) -> SyncStep:
        """The step that notes new starts as well; `settle` has to follow, whatever comes of it.

        All below a new start has to be on the disk: after a crash a log may end at its recovery
        point, and must not start above that.
        """
        self._announced |= starts
        return self.checkpoint()

    def settle(self, starts: Mapping[Log, int], *, stored: bool) -> None:
        """Have logs start where it was announced, or not (`stored` is whether the step was taken).

        A checkpoint that somebody else wrote in between may have them all the same: the next one,
        at the latest at the next round of the housekeeping, takes that back.
        """
        for log, start in starts.items():
            self._announced.pop(log, None)
            if stored:
                log.raise_start(start)

    def take_out(self, partition: Partition) -> Removal | None:
        """Let a log go of the segments wholly below its start. Their files are the caller's; None
        if there are none."""
        log = self._logs[partition]
        segments = log.take_segments_below_start()
        if not segments:
            return None
        removal = Removal(partition, log, segments)
        self._leaving.add(removal)
        return removal

    def has_left(self, removal: Removal) -> None:
        """The files have been set aside: no start will find these segments any more."""
        self._leaving.discard(removal)

    def is_leaving(self, partition: Partition) -> bool:
        """Whether files of segments that a log has let go of are still being set aside. Any
        thread."""
        return any(removal.partition == partition for removal in tuple(self._leaving))

    def _noted(self) -> dict[Partition, int]:
        leaving = {removal.partition for removal in self._leaving}
        noted: dict[Partition, int] = {}
        for key, log in self._logs.items():
            start = max(log.start_offset, self._announced.get(log, 0))
            start = min(start, max(log.recovery_point, self._opened_at[key]))
            if start > log.segments[0].base_offset or key in leaving:
                noted[key] = start
        return noted
