"""Files by the calls that Linux has.

A write of several buffers at a position, a sync of the content without the times, room that is
taken at once.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from storage.filesystem import IOV_MAX, opened
from storage.portable_files import PortableFile, PortableFilesystem

if TYPE_CHECKING:
    from collections.abc import Sequence

    Bytes = bytes | bytearray | memoryview

assert sys.platform == "linux"

SPARE_NAMES = 16
"""A file system that can take fewer new files than this (inodes) counts as full: a new segment
takes three."""


class LinuxFile(PortableFile):
    """A file that any number of threads read and write without waiting for each other."""

    __slots__ = ()

    def __init__(self, path: str, descriptor: int) -> None:
        # Without the lock of a portable one: there may be thousands.
        self.path = path
        self._descriptor = descriptor

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._descriptor, size, position)

    def reread(self, position: int) -> None:
        os.posix_fadvise(self._descriptor, position, 0, os.POSIX_FADV_DONTNEED)

    def write_at(self, buffers: Sequence[Bytes], position: int) -> None:
        size = sum(map(len, buffers))
        written = 0
        if len(buffers) <= IOV_MAX:
            written = os.pwritev(self._descriptor, buffers, position)
        if written != size:
            self._write_rest(buffers, position, written)

    def _write_rest(self, buffers: Sequence[Bytes], position: int, written: int) -> None:
        """Go on after a short write, or in several calls when there are too many buffers."""
        views = [memoryview(buffer) for buffer in buffers]
        first = 0
        skipped = written
        while True:
            while first < len(views) and skipped >= len(views[first]):
                skipped -= len(views[first])
                first += 1
            if first == len(views):
                return
            views[first] = views[first][skipped:]
            skipped = os.pwritev(
                self._descriptor, views[first : first + IOV_MAX], position + written
            )
            if skipped == 0:
                raise OSError(errno.ENOSPC, "the disk takes no more bytes", self.path)
            written += skipped

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def changed_ns(self) -> int:
        return os.fstat(self._descriptor).st_ctime_ns


class LinuxFilesystem(PortableFilesystem):
    """The operating system's files."""

    __slots__ = ()

    def open_file(self, path: str, *, create: bool = False) -> LinuxFile:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return LinuxFile(path, opened(os.open, path, flags, 0o644))

    def open_to_read(self, path: str) -> LinuxFile:
        return LinuxFile(path, opened(os.open, path, os.O_RDONLY))

    def reserve(self, path: str, size: int) -> None:
        descriptor = opened(os.open, path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        if status.f_files and status.f_favail < SPARE_NAMES:
            return 0
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize
