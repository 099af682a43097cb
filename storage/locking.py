"""The lock of a data directory: a file that one process at a time has locked."""

from __future__ import annotations

import errno
import os
import sys
from typing import ClassVar

from storage.opening import open_descriptor

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        # The JVM's lock is over all of the file, and so over its first byte.
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class DiskLock:
    """A POSIX record lock, the kind Apache Kafka's JVM takes; on Windows one of a range, as there.

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
            descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT, 0o644)
            status = os.fstat(descriptor)
            identity = (status.st_dev, status.st_ino)
            try:
                _lock(descriptor)
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
