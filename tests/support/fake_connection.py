"""A broker inside the test's own process, and connections whose other end is the test.

    with InProcessBroker(tmp_path) as broker:
        client = broker.connect()
        client.feed(frame)
        assert client.writes == [...]

Time passes only in `turn` and `turns_until`: between them the event loop stands still, so a test
decides what a connection has seen when the next thing happens to it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any, cast

from broker.server import start
from config import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from broker.faults.injection import FaultInjection


class FakeTransport:
    """A transport that records what is done to it. Large slices go to a socket pair."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.reading = True
        self.closed = False
        self.aborted = False
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return self.near if name == "socket" else ("127.0.0.1", 1)

    def write(self, data: bytes) -> None:
        assert not self.closed, "a write behind the close"
        self.writes.append(bytes(data))

    def writelines(self, buffers: list[bytes]) -> None:
        self.write(b"".join(bytes(buffer) for buffer in buffers))

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class FakeClient:
    """The other end of one connection."""

    def __init__(self, broker: InProcessBroker, listener: str = "PLAINTEXT") -> None:
        self.transport = FakeTransport()
        self.connection = broker.running.broker.new_connection(listener)
        self.connection.connection_made(cast("asyncio.BaseTransport", self.transport))

    @property
    def writes(self) -> list[bytes]:
        return self.transport.writes

    def feed(self, data: bytes) -> int:
        """Bytes arrive, as many as fit at a time, until reading is paused; how many were taken."""
        taken = 0
        while taken < len(data) and self.transport.reading and not self.transport.closed:
            room = self.connection.get_buffer(-1)
            assert len(room) > 0, "an event loop closes a connection without room"
            count = min(len(room), len(data) - taken)
            room[:count] = data[taken : taken + count]
            taken += count
            self.connection.buffer_updated(count)
        return taken

    def is_read(self) -> bool:
        """Whether more bytes of this client are taken."""
        return self.transport.reading and not self.transport.closed

    def answered(self) -> list[int]:
        """The correlation ids of all answers written so far, in their order; all are whole."""
        sent = b"".join(self.writes)
        ids, position = [], 0
        while position < len(sent):
            size, correlation_id = struct.unpack_from(">ii", sent, position)
            ids.append(correlation_id)
            position += 4 + size
        assert position == len(sent), "an answer is not whole"
        return ids

    def lose(self) -> None:
        """The connection breaks."""
        self.connection.connection_lost(None)
        self.transport.close()
        self.transport.near.close()
        self.transport.far.close()


class InProcessBroker:
    """A started broker on an event loop that the test turns by hand."""

    def __init__(
        self, data: Path, testing: FaultInjection | None = None, /, **settings: str
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self._testing = testing
        overrides = {key.replace("_", "."): value for key, value in settings.items()}
        self._settings = load(
            overrides={
                "log.dirs": str(data),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                **overrides,
            }
        )
        self._clients: list[FakeClient] = []

    def connect(self, listener: str = "PLAINTEXT") -> FakeClient:
        client = FakeClient(self, listener)
        self._clients.append(client)
        return client

    def turn(self, times: int = 1) -> None:
        """Let the event loop run what is due."""
        for _ in range(times):
            self.loop.run_until_complete(asyncio.sleep(0))

    def turn_until(self, condition: Callable[[], bool], *, within_s: float = 60.0) -> None:
        """Let time pass until this holds: threads and timers do their work."""
        deadline_s = self.loop.time() + within_s
        while not condition():
            assert self.loop.time() < deadline_s, "it did not come to be"
            self.loop.run_until_complete(asyncio.sleep(0.002))

    def __enter__(self) -> Self:
        self.running = self.loop.run_until_complete(
            start(self._settings, self.loop, testing=self._testing)
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients:
            if client.connection in self.running.broker.connections:
                client.lose()
        self.loop.run_until_complete(self.running.stop())
        self.turn(3)
        self.loop.close()
