"""The lock of a data directory: a file that one process at a time has locked."""

from __future__ import annotations

import errno
import os
import struct
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from storage.opening import open_descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        # The JVM's lock is over all of the file, and so over its first byte.
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


if sys.platform == "win32":

    def _wait_for(descriptor: int) -> None:
        raise OSError(errno.ENOSYS, "one process serves a directory here")

else:

    def _wait_for(descriptor: int) -> None:
        # Of the open file, as threads have one each; Kafka does not know of the file.
        fcntl.flock(descriptor, fcntl.LOCK_EX)


if sys.platform == "linux":

    def _lock_description(descriptor: int) -> None:
        # struct flock: type, whence, start, length (0 is all of the file), pid (0 for this kind).
        whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, whole)

else:

    def _lock_description(descriptor: int) -> None:
        raise OSError(errno.ENOSYS, "there are no locks here that processes inherit")


class DiskLock:
    """A POSIX record lock, the kind Apache Kafka's JVM takes; on Windows one of a range, as there.

    `flock` would not conflict with it: two brokers could then share a directory. POSIX locks do
    not conflict within one process either, so the files this process holds are remembered.

    They are not inherited by a fork either. One that is `inherited` is of the open file, a kind of
    Linux's own that conflicts with the others: it is held until the last process that has the file
    open has gone. Only the one that took it may release it, and after the others.
    """

    held: ClassVar[set[tuple[int, int]]] = set()

    def __init__(self, path: str, *, inherited: bool = False) -> None:
        self._path = path
        take = _lock_description if inherited else _lock
        self._descriptor, self._identity = self._acquire(path, take)

    @classmethod
    def _acquire(cls, path: str, take: Callable[[int], None]) -> tuple[int, tuple[int, int]]:
        while True:
            # Looked at before it is opened: closing any descriptor of a file gives up all the
            # process's POSIX locks on it, and somebody here may hold one.
            if cls._identity_of(path) in cls.held:
                raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
            descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT, 0o644)
            status = os.fstat(descriptor)
            identity = (status.st_dev, status.st_ino)
            try:
                take(descriptor)
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


@contextmanager
def holding(path: str) -> Iterator[None]:
    """Hold a file while the block runs. Others wait for it as long as it takes; the end of a
    process ends its turn."""
    descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)
