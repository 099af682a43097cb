"""The snapshots of a folder (KIP-630, storage.md 12).

A snapshot holds the state of a log's records below an offset, so that the records need not be
kept. What if one is lost: the log before it has gone, so the start is refused, unless an older one
is left and the log goes back as far.

Writing one is in `snapshot_writing`, reading in `snapshot_reading`; import both from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.layout import DELETED
from storage.metadata.snapshot_names import BOOTSTRAP as BOOTSTRAP
from storage.metadata.snapshot_names import SnapshotId as SnapshotId
from storage.metadata.snapshot_names import is_left_over
from storage.metadata.snapshot_names import snapshot_id_of as snapshot_id_of
from storage.metadata.snapshot_reading import DamagedSnapshot as DamagedSnapshot
from storage.metadata.snapshot_reading import SnapshotBatch as SnapshotBatch
from storage.metadata.snapshot_reading import last_contained_ms
from storage.metadata.snapshot_reading import read_snapshot as read_snapshot
from storage.metadata.snapshot_rules import HeldSnapshot
from storage.metadata.snapshot_writing import SNAPSHOT_BATCH_RECORDS as SNAPSHOT_BATCH_RECORDS
from storage.metadata.snapshot_writing import SnapshotWriter as SnapshotWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.filesystem import File, Filesystem


class Snapshots:
    """The snapshots of a folder, oldest first; older is of a lower epoch, or a lower offset.

    What a folder has is listed once. One thread owns this; the files are written and read by any.
    """

    __slots__ = ("_files", "_folder", "_times", "ids")

    def __init__(self, files: Filesystem, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._times: dict[SnapshotId, int] = {}
        found = map(snapshot_id_of, files.list_dir(folder))
        self.ids = _sorted(snapshot_id for snapshot_id in found if snapshot_id)

    @property
    def latest(self) -> SnapshotId | None:
        """The newest, None if there is none."""
        return self.ids[-1] if self.ids else None

    def path(self, snapshot_id: SnapshotId) -> str:
        """The path of its file, whether there is one or not."""
        return f"{self._folder}/{snapshot_id.file_name}"

    def size(self, snapshot_id: SnapshotId) -> int:
        """Bytes of its file. Raises FileNotFoundError if there is none."""
        return self._files.size_of(self.path(snapshot_id))

    def open_to_read(self, snapshot_id: SnapshotId) -> File:
        """Its file, which can be read to the end even if it is removed meanwhile.

        Raises FileNotFoundError if there is none.
        """
        return self._files.open_to_read(self.path(snapshot_id))

    def held(self) -> list[HeldSnapshot]:
        """Id, size and last time of each for `snapshot_rules`. Raises DamagedSnapshot, OSError."""
        times = {known: self._times[known] for known in self.ids if known in self._times}
        for snapshot_id in self.ids:
            if snapshot_id not in times:
                times[snapshot_id] = last_contained_ms(self._files, self.path(snapshot_id))
        self._times = times
        return [HeldSnapshot(known, self.size(known), times[known]) for known in self.ids]

    def add(self, snapshot_id: SnapshotId) -> None:
        """Know of one that has been published."""
        self.ids = _sorted({*self.ids, snapshot_id})

    def forget(self, *gone: SnapshotId) -> None:
        """Know of these no more; their files are to be set aside."""
        self.ids = [known for known in self.ids if known not in gone]

    def set_aside(self, gone: Sequence[SnapshotId]) -> list[str]:
        """Rename the files of these, durably, on any thread; the paths to give to `remove_removed`
        when a while has passed. Raises OSError; then some may have their new names only."""
        aside = [self.path(snapshot_id) + DELETED for snapshot_id in gone]
        for snapshot_id, path in zip(gone, aside, strict=True):
            self._files.rename(self.path(snapshot_id), path)
        self._files.sync_dir(self._folder)
        return aside

    def remember(self, gone: Sequence[SnapshotId]) -> None:
        """Some of these could not be set aside: know of those that are there."""
        for snapshot_id in gone:
            if self._files.exists(self.path(snapshot_id)):
                self.add(snapshot_id)

    def remove(self, snapshot_id: SnapshotId) -> str:
        """Set one aside, here and now; its path then, for `remove_removed`.

        Raises OSError; the snapshot is there then, perhaps under its new name only.
        """
        self.forget(snapshot_id)
        try:
            (path,) = self.set_aside([snapshot_id])
        except OSError:
            self.remember([snapshot_id])
            raise
        return path

    def remove_removed(self, path: str) -> None:
        """Remove a file that was set aside. Raises OSError."""
        self._files.remove(path)

    def tidy(self) -> list[str]:
        """Remove what a stop has left: unfinished snapshots and those set aside. Their names.

        For a start, when nothing is being written or fetched. Raises OSError.
        """
        left = sorted(filter(is_left_over, self._files.list_dir(self._folder)))
        for name in left:
            self._files.remove(f"{self._folder}/{name}")
        return left


def _sorted(ids: Iterable[SnapshotId]) -> list[SnapshotId]:
    return sorted(ids, key=lambda snapshot_id: snapshot_id.age)
