"""`_single` in C against the way in Python, frame by frame and byte by byte."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from protocol import connection
from protocol.connection import Routes, Served, ServerConnection
from protocol.errors import Malformed
from protocol.messages.produce import ProduceRequest
from protocol.registry import APIS
from protocol.single_produce import FIRST_VERSION, SingleAnswer, SingleProduce
from tests.fuzz.frames import Mutator
from tests.protocol.frames import captured_frames

_single = pytest.importorskip("protocol._single", reason="no C compiler has built it")

PRODUCE = APIS[0]
VERSIONS = range(FIRST_VERSION, PRODUCE.max_version + 1)
TOPIC_ID = bytes(range(16))
MAX_FRAME_BYTES = 1 << 20


ROUTES = Routes(
    {key: Served(api, None, api.min_version, api.max_version) for key, api in APIS.items()}
)


def read(data: bytes) -> tuple[list[Any], bool]:
    """The requests in these bytes, and whether the connection goes on."""
    wire = ServerConnection(ROUTES, max_frame_bytes=MAX_FRAME_BYTES)
    found: list[Any] = []
    try:
        # Twice the same: the first of a connection is never read in one call.
        for _ in range(2):
            room = wire.room()
            room[: len(data)] = data
            wire.received(len(data))
            while (request := wire.next_request()) is not None:
                message = request.message
                body: Any = message
                if message.__class__ is SingleProduce:
                    records = bytes(message.records)
                    body = (
                        *(message.acks, message.topic, message.index, records),
                        message.transactional_id,
                    )
                elif message is not None:
                    body = request.general_message().encode(request.version)
                found.append((request.route, request.correlation_id, request.client_id, body))
    except Malformed as error:
        return [*found, str(error)], False
    return found, True


def frame(
    version: int,
    *,
    name: str = "orders",
    records: bytes = b"r" * 70,
    transactional_id: str | None = None,
) -> bytes:
    partition = ProduceRequest.Topic.Partition(index=3, records=memoryview(records))
    topic = ProduceRequest.Topic(name=name, topic_id=TOPIC_ID, partition_data=[partition])
    body = ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=[topic]
    ).encode(version)
    head = version.to_bytes(4, "big") + b"\0\0\0\x09" + b"\0\x04test" + b"\0" * (version >= 9)
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(*, compiled: bool) -> None:
        monkeypatch.setattr(connection, "_read_request", _single.read_request if compiled else None)
        monkeypatch.setattr(connection, "_write_answer", _single.write_answer if compiled else None)

    return use


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 61, 127, 128, 2_000])
@pytest.mark.parametrize("transactional_id", [None, "", "tx", "größe", "x" * 126])
def test_a_whole_frame_is_read_in_one_call(
    version: int, size: int, transactional_id: str | None
) -> None:
    data = frame(version, records=bytes(size), transactional_id=transactional_id)

    found = _single.read_request(bytearray(data), 0, len(data), MAX_FRAME_BYTES)

    end, number, correlation_id, client_id, acks, topic, index, start, stop, of = found
    assert (end, number, correlation_id, client_id) == (len(data), version, 9, b"test")
    assert (acks, topic, index) == (-1, TOPIC_ID if version >= 13 else b"orders", 3)
    assert data[start:stop] == bytes(size)
    assert of == transactional_id


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transactional_id_is_a_view_of_nothing_and_may_be_any_bytes(version: int) -> None:
    text = b"\xff\0tx\xc3".decode("utf-8", "surrogateescape")
    data = bytearray(frame(version, transactional_id=text))

    *_, of = _single.read_request(data, 0, len(data), MAX_FRAME_BYTES)
    data[:] = bytes(len(data))

    assert of == text


@pytest.mark.parametrize("version", range(9, PRODUCE.max_version + 1))
def test_a_transactional_id_with_a_longer_length_is_left_to_the_other_way(version: int) -> None:
    data = bytearray(frame(version, transactional_id="x" * 127))

    assert _single.read_request(data, 0, len(data), MAX_FRAME_BYTES) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_a_frame_that_is_not_whole_or_too_large_is_left_to_the_other_way(
    version: int, transactional_id: str | None
) -> None:
    data = bytearray(frame(version, transactional_id=transactional_id))

    for end in range(len(data)):
        assert _single.read_request(data, 0, end, MAX_FRAME_BYTES) is None
    assert _single.read_request(data, 0, len(data), len(data) - 5) is None


def test_places_outside_of_the_buffer_are_refused() -> None:
    for start, end in ((-1, 5), (0, 11), (6, 5)):
        with pytest.raises(ValueError, match="outside of the buffer"):
            _single.read_request(bytearray(10), start, end, MAX_FRAME_BYTES)
    with pytest.raises(TypeError):
        _single.read_request(b"0123456789", 0, 10, MAX_FRAME_BYTES)


def test_spoiled_frames_are_read_alike_in_both_ways(ways: Any) -> None:
    mutator = Mutator(20261123)
    mutator.seeds = [one.data for one in captured_frames() if one.api.key == PRODUCE.key]
    mutator.seeds += [
        frame(version, transactional_id=of) for version in VERSIONS for of in (None, "tx")
    ]
    taken = 0
    for _ in range(20_000):
        data = mutator.frame()[:2000]
        ways(compiled=True)
        fast = read(data)
        ways(compiled=False)
        assert read(data) == fast, data.hex()
        taken += any(isinstance(one, tuple) and isinstance(one[-1], tuple) for one in fast[0])
    assert taken > 2_000


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", [b"t", b"x" * 126])
def test_the_answer_is_the_same_in_both_ways(ways: Any, version: int, name: bytes) -> None:
    rng = random.Random(version)
    topic = TOPIC_ID if version >= 13 else name
    route = ROUTES.find(PRODUCE.key, version)
    answers = []
    for _ in range(50):
        answer = SingleAnswer(
            topic, rng.randrange(2**31), rng.randrange(2**63), rng.randrange(-1, 2**62), -1
        )
        answer.error_code = rng.randrange(-1, 120)
        answers.append((rng.randrange(-(2**31), 2**31), answer))
    sent = []
    for compiled in (True, False):
        ways(compiled=compiled)
        wire = ServerConnection(ROUTES, max_frame_bytes=MAX_FRAME_BYTES)
        for correlation_id, answer in answers:
            request: Any = SimpleNamespace(route=route, correlation_id=correlation_id)
            wire._encode(request, answer)
        sent.append(b"".join(wire.outgoing()))

    assert sent[0] == sent[1]


def test_an_answer_of_another_shape_is_refused() -> None:
    for version, topic in ((2, b"t"), (14, TOPIC_ID), (9, b"x" * 127), (13, b"t")):
        with pytest.raises(ValueError, match="no answer of this shape"):
            _single.write_answer(bytearray(), version, 1, topic, 0, 0, 0, 0, 0)
