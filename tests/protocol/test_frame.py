"""The buffer that cuts received bytes into frames."""

from __future__ import annotations

import random

import pytest

from protocol.errors import Malformed
from protocol.frame import INITIAL_BYTES, SHARED_BYTES, FrameBuffer

LIMIT = 10_000_000


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed(frames: FrameBuffer, data: bytes, piece: int) -> list[bytes]:
    """Write the data in pieces of at most this size; every frame that comes out."""
    bodies = []
    view = memoryview(data)
    while view:
        room = frames.room()
        assert len(room) > 0
        count = min(piece, len(room), len(view))
        room[:count] = view[:count]
        view = view[count:]
        frames.received(count)
        while (frame := frames.next_frame()) is not None:
            bodies.append(bytes(frames.data[frame[0] : frame[1]]))
    return bodies


@pytest.mark.parametrize("piece", [1, 3, 4096, 70_000, 10_000_000])
def test_frames_come_out_whole_however_the_bytes_arrive(piece: int) -> None:
    rng = random.Random(piece)
    top = 300 if piece == 1 else 200_000
    bodies = [rng.randbytes(rng.choice([1, 7, 100, rng.randrange(1, top)])) for _ in range(60)]
    frames = FrameBuffer(LIMIT)

    found = feed(frames, b"".join(framed(body) for body in bodies), piece)

    assert found == bodies
    assert frames.buffered == 0


def test_a_length_without_its_bytes_costs_no_memory() -> None:
    frames = FrameBuffer(100_000_000)

    assert feed(frames, (100_000_000).to_bytes(4, "big"), 4) == []
    assert len(frames.room()) > 0

    assert len(frames.data) <= SHARED_BYTES


def test_memory_follows_the_bytes_that_came_not_the_length_that_was_claimed() -> None:
    frames = FrameBuffer(100_000_000)

    feed(frames, (100_000_000).to_bytes(4, "big") + bytes(300_000), 65_536)
    frames.room()

    assert len(frames.data) <= 4 * 300_000


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"\xff\xff\xff\xff", "frame length -1"),
        (b"\x00\x00\x00\x00", "frame length 0"),
        (b"\x7f\xff\xff\xff", "frame length 2147483647"),
        (b"\x16\x03\x01\x02", "TLS"),
        (b"GET / HTTP/1.1", "HTTP"),
        (b"POST", "HTTP"),
    ],
)
def test_a_length_no_frame_can_have_is_refused_with_its_cause(head: bytes, word: str) -> None:
    with pytest.raises(Malformed, match=word):
        feed(FrameBuffer(LIMIT), head, 64)


def test_after_large_frames_the_next_one_starts_at_the_front_and_nothing_is_moved() -> None:
    frames = FrameBuffer(LIMIT)
    body = bytes(900_000)
    feed(frames, framed(body) * 2, 65_536)
    before = frames.data

    feed(frames, framed(body) * 3, 65_536)

    assert frames.data is before
    assert frames.start == frames.end


def test_an_idle_buffer_shrinks_and_one_with_a_frame_under_way_does_not() -> None:
    frames = FrameBuffer(LIMIT)
    feed(frames, framed(bytes(500_000)), 65_536)
    frames.shrink()
    assert len(frames.data) == INITIAL_BYTES

    feed(frames, framed(bytes(500_000))[:-1], 65_536)
    frames.shrink()
    assert len(frames.data) >= 500_000
