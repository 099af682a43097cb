"""A file system with faults that a test asks for: no room, and calls that fail or are slow.

What the disk is asked goes through the engine as requests do: `WRITE` and `SYNC` are its calls, and
the folder of a partition is its place.
"""

from __future__ import annotations

import errno
import os
from threading import Lock
from typing import TYPE_CHECKING, Any

from broker import clock
from broker.faults.engine import FULL, SLOW, SYNC, WRITE, Call
from storage.filesystem import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.faults.engine import Engine, Place
    from storage.filesystem import File, Filesystem

    Bytes = bytes | bytearray | memoryview


def place_of(path: str) -> Place:
    """The topic and the partition whose folder is in this path; no topic, if none is."""
    for name in reversed(path.split("/")):
        topic, separator, number = name.rpartition("-")
        if separator and topic and number.isdigit():
            return topic, int(number)
    return "", None


class FaultyFile:
    """An open file. `check` is called with WRITE or SYNC and the path, and raises OSError. What is
    neither a write nor a sync is the file's own."""

    def __init__(self, file: File, path: str, check: Callable[[str, str], None]) -> None:
        self._file = file
        self._path = path
        self._check = check

    def write_at(self, buffers: Sequence[Bytes], position: int) -> None:
        self._check(WRITE, self._path)
        self._file.write_at(buffers, position)

    def sync(self) -> None:
        self._check(SYNC, self._path)
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FaultyFilesystem:
    """Another file system with the disk's faults of an engine before it. Any thread may use it."""

    def __init__(
        self, files: Filesystem, engine: Engine, sleep: Callable[[float], None] = clock.sleep
    ) -> None:
        """`sleep` is called by the thread that is to wait, with seconds."""
        self._files = files
        self._engine = engine
        self._sleep = sleep
        self._lock = Lock()

    def open_file(self, path: str, *, create: bool = False) -> Any:
        if create and self._engine.has_faults and not self._files.exists(path):
            self._check(WRITE, path)
        return FaultyFile(self._files.open_file(path, create=create), path, self._check)

    def make_dir(self, path: str) -> None:
        self._check(WRITE, path)
        self._files.make_dir(path)

    def reserve(self, path: str, size: int) -> None:
        self._check(WRITE, path)
        self._files.reserve(path, size)

    def sync_dir(self, path: str) -> None:
        self._check(SYNC, path)
        self._files.sync_dir(path)

    def write_atomic(self, path: str, data: bytes) -> None:
        write_atomic(self, path, data)

    def free_bytes(self, path: str) -> int:
        return 0 if self._engine.stands(FULL) else self._files.free_bytes(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def _check(self, call: str, path: str) -> None:
        if not self._engine.has_faults:
            return
        with self._lock:  # a fault that acts once acts on one thread
            hit = self._engine.meet(Call(call, "", (place_of(path),)))
        if hit is None:
            return
        fault = hit.fault
        if fault.disk == SLOW:
            self._sleep(fault.value / 1000)
            return
        number = errno.ENOSPC if fault.disk == FULL else errno.EIO
        raise OSError(number, f"{os.strerror(number)} (fault {fault.number})", path)
