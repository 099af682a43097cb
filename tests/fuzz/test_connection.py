"""Requests come out of any bytes, or `Malformed` is raised, and nothing else happens.

`TEST_FUZZ_FACTOR` multiplies the counts, `FUZZ_SEED` gives other frames.
"""

from __future__ import annotations

import os
import struct
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from broker.network.controller_handlers import CONTROLLER_HANDLERS
from broker.network.dispatch import served
from protocol.connection import Routes, ServerConnection
from protocol.errors import Malformed
from protocol.messages.produce import ProduceRequest
from protocol.registry import APIS
from protocol.single_produce import FIRST_VERSION, SingleProduce, reader
from tests.fuzz.frames import Mutator
from tests.protocol.frames import captured_frames

if TYPE_CHECKING:
    from collections.abc import Iterable

SEED = int(os.environ.get("FUZZ_SEED", "20261120"))
FACTOR = int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
WHOLE = 20_000 * FACTOR
BY_BYTE_EVERY = 4
MEASURED = 1_000

#: An element of three bytes on the wire (an entry of AlterClientQuotas that is empty) can become a
#: struct of some 90 bytes with its place in a list; measured are 29 at the worst. The rest is the
#: buffer, which grows by doubling.
MEMORY_MULTIPLE = 32
MEMORY_OF_ANY_FRAME = 16_384

PRODUCE = APIS[0]
MAX_FRAME_BYTES = 1 << 20
ROUTES = Routes({**served(CONTROLLER_HANDLERS), **served()})

Outcome = tuple[list[Any], bool]


def feed(pieces: Iterable[bytes]) -> Outcome:
    """What comes out of a new connection: the requests, and whether it goes on."""
    connection = ServerConnection(ROUTES, max_frame_bytes=MAX_FRAME_BYTES)
    found: list[Any] = []
    try:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                room = connection.room()
                count = min(len(room), len(view))
                assert count > 0, "no room for the next bytes"
                room[:count] = view[:count]
                view = view[count:]
                connection.received(count)
                while (request := connection.next_request()) is not None:
                    found.append(shown(request))
    except Malformed:
        # Not its text: a decoder may step into the next frame before it sees that it was cut.
        return found, False
    finally:
        assert connection.unanswered == len(found)
    return found, True


def shown(request: Any) -> Any:
    """A request in a form that outlives the buffer, made by writing the message again."""
    message = request.message
    body: Any
    if message is None:
        body = None
    elif message.__class__ is SingleProduce:
        body = (
            *(message.acks, message.topic, message.index, bytes(message.records)),
            message.transactional_id,
        )
    else:
        body = request.general_message().encode(request.version)
    return request.route.api.key, request.version, request.correlation_id, request.client_id, body


def in_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.timeout(240 * FACTOR + 60)
def test_spoiled_frames_give_requests_or_malformed_whole_and_byte_by_byte() -> None:
    mutator = Mutator(SEED)
    closed = taken = 0
    for number in range(WHOLE):
        data = mutator.frame()
        if number % 7 == 0:
            data += mutator.random.choice(mutator.seeds)
        try:
            outcome = feed([data])
            if number % BY_BYTE_EVERY == 0:
                assert feed(in_bytes(data)) == outcome
        except Exception as error:
            raise AssertionError(f"seed {SEED}, frame {number}: {data.hex()}") from error
        closed += not outcome[1]
        taken += len(outcome[0])

    # A mutator whose frames all fail, or all pass, would prove nothing.
    assert closed > WHOLE // 5
    assert taken > WHOLE // 5


def test_the_short_way_to_read_a_produce_request_agrees_with_the_long_way() -> None:
    mutator = Mutator(SEED + 3)
    mutator.seeds = [frame.data for frame in captured_frames() if frame.api.key == PRODUCE.key]
    read = 0
    for number in range(60_000 * FACTOR):
        data = mutator.frame()
        if len(data) < 14 or not 3 <= data[7] <= PRODUCE.max_version:
            continue
        version = data[7]
        start = 14 + int.from_bytes(data[12:14], "big") + (version >= PRODUCE.first_flexible)
        # The buffer ends where the body does: reading beyond it is an error.
        body = bytearray(data[start:])
        try:
            short = reader(version)(body, 0, len(body))
        except Exception as error:
            raise AssertionError(f"seed {SEED}, frame {number}: v{version} {body.hex()}") from error
        if short is None:
            continue
        read += 1
        message, stop = ProduceRequest.decoder(version)(body, 0, len(body))
        (topic,) = message.topic_data
        (partition,) = topic.partition_data
        named = topic.topic_id if version >= 13 else topic.name.encode("utf-8", "surrogateescape")
        assert stop == len(body)
        assert short.transactional_id == message.transactional_id
        assert (short.acks, short.topic, short.index) == (message.acks, named, partition.index)
        assert short.records == partition.records
    assert read > 1_500


def test_the_short_way_stops_at_the_end_of_the_buffer_wherever_that_is() -> None:
    refused = 0
    for frame in captured_frames():
        if frame.api.key != PRODUCE.key or frame.version < FIRST_VERSION:
            continue
        for size in range(min(len(frame.body), 200)):
            for last in (b"", b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff" * 5):
                body = bytearray(frame.body[:size] + last)
                short = reader(frame.version)(body, 0, len(body))
                # What was cut off may be put back by chance, in size or in content.
                if short is not None:
                    message, stop = ProduceRequest.decoder(frame.version)(body, 0, len(body))
                    assert stop == len(body)
                    assert short.records == message.topic_data[0].partition_data[0].records
                refused += short is None
    assert refused > 5_000


def test_random_bytes_never_come_through() -> None:
    mutator = Mutator(SEED + 1)
    for number in range(5_000 * FACTOR):
        data = mutator.random.randbytes(mutator.random.randrange(1, 200))
        whole = feed([data])
        if number % BY_BYTE_EVERY == 0:
            assert feed(in_bytes(data)) == whole


def lying_frames(mutator: Mutator) -> Iterable[bytes]:
    """Frames that claim much, and for each API and version one that is as dense as can be."""
    for _ in range(MEASURED):
        yield mutator.frame()
    for key, handler in ROUTES.served.items():
        for version in range(handler.min_version, APIS[key].max_version + 1):
            for filler in (b"\x00", b"\x01", b"\x02"):
                for count in (b"\x00\x00\x1f\x40", b"\xc1\x3e"):
                    body = count + filler * 40_000
                    head = struct.pack(">hhih", key, version, 1, -1)
                    if version >= APIS[key].first_flexible:
                        head += b"\0"
                    yield struct.pack(">i", len(head) + len(body)) + head + body


def test_memory_stays_within_a_small_multiple_of_what_was_sent() -> None:
    frames = list(lying_frames(Mutator(SEED + 2)))
    for data in frames:
        feed([data])
    worst = 0.0
    tracemalloc.start()
    try:
        for data in frames:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            decode_only(data)
            _, peak = tracemalloc.get_traced_memory()
            worst = max(worst, (peak - before - MEMORY_OF_ANY_FRAME) / len(data))
    finally:
        tracemalloc.stop()

    assert worst <= MEMORY_MULTIPLE


def decode_only(data: bytes) -> None:
    connection = ServerConnection(ROUTES, max_frame_bytes=MAX_FRAME_BYTES)
    try:
        connection.receive(data)
    except Malformed:
        return
