"""The loop's ends of the pipes to a process of ours.

The loop waits for pipes only on some systems. Elsewhere a thread reads, and hands the loop what has
come; a write there may wait for the process to read, which it does all the time.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Protocol

from config.platforms import PORTABLE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

READ_BYTES = 65_536
LAST_BYTES_S = 0.2
"""Time for a thread to read the last that an ended process said."""


class Reader(Protocol):
    """Calls back on the loop with what has come; with nothing, once, at the end."""

    def look(self) -> None:
        """Call back now with what there is."""

    def close(self) -> None:
        """Call back no more, and close the pipe."""


class WatchedReader:
    """A `Reader` whose pipe the loop watches."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pipe: IO[bytes], on_data: Callable[[bytes], None]
    ) -> None:
        self._loop = loop
        self._pipe = pipe
        self._on_data = on_data
        _stop_blocking(pipe)
        loop.add_reader(pipe, self.look)

    def look(self) -> None:
        data: bytes | None = None if self._pipe.closed else self._pipe.read(READ_BYTES)
        if data is None:
            return
        if not data:
            self._loop.remove_reader(self._pipe)
        self._on_data(data)

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe)
            self._pipe.close()


class ThreadedReader:
    """A `Reader` whose pipe a thread waits for."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pipe: IO[bytes], on_data: Callable[[bytes], None]
    ) -> None:
        self._loop = loop
        self._pipe = pipe
        self._on_data = on_data
        self._closed = False
        self._came: deque[bytes] = deque()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._pipe:
            while data := self._pipe.read(READ_BYTES):
                self._tell(data)
        self._tell(b"")

    def _tell(self, data: bytes) -> None:
        self._came.append(data)
        # The loop may be closed: then nobody wants it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        while self._came and not self._closed:
            self._on_data(self._came.popleft())

    def look(self) -> None:
        self._thread.join(LAST_BYTES_S)
        self._hand_over()

    def close(self) -> None:
        self._closed = True  # the thread closes the pipe, which nobody may do while it reads


class WatchedWriter:
    """Sends as fast as the process takes it; what it does not is kept."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pipe: IO[bytes]) -> None:
        self._loop = loop
        self._pipe = pipe
        self._unsent = bytearray()
        _stop_blocking(pipe)

    def send(self, data: bytes) -> None:
        waiting = bool(self._unsent)
        self._unsent += data
        if not waiting:
            self._write()

    def _write(self) -> None:
        try:
            written: int | None = self._pipe.write(self._unsent)
        except OSError:
            self._unsent.clear()  # it has ended, which its output will tell
            written = 0
        del self._unsent[: written or 0]
        if self._unsent:
            self._loop.add_writer(self._pipe, self._write)
        else:
            self._loop.remove_writer(self._pipe)

    def close(self) -> None:
        """End the input of the process."""
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe)
            self._pipe.close()


class WaitingWriter:
    """Sends, and waits for the process to take it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._pipe.write(rest) :]
            except OSError:
                return  # it has ended, which its output will tell

    def close(self) -> None:
        """End the input of the process."""
        self._pipe.close()


def _stop_blocking(pipe: IO[bytes]) -> None:
    if sys.platform != "win32":
        os.set_blocking(pipe.fileno(), False)


if PORTABLE:
    PipeReader: type[ThreadedReader | WatchedReader] = ThreadedReader
    PipeWriter: type[WaitingWriter | WatchedWriter] = WaitingWriter
else:
    PipeReader, PipeWriter = WatchedReader, WatchedWriter
