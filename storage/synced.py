"""The half of a log that knows what of it is on the disk, and that fails when that cannot be known.

    start_offset <= covered_point <= recovery_point <= written_offset

Below `recovery_point` all batches are on the disk; below `covered_point` so are the index files,
which is what a checkpoint may call the recovery point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import BROKEN, NO_DESCRIPTORS, LogFailed, StorageError
from storage.reading import ReadableLog
from storage.syncing import NotPut

if TYPE_CHECKING:
    from storage.syncing import SyncQueue, SyncStep


class SyncedLog(ReadableLog):
    """What `storage.log.Log` does about syncing and failing."""

    __slots__ = ("_failure", "_syncs", "covered_point", "name", "recovery_point")

    _failure: str | None
    _syncs: SyncQueue
    covered_point: int
    name: str
    recovery_point: int

    @property
    def failed(self) -> str | None:
        """Why the log takes no more appends; None while it does."""
        return self._failure

    def fail(self, reason: str) -> None:
        """Take no more appends."""
        raise NotImplementedError

    def refuse(self, where: str, error: OSError) -> StorageError:
        """The disk did not do what was asked of it: the error to answer with.

        A disk that is broken, and not merely full, stops the log.
        """
        text = f"{where}: {error}"
        if error.errno not in BROKEN:
            return StorageError(text)
        self.fail(text)
        return LogFailed(text)

    def write(self) -> None:
        """Put everything queued into the file. Raises StorageError."""
        raise NotImplementedError

    def unsynced(self) -> tuple[list[SyncStep], int]:
        """What has to be synced so that everything below the returned offset is on the disk.

        Call `sync()` on each, in order, in any thread, then `synced(offset)` here; appends and
        rolls may go on meanwhile. After an OSError call `sync_failed`."""
        up_to = self.written_offset
        if up_to == self.recovery_point and not len(self._syncs):
            return [], up_to
        steps = self._syncs.begin(up_to)
        steps.append(self.active)
        return steps, up_to

    def owe(self, *steps: SyncStep) -> None:
        """Add steps to the next sync; for whoever changed the log's files beside it."""
        self._syncs.add(*steps)

    def synced(self, up_to: int) -> None:
        """The steps that `unsynced` gave for this offset have been taken."""
        if self._failure is None and self._syncs.confirm(up_to):
            self.recovery_point = max(self.recovery_point, up_to)
            base_offset = self.active.base_offset
            if self.recovery_point > base_offset > self.covered_point:
                # Only a round that began after the roll, and took its steps, can come so far.
                self.covered_point = base_offset

    def sync_failed(self, error: OSError) -> StorageError:
        """A step could not be taken: what it covers is not on the disk, and may never be.

        The kernel forgets what it could not write, so the next sync would report success for bytes
        that are gone. The log fails, unless the step was one that starts afresh (`NotPut`), or was
        not begun for want of a file descriptor.
        Returns the error to answer with.
        """
        if isinstance(error, NotPut) or error.errno in NO_DESCRIPTORS:
            return StorageError(f"{self.name}: {error}")
        self.fail(f"{self.name}: sync failed: {error}")
        return LogFailed(self._failure or "")

    def sync(self) -> None:
        """Write and sync everything, here and now. Raises StorageError."""
        self.write()
        steps, up_to = self.unsynced()
        try:
            for step in steps:
                step.sync()
        except OSError as error:
            raise self.sync_failed(error) from error
        self.synced(up_to)
