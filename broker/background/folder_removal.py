"""Removal of the folders of deleted topics, file.delete.delay.ms after the topic is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.partitions.disk_state import DiskState
    from broker.workers import Worker

    Remove = Callable[[str], None]


class FolderRemoval:
    """Belongs to the loop; the folders are removed on the threads `readers`."""

    def __init__(self, remove: Remove, disk: DiskState, readers: Worker) -> None:
        """`remove` removes one folder, by its name, and may raise OSError."""
        self._remove = remove
        self._disk = disk
        self._readers = readers

    def remove_later(self, folders: list[str], delay_ms: int) -> None:
        """Remove these after a while, or at once when the disk is full; the next start would do it
        as well."""
        self._disk.remove_later(
            lambda: self._readers.run(lambda: self._remove_all(folders), lambda _: None), delay_ms
        )

    def _remove_all(self, folders: list[str]) -> None:
        for folder in folders:
            try:
                self._remove(folder)
            except OSError as error:
                logs.warning("deleted topic left on disk", folder=folder, reason=str(error))
