"""The sending side of one connection: an ordered queue of bytes and file slices, and one pump.

- Bytes, and slices small enough to be read into memory, go out by one `writelines`.
- Larger slices go from file to socket by `sendfile` on a duplicate of the socket, which is allowed
  only while the transport holds nothing unsent, or it would overtake what was written before. The
  bytes in front of one go the same way, and the kernel keeps them until the slice follows: a
  client that sleeps is woken once for both.
- Data that is not in the page cache is read on a worker thread, so that a cold read never stalls
  the loop. So are larger slices while there is no descriptor left for the duplicate.
- Nothing more is taken from the queue while the peer does not keep up. The queue itself holds
  slices, not their bytes, and the connection stops handling requests while it is not empty.
- Over TLS nothing goes from file to socket: larger slices are read and encrypted a piece at a time,
  and other connections have their turn in between. So it is where the system has no `sendfile`.

Files are never mapped: a file truncated under a mapping kills the process.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from broker import logs
from broker.fetching.selection import SMALL_SLICE_BYTES
from config.platforms import PORTABLE
from storage.slices import FileSlice

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.workers import Worker

PIECE_BYTES = 262_144
"""Bytes read at a time from a file that is not in the page cache, or is not sent by the kernel: for
TLS they are encrypted by one call, in 0.2 ms."""
PIECES_AT_ONCE = 4
"""Pieces that one connection is given before others have their turn."""

_READ_NOWAIT = 0 if PORTABLE else getattr(os, "RWF_NOWAIT", 0)
_preadv: Any = getattr(os, "preadv", None)
_sendfile: Any = None if PORTABLE else getattr(os, "sendfile", None)
_MORE_FOLLOWS = getattr(socket, "MSG_MORE", 0)


class Sender:
    """Sends buffers in order; `drained` is called when all of them have left the queue."""

    __slots__ = (
        "_drained",
        "_duplicate",
        "_in_pieces",
        "_loop",
        "_paused",
        "_queue",
        "_transport",
        "_waiting",
        "_worker",
        "closed",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        worker: Worker,
        drained: Callable[[], None],
        *,
        tls: bool = False,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._worker = worker
        self._drained = drained
        self._queue: deque[Any] = deque()
        self._in_pieces = tls or _sendfile is None
        self._paused = False
        self._waiting = False
        self._duplicate: socket.socket | None = None
        self.closed = False
        # With 0 the transport tells us of every byte that it could not send at once, which is what
        # the rule about sendfile above needs. Over TLS both event loops would pause for ever at 0.
        transport.set_write_buffer_limits(high=int(tls), low=0)

    @property
    def busy(self) -> bool:
        """Something has not been handed to the kernel yet."""
        return self._paused or bool(self._queue)

    @property
    def held_bytes(self) -> int:
        """Memory of what has not been handed to the kernel."""
        queued = sum(len(item) for item in self._queue if item.__class__ is not FileSlice)
        return self._transport.get_write_buffer_size() + queued

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were not handed to the kernel yet, in memory or not."""
        return self._transport.get_write_buffer_size() + sum(map(len, self._queue))

    def send(self, buffers: list[Any]) -> None:
        """Send these, after everything given before."""
        if len(buffers) == 1 and not (self._queue or self._paused or self.closed):
            (only,) = buffers
            if only.__class__ is not FileSlice:
                self._transport.write(only)
                return
        if self.closed:
            for buffer in buffers:
                if buffer.__class__ is FileSlice:
                    buffer.release()
            return
        self._queue.extend(buffers)
        self._pump()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._pump()
        if not self.busy:
            self._drained()

    def close(self) -> None:
        """Forget what has not been sent; the peer is gone."""
        self.closed = True
        # Else the connection would be garbage that only the collector's last round finds.
        self._drained = _nobody_asks
        self._stop_watching()
        if self._duplicate is not None:
            self._duplicate.close()
            self._duplicate = None
        for item in self._queue:
            if item.__class__ is FileSlice:
                item.release()
        self._queue.clear()

    def _pump(self) -> None:
        queue = self._queue
        pieces = 0
        while queue and not self._paused and not self._waiting:
            ready: list[Any] = []
            while queue and queue[0].__class__ is not FileSlice:
                ready.append(queue.popleft())
            if not queue:
                self._transport.writelines(ready)
                return
            piece = queue[0]
            if not self._is_cached(piece) or not (
                piece.size <= SMALL_SLICE_BYTES or self._in_pieces or self._has_own_socket()
            ):
                if ready:
                    self._transport.writelines(ready)
                if not self._paused:
                    self._read_on_worker(piece)
            elif piece.size <= SMALL_SLICE_BYTES:
                queue.popleft()
                self._send_small(ready, piece)
            elif self._in_pieces:
                self._send_piece(ready, piece)
                pieces += 1
                if pieces == PIECES_AT_ONCE:
                    break
            elif not ready or self._send_ahead(b"".join(ready)):
                self._send_large(piece)
        if pieces == PIECES_AT_ONCE and self.busy and not self._paused and not self._waiting:
            self._waiting = True
            self._loop.call_soon(self._resume)

    def _send_small(self, ready: list[Any], piece: FileSlice) -> None:
        try:
            data = piece.read()
        except OSError as error:
            data = _unread(piece, error)
        if len(data) < piece.size:
            self._give_up()
        else:
            ready.append(data)
            self._transport.writelines(ready)
        piece.release()

    def _send_piece(self, ready: list[Any], piece: FileSlice) -> None:
        try:
            data = piece.file.pread(min(piece.size, PIECE_BYTES), piece.position)
        except OSError as error:
            data = _unread(piece, error)
        ready.append(data)
        self._transport.writelines(ready)
        self._sent(piece, len(data))

    def _send_ahead(self, data: bytes) -> bool:
        """Send the bytes in front of a large slice; whether the slice may follow now."""
        try:
            sent = self._own_socket().send(data, _MORE_FOLLOWS)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._give_up()
            return False
        if sent < len(data):
            self._queue.appendleft(data[sent:])
            self._watch()
            return False
        return True

    def _send_large(self, piece: FileSlice) -> None:
        out, file = self._own_socket().fileno(), piece.file.fileno()
        try:
            sent = _sendfile(out, file, piece.position, piece.size)
        except (BlockingIOError, InterruptedError):
            self._watch()
            return
        except OSError as error:
            if error.errno == errno.EIO:
                _unread(piece, error)
            self._give_up()
            return
        self._sent(piece, sent)
        if self._queue and self._queue[0] is piece:
            # The socket took less than all of it, so it is full.
            self._watch()

    def _has_own_socket(self) -> bool:
        """Whether there is a duplicate of the transport's socket, which the transport would not let
        us use. There is none while the process can have no more descriptors."""
        if self._duplicate is None:
            original = self._transport.get_extra_info("socket")
            try:
                self._duplicate = socket.socket(fileno=os.dup(original.fileno()))
            except OSError:
                return False
            self._duplicate.setblocking(False)
        return True

    def _own_socket(self) -> socket.socket:
        assert self._duplicate is not None
        return self._duplicate

    def _sent(self, piece: FileSlice, count: int) -> None:
        if count == 0:
            self._give_up()
            return
        piece.position += count
        piece.size -= count
        if piece.size == 0:
            self._queue.popleft()
            piece.release()

    def _give_up(self) -> None:
        """Nothing more can be sent: the socket failed, or a file is shorter than announced.

        The pump rests until the transport says that it is lost.
        """
        self._waiting = True
        self._transport.abort()

    def _watch(self) -> None:
        self._waiting = True
        self._loop.add_writer(self._own_socket().fileno(), self._writable)

    def _stop_watching(self) -> None:
        if self._waiting and self._duplicate is not None:
            self._loop.remove_writer(self._duplicate.fileno())

    def _writable(self) -> None:
        self._loop.remove_writer(self._own_socket().fileno())
        self._resume()

    def _resume(self) -> None:
        if self.closed:
            return
        self._waiting = False
        self._pump()
        if not self.busy:
            self._drained()

    def _is_cached(self, piece: FileSlice) -> bool:
        """Whether both ends of the slice are in the page cache; a probe costs less than 1 us."""
        if not _READ_NOWAIT:
            return True
        probe = bytearray(1)
        try:
            fd = piece.file.fileno()
            _preadv(fd, [probe], piece.position, _READ_NOWAIT)
            _preadv(fd, [probe], piece.position + piece.size - 1, _READ_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _read_on_worker(self, piece: FileSlice) -> None:
        self._waiting = True
        size = min(piece.size, PIECE_BYTES)
        file, position = piece.file, piece.position

        def read() -> bytes:
            try:
                return file.pread(size, position)
            except OSError as error:
                return _unread(piece, error)

        def done(data: bytes) -> None:
            if self.closed:
                return
            if not data:
                self._give_up()
                return
            self._transport.write(data)
            self._sent(piece, len(data))
            self._resume()

        self._worker.run(read, done)


def _unread(piece: FileSlice, error: OSError) -> bytes:
    """Say in the log that announced bytes can't be read; nothing is what there is of them."""
    logs.error_once_a_minute("records can't be read", str(error), repr(piece.file))
    return b""


def _nobody_asks() -> None:
    """The connection is closed."""
