"""A file system that reads and writes no more bytes in a second than it is told to.

For work in a process of its own: who is too fast is made to wait.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from broker import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.filesystem import File, Filesystem

    Bytes = bytes | bytearray | memoryview

BURST_S = 0.05
"""Debts below this are not slept off: sleeps are not exact, and cost more than they save."""


class Pace:
    """A limit on bytes per second; `None` is no limit."""

    def __init__(
        self,
        bytes_per_second: float | None,
        *,
        now_s: Callable[[], float] = clock.monotonic_s,
        sleep: Callable[[float], Any] | None = None,
    ) -> None:
        self._rate = bytes_per_second
        self._now_s = now_s
        self._sleep = sleep or threading.Event().wait
        self._even_at_s = now_s()

    def passed(self, size: int) -> None:
        """Wait as long as it takes for these bytes to be within the limit."""
        if self._rate is None:
            return
        now_s = self._now_s()
        # Time that nothing passed in is not saved up for later.
        self._even_at_s = max(self._even_at_s, now_s) + size / self._rate
        if self._even_at_s - now_s > BURST_S:
            self._sleep(self._even_at_s - now_s)


class PacedFile:
    """A file whose reads and writes count."""

    __slots__ = ("_file", "_pace")

    def __init__(self, file: File, pace: Pace) -> None:
        self._file = file
        self._pace = pace

    def pread(self, size: int, position: int) -> bytes:
        data = self._file.pread(size, position)
        self._pace.passed(len(data))
        return data

    def write_at(self, buffers: Sequence[Bytes], position: int) -> None:
        self._file.write_at(buffers, position)
        self._pace.passed(sum(map(len, buffers)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class PacedFilesystem:
    """Another file system with a limit on what passes through its open files, all together."""

    def __init__(self, files: Filesystem, bytes_per_second: float | None) -> None:
        self._files = files
        self._pace = Pace(bytes_per_second)

    def open_file(self, path: str, *, create: bool = False) -> Any:
        return PacedFile(self._files.open_file(path, create=create), self._pace)

    def open_to_read(self, path: str) -> Any:
        return PacedFile(self._files.open_to_read(path), self._pace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)
