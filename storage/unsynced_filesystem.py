"""The system's files without syncs: what is written outlives the process, also one that is killed,
and no power cut.

Brokers of tests have their data in one: it is gone with the test run, and a test that waits for the
disk shares it with everything else.
"""

from __future__ import annotations

from storage.disk import DiskFile, DiskFilesystem


class UnsyncedFilesystem(DiskFilesystem):
    """Any thread may use it."""

    __slots__ = ()

    def open_file(self, path: str, *, create: bool = False) -> DiskFile:
        file = super().open_file(path, create=create)
        return UnsyncedFile(file.path, file.detach())

    def sync_dir(self, path: str) -> None:
        """Nothing is waited for."""


class UnsyncedFile(DiskFile):
    """An open file, whose content is the kernel's to write."""

    __slots__ = ()

    def reread(self, position: int) -> None:
        """No sync has failed: the kernel has what was written."""

    def sync(self) -> None:
        """Nothing is waited for."""
