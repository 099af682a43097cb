"""A folder that takes no more bytes than it may: a disk of any size, which is full like another.

Brokers of tests have their data in memory in one.
"""

from __future__ import annotations

import errno
import os
import sys
from threading import Lock
from typing import TYPE_CHECKING

from storage.unsynced_filesystem import UnsyncedFile, UnsyncedFilesystem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.disk import DiskFile

    Bytes = bytes | bytearray | memoryview

BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's own is."""


class BoundedFilesystem(UnsyncedFilesystem):
    """What is in `folder` is looked through only when what was written since the last look may have
    filled it. What other processes write there is counted at the next look.

    Any thread may use it.
    """

    __slots__ = ("_bytes_max", "_folder", "_lock", "_room")

    def __init__(self, folder: str, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._room = 0
        """Bytes that certainly have room without another look."""

    def open_file(self, path: str, *, create: bool = False) -> DiskFile:
        return _BoundedFile(super().open_file(path, create=create), self._take)

    def reserve(self, path: str, size: int) -> None:
        self._take(size, path)
        super().reserve(path, size)

    def free_bytes(self, path: str) -> int:
        return min(super().free_bytes(path), max(0, self._bytes_max - _allocated(self._folder)))

    def total_bytes(self, path: str) -> int:
        return min(super().total_bytes(path), self._bytes_max)

    def _take(self, size: int, path: str) -> None:
        """Raises OSError (ENOSPC) where there may be no room for so many bytes more."""
        with self._lock:
            if size > self._room:
                self._room = self._bytes_max - _allocated(self._folder)
            if size > self._room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            self._room -= size


class _BoundedFile(UnsyncedFile):
    __slots__ = ("_take",)

    def __init__(self, file: DiskFile, take: Callable[[int, str], None]) -> None:
        super().__init__(file.path, file.detach())
        self._take = take

    def write_at(self, buffers: Sequence[Bytes], position: int) -> None:
        self._take(sum(map(len, buffers)), self.path)
        super().write_at(buffers, position)


def _allocated(folder: str) -> int:
    """Bytes that the files in a folder, and in those below it, take."""
    found = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(f"{path}/{name}")
            except FileNotFoundError:
                continue  # removed meanwhile
            if sys.platform == "win32":
                found += status.st_size
            else:
                found += status.st_blocks * BLOCK_BYTES
    return found
