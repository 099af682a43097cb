"""Cutting received bytes into frames: a four-byte length, then that many bytes.

The kernel writes straight into the buffer kept here (`room`, then `received`), and a whole
frame is handed out as two positions in it (`next_frame`), so that a batch is received once and
never copied before it goes to the log.

Rules.

- A view of `data` is valid until the next call of `room`: that call may move what is left over
  to the front, or leave the old buffer for a larger one.
- The buffer grows by doubling as bytes arrive. A peer that announces 100 MB and sends nothing
  costs `INITIAL_BYTES`.
- Small frames share a buffer of at most `SHARED_BYTES`. A single frame that is larger makes it grow
  further, and then no more is read than completes that frame, so that the next one starts at the
  front and nothing has to be moved. So do frames that are read ahead of one that waits.
"""

from __future__ import annotations

from struct import Struct

from protocol.errors import Malformed

LENGTH = Struct(">i")
INITIAL_BYTES = 4096
"""An idle connection costs this much; 100,000 of them must be affordable."""
SHARED_BYTES = 131_072
"""The most that is read at once for small frames: about 5 ms of requests at the very worst."""

_TLS_HELLO = b"\x16\x03"
_HTTP_WORDS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE")


class FrameBuffer:
    """The receiving side of one connection.

    `data[start:end]` is what has been received and not yet handed out.
    """

    __slots__ = ("_needed", "_view", "data", "end", "max_frame_bytes", "min_frame_bytes", "start")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.min_frame_bytes = 1
        self.data = bytearray(INITIAL_BYTES)
        self._view = memoryview(self.data)
        self.start = 0
        self.end = 0
        self._needed = 4

    @property
    def buffered(self) -> int:
        """Bytes received and not yet handed out as frames."""
        return self.end - self.start

    def room(self) -> memoryview:
        """The space for the next bytes; never empty. Invalidates views of earlier frames.

        Whole frames that nobody takes out make the buffer grow: who calls this bounds that, by not
        reading while `buffered` is too large.
        """
        start, end = self.start, self.end
        if start == end:
            self.start = start = self.end = end = 0
        capacity = len(self.data)
        stop = start + self._needed
        if self._needed > SHARED_BYTES and end < stop:
            if stop > capacity:
                self._move(min(self._needed, max(2 * (end - start), capacity)))
                start, end = self.start, self.end
            return self._view[end : start + self._needed]
        if end == capacity or stop > capacity:
            self._move(capacity if start else 2 * capacity)
            end = self.end
        return self._view[end:]

    def received(self, count: int) -> bool:
        """`count` bytes were written into the view that `room` gave; whether `next_frame` may find
        more than it did before."""
        self.end = end = self.end + count
        if end == len(self.data) < SHARED_BYTES and self.start == 0:
            self._move(2 * end)
        return end - self.start >= self._needed

    def next_frame(self) -> tuple[int, int] | None:
        """Start and end in `data` of the next whole frame, or None if more must come first.

        Raises Malformed when the length is not one a frame can have; its text names the usual
        mistakes (TLS or HTTP spoken to this port).
        """
        start = self.start
        have = self.end - start
        if have < 4:
            self._needed = 4
            return None
        size: int = LENGTH.unpack_from(self.data, start)[0]
        if not self.min_frame_bytes <= size <= self.max_frame_bytes:
            raise Malformed(self._why_not(size))
        if have - 4 < size:
            self._needed = size + 4
            return None
        self.start = stop = start + 4 + size
        self._needed = 4
        return start + 4, stop

    def take(self, end: int) -> memoryview:
        """Hand out the next frame, which is whole and ends there; a view of all of `data`."""
        self.start = end
        self._needed = 4
        return self._view

    def shrink(self) -> None:
        """Give back what a busy time made this buffer grow to, if nothing is in it."""
        if self.start == self.end and len(self.data) > INITIAL_BYTES:
            self._replace(bytearray(INITIAL_BYTES))
            self.start = self.end = 0

    def _move(self, capacity: int) -> None:
        """Bring what is left over to the front, of a larger buffer if one is asked for."""
        kept = self.end - self.start
        if capacity > len(self.data):
            fresh = bytearray(capacity)
            fresh[:kept] = self._view[self.start : self.end]
            self._replace(fresh)
        elif self.start:
            self._view[:kept] = self._view[self.start : self.end]
        self.start = 0
        self.end = kept

    def _replace(self, data: bytearray) -> None:
        self.data = data
        self._view = memoryview(data)

    def _why_not(self, size: int) -> str:
        head = bytes(self.data[self.start : self.start + 4])
        if head.startswith(_TLS_HELLO):
            return "a TLS client on a plaintext listener (its hello was read as a frame length)"
        if head in _HTTP_WORDS:
            return "an HTTP client (its request line was read as a frame length)"
        return f"frame length {size}, wanted 1 to {self.max_frame_bytes}"
