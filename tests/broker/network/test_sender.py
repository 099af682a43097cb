"""The sending side of a connection: order, one write for many buffers, back-pressure."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker.fetching.selection import SMALL_SLICE_BYTES
from broker.network.sender import Sender
from broker.workers import Worker
from storage.disk import DiskFilesystem
from storage.slices import FileSlice
from tests.support.fake_connection import FakeTransport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.filesystem import File

CONTENT = os.urandom(1 << 20)
LARGE = SMALL_SLICE_BYTES + 1


class Wire:
    """A sender, its transport, and what has arrived at the other end in the order it came.

    The transport hands bytes to the same socket as the kernel sends file slices to.
    """

    def __init__(self, file: File) -> None:
        self.file = file
        self.loop = asyncio.new_event_loop()
        self.transport = SocketTransport()
        self.worker = Worker(self.loop, "cold")
        self.drained = 0
        self.sender = Sender(
            self.loop,
            cast("asyncio.Transport", self.transport),
            self.worker,
            self._count,
        )
        self.transport.sender = self.sender

    def _count(self) -> None:
        self.drained += 1

    def piece(self, position: int, size: int) -> FileSlice:
        return FileSlice(self.file, position, size)

    def arrived(self) -> bytes:
        """What the peer can read now."""
        data = bytearray()
        while True:
            try:
                data += self.transport.far.recv(1 << 20)
            except BlockingIOError:
                return bytes(data)

    def arrived_in_time(self, size: int) -> bytes:
        """Let the loop turn and the peer read until so many bytes have come."""
        data = b""
        deadline_s = self.loop.time() + 5
        while len(data) < size:
            assert self.loop.time() < deadline_s, f"{len(data)} of {size} bytes"
            self.loop.run_until_complete(asyncio.sleep(0.001))
            data += self.arrived()
            if self.transport.kept:
                self.transport.flush()
        return data

    def close(self) -> None:
        self.sender.close()
        self.worker.stop()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        self.transport.near.close()
        self.transport.far.close()


class SocketTransport(FakeTransport):
    """Writes go to the socket; what it does not take is kept, and the sender is told to pause."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = b""
        self.sender: Sender

    def write(self, data: bytes) -> None:
        super().write(data)
        self.kept += data
        self.flush()

    def flush(self) -> None:
        was_paused = self.sender._paused
        with contextlib.suppress(BlockingIOError):
            while self.kept:
                self.kept = self.kept[self.near.send(self.kept) :]
        if self.kept:
            self.sender.pause()
        elif was_paused:
            self.sender.resume()


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    (tmp_path / "log").write_bytes(CONTENT)
    file = DiskFilesystem().open_file(str(tmp_path / "log"))
    wire = Wire(file)
    yield wire
    wire.close()
    file.close()


def test_bytes_and_small_slices_leave_in_one_write(wire: Wire) -> None:
    wire.sender.send([b"head", wire.piece(10, 100), b"tail"])

    assert wire.arrived() == b"head" + CONTENT[10:110] + b"tail"
    assert wire.transport.writes[0] == b"head" + CONTENT[10:110]
    assert not wire.sender.busy


def test_one_buffer_is_written_as_it_is(wire: Wire) -> None:
    wire.sender.send([b"alone"])

    assert wire.transport.writes == [b"alone"]


@pytest.mark.linux
def test_large_slices_keep_their_place_between_bytes(wire: Wire) -> None:
    wire.sender.send(
        [b"a", wire.piece(0, LARGE), b"b", wire.piece(5, LARGE), wire.piece(0, 3), b"c"]
    )

    expected = b"a" + CONTENT[:LARGE] + b"b" + CONTENT[5 : 5 + LARGE] + CONTENT[:3] + b"c"
    assert wire.arrived_in_time(len(expected)) == expected
    assert b"".join(wire.transport.writes) == CONTENT[:3] + b"c", "what is before a large one"


def test_a_socket_that_is_full_is_waited_for(wire: Wire) -> None:
    pieces = [wire.piece(0, 1 << 20) for _ in range(8)]

    wire.sender.send([*pieces, b"end"])
    assert wire.drained == 0
    expected = CONTENT * 8 + b"end"

    assert wire.arrived_in_time(len(expected)) == expected
    assert not wire.sender.busy
    assert wire.drained >= 1


def test_nothing_is_taken_from_the_queue_while_the_peer_does_not_keep_up(wire: Wire) -> None:
    wire.sender.pause()

    wire.sender.send([b"a", wire.piece(0, LARGE)])
    wire.sender.send([b"b"])
    assert wire.arrived() == b""
    assert wire.sender.busy
    wire.sender.resume()

    assert wire.arrived_in_time(LARGE + 2) == b"a" + CONTENT[:LARGE] + b"b"
    assert wire.drained == 1


@pytest.mark.linux
def test_a_pause_in_the_middle_stops_what_is_behind_it(wire: Wire) -> None:
    class PausesAfterWrite(SocketTransport):
        def write(self, data: bytes) -> None:
            super().write(data)
            wire.sender.pause()

    wire.transport.__class__ = PausesAfterWrite
    wire.sender.send([wire.piece(7, 3), b"a", wire.piece(0, LARGE), b"b"])

    assert wire.arrived() == CONTENT[7:10], "nothing may overtake what the transport still holds"
    wire.sender.resume()
    assert wire.arrived_in_time(LARGE + 2) == b"a" + CONTENT[:LARGE] + b"b"


def test_data_that_is_not_cached_is_read_on_a_thread_and_keeps_its_place(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    def would_block(*_: Any) -> int:
        raise BlockingIOError

    monkeypatch.setattr("broker.network.sender._preadv", would_block)
    monkeypatch.setattr("broker.network.sender._READ_NOWAIT", 8)
    monkeypatch.setattr("broker.network.sender.PIECE_BYTES", 20_000)

    wire.sender.send([b"a", wire.piece(7, 90_000), b"b", wire.piece(0, 5)])
    assert wire.arrived() == b"a"

    expected = CONTENT[7:90_007] + b"b" + CONTENT[:5]
    assert wire.arrived_in_time(len(expected)) == expected


def test_slices_are_let_go_when_sent_and_when_the_peer_is_gone(wire: Wire) -> None:
    sent, left, late = wire.piece(0, 10), wire.piece(0, LARGE), wire.piece(0, 10)
    wire.sender.send([sent])
    wire.sender.pause()
    wire.sender.send([left])
    wire.sender.close()
    wire.sender.send([late])

    for piece in (sent, left, late):
        with pytest.raises(ValueError, match="released"):
            _ = piece.file


def test_a_file_that_is_shorter_than_announced_ends_the_connection(wire: Wire) -> None:
    wire.sender.send([b"head", wire.piece(len(CONTENT) - 10, LARGE)])
    for _ in range(5):
        wire.loop.run_until_complete(asyncio.sleep(0.001))

    assert wire.transport.aborted


def test_a_small_slice_that_is_shorter_than_announced_ends_the_connection(wire: Wire) -> None:
    wire.sender.send([b"head", wire.piece(len(CONTENT) - 10, 100), b"next answer"])
    for _ in range(5):
        wire.loop.run_until_complete(asyncio.sleep(0.001))

    assert wire.transport.aborted
    assert b"next answer" not in b"".join(wire.transport.writes)
