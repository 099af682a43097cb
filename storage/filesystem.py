"""The only door to the disk.

`Filesystem` and `File` are the interface; `DiskFilesystem` and `DiskFile` the real thing. The
tests have a twin in memory that knows which bytes would outlive a power cut.

A `DiskFile` closes its descriptor when nobody refers to it any more. That is what keeps a
deleted segment readable for a response that is still being sent, and a rolled segment open for
the thread that is about to sync it: both simply hold the file.

Paths are plain strings: pathlib would cost start-up time and buy nothing here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from storage.errors import NO_DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Bytes = bytes | bytearray | memoryview

T = TypeVar("T")

IOV_MAX = 1024
SMALL_FILE_BYTES, READ_BYTES = 1 << 16, 1 << 20
"""Buffers the kernel takes in one call; Linux's limit."""


SPARE_NAMES = 16
"""A file system that can take fewer new files than this (inodes) counts as full: a new segment
takes three."""


class File(Protocol):
    """An open file. Positions and sizes are in bytes."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def reread(self, position: int) -> None:
        """From this position on, have reads find what is on the disk or on its way there.

        After a sync that failed, the kernel's cache may go on showing bytes that never got there
        and never will, and call them clean; that outlives the process. Only a hint to the kernel.
        """

    def write_at(self, buffers: Sequence[Bytes], position: int) -> None:
        """All bytes of all buffers, one after the other, or OSError.

        After an error part of them may be in the file; cutting it back is up to the caller.
        """

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when the content and the size are on the disk."""

    def size(self) -> int: ...

    def changed_ns(self) -> int:
        """Time of the last change of the file or its names, by any process, in ns: another number
        after each change, as far as the file system's clock tells them apart. Raises OSError."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive lock on a file, held until released."""

    def release(self) -> None:
        """Remove the file and let go."""


class Filesystem(Protocol):
    """Everything storage does to files. Paths are strings; errors are OSError."""

    def open_file(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; an existing file keeps its content."""

    def open_to_read(self, path: str) -> File:
        """Open a file that will not be changed, and may not be allowed to be."""

    def list_dir(self, path: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size_of(self, path: str) -> int: ...

    def make_dir(self, path: str) -> None:
        """Make a folder and those above it; nothing happens if it exists. Not synced."""

    def rename(self, old: str, new: str) -> None: ...

    def make_read_only(self, path: str) -> None:
        """Let nobody but the owner read the file, and nobody write to it. Not synced."""

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens if there is none."""

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Return when the names in this folder are on the disk."""

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Put a file in place so that a reader sees the old or the new content, on disk."""

    def lock(self, path: str) -> Lock:
        """Lock a file that is made if needed; BlockingIOError if another process holds it."""

    def modified_ms(self, path: str) -> int: ...

    def now_ns(self) -> int:
        """The clock by which files are stamped, in ns: a change after this call has a `changed_ns`
        above it, unless it is within the same tick (1 to 10 ms)."""

    def set_modified_ms(self, path: str, ms: int) -> None:
        """Say when a file was last written to, for one that takes another's place."""

    def reserve(self, path: str, size: int) -> None:
        """Make a file whose bytes have their room on the disk; a larger one stays as it is.

        After an error a part of it may be there.
        """

    def free_bytes(self, path: str) -> int:
        """Bytes free for writing in this folder; 0 also where there is no room for names."""

    def total_bytes(self, path: str) -> int:
        """Size in bytes of the disk that this folder is on."""


def parent_of(path: str) -> str:
    """The folder of a path; `.` for a bare name."""
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def write_atomic(files: Filesystem, path: str, data: bytes) -> None:
    """Temporary file, sync, rename, sync of the folder: the order that survives a power cut."""
    temporary = f"{path}.tmp"
    file = files.open_file(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at([data], 0)
        file.sync()
    except OSError:
        with suppress(OSError):
            files.remove(temporary)  # what there is of it only takes room
        raise
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_dir(parent_of(path))


class SpareDescriptors:
    """Descriptors held to be given up when the process may not have another one.

    What must be opened then finds a place: a folder to be synced, a checkpoint. The last one is for
    what tells of it (`lent`). Any thread may give up; taking back is for one.
    """

    __slots__ = ("_count", "_held")

    def __init__(self) -> None:
        self._count = 0
        self._held: list[int] = []

    def hold(self, count: int) -> None:
        """Hold so many from now on, as far as they can be had."""
        self._count = count
        while len(self._held) > count and self.give_up(last=True):
            pass
        self.refill()

    def give_up(self, *, last: bool = False) -> bool:
        """Close one; False if there is none left, or only the last one."""
        if len(self._held) < 2 and not last:
            return False
        try:
            descriptor = self._held.pop()
        except IndexError:
            return False
        os.close(descriptor)
        return True

    def refill(self) -> bool:
        """Take back what was given up; whether all are held now."""
        while len(self._held) < self._count:
            try:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return False
        return True

    def is_another_left(self) -> bool:
        """Whether the process may have one more besides."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    @contextmanager
    def lent(self) -> Iterator[None]:
        """One is free for what happens here and opens files one after the other (an import)."""
        self.give_up(last=True)
        try:
            yield
        finally:
            self.refill()


SPARES = SpareDescriptors()
"""The spare descriptors of this process; a tool holds none."""


def _opened(call: Callable[..., T], *arguments: Any) -> T:
    """Make a call that takes a descriptor, if need be the place of a spare one."""
    while True:
        try:
            return call(*arguments)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not SPARES.give_up():
                raise


class DiskFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
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

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def changed_ns(self) -> int:
        return os.fstat(self._descriptor).st_ctime_ns

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


class DiskLock:
    """A POSIX record lock, the kind Apache Kafka's JVM takes.

    `flock` would not conflict with it: two brokers could then share a directory. POSIX locks do
    not conflict within one process either, so the files this process holds are remembered.
    """

    held: ClassVar[set[tuple[int, int]]] = set()

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor, self._identity = self._acquire(path)

    @classmethod
    def _acquire(cls, path: str) -> tuple[int, tuple[int, int]]:
        while True:
            # Looked at before it is opened: closing any descriptor of a file gives up all the
            # process's POSIX locks on it, and somebody here may hold one.
            if cls._identity_of(path) in cls.held:
                raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            status = os.fstat(descriptor)
            identity = (status.st_dev, status.st_ino)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from error
            # The holder before us removes the file when it stops. If that fell between our open
            # and our lock, we have locked a file without a name, and must try the new one.
            if cls._identity_of(path) == identity:
                cls.held.add(identity)
                return descriptor, identity
            os.close(descriptor)

    @staticmethod
    def _identity_of(path: str) -> tuple[int, int] | None:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def release(self) -> None:
        if self._descriptor < 0:
            return
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass
        finally:
            self.held.discard(self._identity)
            os.close(self._descriptor)
            self._descriptor = -1


class DiskFilesystem:
    """The operating system's files."""

    __slots__ = ()

    def open_file(self, path: str, *, create: bool = False) -> DiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return DiskFile(path, _opened(os.open, path, flags, 0o644))

    def open_to_read(self, path: str) -> DiskFile:
        return DiskFile(path, _opened(os.open, path, os.O_RDONLY | os.O_CLOEXEC))

    def list_dir(self, path: str) -> list[str]:
        return _opened(os.listdir, path)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size_of(self, path: str) -> int:
        return os.stat(path).st_size

    def make_dir(self, path: str) -> None:
        os.makedirs(path, 0o755, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def make_read_only(self, path: str) -> None:
        os.chmod(path, 0o400)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        with _opened(os.scandir, path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self.remove_tree(entry.path)
                else:
                    self.remove(entry.path)
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        descriptor = _opened(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read_bytes(self, path: str) -> bytes:
        # A file object costs as much as the rest, and a start reads 40,000 files of 10,000 logs.
        descriptor = _opened(os.open, path, os.O_RDONLY | os.O_CLOEXEC)
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

    def lock(self, path: str) -> DiskLock:
        return DiskLock(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def now_ns(self) -> int:
        return time.time_ns()

    def reserve(self, path: str, size: int) -> None:
        descriptor = _opened(os.open, path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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

    def set_modified_ms(self, path: str, ms: int) -> None:
        os.utime(path, ns=(ms * 1_000_000, ms * 1_000_000))
