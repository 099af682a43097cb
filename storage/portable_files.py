"""Files by calls that every system has; `storage.linux_files` takes the place of what Linux does
better.

A file closes its descriptor when nobody refers to it any more. That is what keeps a deleted segment
readable for a response that is still being sent, and a rolled segment open for the thread that is
about to sync it: both simply hold the file.

Where Windows differs: what is open is renamed and removed because it was opened so
(`storage.opening`); a folder with open files in it is not, so its files move one by one. Names are
on the disk when NTFS has its journal there, for a folder cannot be synced. macOS has a call of its
own for what a drive keeps in its cache.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from threading import Lock as ThreadLock
from typing import TYPE_CHECKING

from storage.filesystem import opened, write_atomic
from storage.locking import DiskLock, holding
from storage.opening import open_descriptor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    Bytes = bytes | bytearray | memoryview

SMALL_FILE_BYTES, READ_BYTES = 1 << 16, 1 << 20

RENAME_TRIES = 10
RENAME_AGAIN_S = 0.01
"""Scanners of viruses open new files on Windows for a moment; the waits grow to half a second."""


def sync_descriptor(descriptor: int) -> None:
    """Return when the content, and all that the drive holds back of it, is on the disk."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            # File systems of a network don't have it.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOTTY):
                raise
        else:
            return
    os.fsync(descriptor)


class PortableFile:
    """A file whose position is moved before each read and write, by one thread at a time."""

    __slots__ = ("_descriptor", "_moving", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._moving = ThreadLock()

    def pread(self, size: int, position: int) -> bytes:
        with self._moving:
            os.lseek(self._descriptor, position, os.SEEK_SET)
            return os.read(self._descriptor, size)

    def reread(self, position: int) -> None:
        """There is no such hint here."""

    def write_at(self, buffers: Sequence[Bytes], position: int) -> None:
        data = memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        with self._moving:
            os.lseek(self._descriptor, position, os.SEEK_SET)
            while data:
                written = os.write(self._descriptor, data)
                if written == 0:
                    raise OSError(errno.ENOSPC, "the disk takes no more bytes", self.path)
                data = data[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        sync_descriptor(self._descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def changed_ns(self) -> int:
        status = os.fstat(self._descriptor)
        # What Windows has in its place is when the file was made.
        return status.st_mtime_ns if sys.platform == "win32" else status.st_ctime_ns

    def fileno(self) -> int:
        return self._descriptor

    def detach(self) -> int:
        """Give up the descriptor, which is the caller's to close from now on."""
        descriptor, self._descriptor = self._descriptor, -1
        return descriptor

    def close(self) -> None:
        descriptor = self.detach()
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DiskFile({self.path!r})"


class PortableFilesystem:
    """The operating system's files."""

    __slots__ = ()

    def open_file(self, path: str, *, create: bool = False) -> PortableFile:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return PortableFile(path, opened(open_descriptor, path, flags, 0o644))

    def open_to_read(self, path: str) -> PortableFile:
        return PortableFile(path, opened(open_descriptor, path, os.O_RDONLY))

    def list_dir(self, path: str) -> list[str]:
        return opened(os.listdir, path)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size_of(self, path: str) -> int:
        return os.stat(path).st_size

    def make_dir(self, path: str) -> None:
        os.makedirs(path, 0o755, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        if sys.platform == "win32":
            rename_patiently(old, new)
        else:
            os.rename(old, new)

    def make_read_only(self, path: str) -> None:
        # Windows does not remove a file that is marked so.
        if sys.platform != "win32":
            os.chmod(path, 0o400)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        with opened(os.scandir, path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self.remove_tree(entry.path)
                else:
                    self.remove(entry.path)
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        if sys.platform == "win32":
            return
        descriptor = opened(os.open, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sync_descriptor(descriptor)
        finally:
            os.close(descriptor)

    def read_bytes(self, path: str) -> bytes:
        # A file object costs as much as the rest, and a start reads 40,000 files of 10,000 logs.
        descriptor = opened(open_descriptor, path, os.O_RDONLY)
        try:
            data = os.read(descriptor, SMALL_FILE_BYTES)
            if len(data) < SMALL_FILE_BYTES:
                return data
            parts = [data]
            while data := os.read(descriptor, READ_BYTES):
                parts.append(data)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def write_atomic(self, path: str, data: bytes) -> None:
        write_atomic(self, path, data)

    def lock(self, path: str, *, inherited: bool = False) -> DiskLock:
        return DiskLock(path, inherited=inherited)

    def held(self, path: str) -> AbstractContextManager[object]:
        return holding(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def now_ns(self) -> int:
        return time.time_ns()

    def reserve(self, path: str, size: int) -> None:
        file = self.open_file(path, create=True)
        try:
            # Zeros are written: a file that was only made longer would have no room of its own.
            position = file.size()
            while position < size:
                zeros = bytes(min(size - position, READ_BYTES))
                file.write_at([zeros], position)
                position += len(zeros)
        finally:
            file.close()

    def free_bytes(self, path: str) -> int:
        import shutil  # slow to import, and Linux does without

        return shutil.disk_usage(path).free

    def total_bytes(self, path: str) -> int:
        import shutil  # as above

        return shutil.disk_usage(path).total

    def set_modified_ms(self, path: str, ms: int) -> None:
        os.utime(path, ns=(ms * 1_000_000, ms * 1_000_000))


def rename_patiently(old: str, new: str) -> None:
    """Rename as elsewhere, on a system that refuses it while somebody has a file open.

    Raises OSError.
    """
    for attempt in range(RENAME_TRIES):
        try:
            os.replace(old, new)
        except PermissionError:
            if os.path.isdir(old) and not os.path.lexists(new):
                move_files(old, new)
                return
            if attempt == RENAME_TRIES - 1:
                raise
            time.sleep(min(RENAME_AGAIN_S * 2**attempt, 0.5))
        else:
            return


def move_files(old: str, new: str) -> None:
    """Give a folder another name by moving what is in it. Raises OSError.

    The files that others have open are those of a log, whose names are numbers and come first: a
    folder that a crash leaves without them still says whose it was.
    """
    os.mkdir(new)
    for name in sorted(os.listdir(old)):
        os.replace(f"{old}/{name}", f"{new}/{name}")
    os.rmdir(old)
