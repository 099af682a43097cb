"""Frames that real clients sent: understood, and written back as they were."""

from __future__ import annotations

import pytest

from broker.network.controller_handlers import CONTROLLER_HANDLERS
from broker.network.dispatch import served
from protocol import reference
from protocol.connection import Routes, ServerConnection
from tests.protocol.frames import FOLDER, Frame, captured_frames

FRAMES = [pytest.param(frame, id=str(frame)) for frame in captured_frames()]
ROUTES = Routes({**served(CONTROLLER_HANDLERS), **served()})


def test_every_client_and_every_kind_of_request_is_there() -> None:
    frames = captured_frames()

    clients = {frame.client.split(" ")[0] for frame in frames}
    assert clients == {"aiokafka", "confluent-kafka", "java", "kafka-python", "kafkajs", "scala"}
    assert {frame.api.key for frame in frames} >= {0, 1, 2, 3, 18, 19, 20, 21, 22, 32, 37, 60, 75}
    assert {frame.api.key for frame in frames} >= {*range(8, 17), 42, 47, 55, 59, 68, 69}
    assert {frame.api.key for frame in frames} >= {35, 43, 45, 46, 48, 49, 50, 51, 57}
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        assert any(frame.client.endswith(codec) and frame.api.key == 0 for frame in frames)


def test_each_frame_lies_in_the_file_of_its_api_and_version() -> None:
    for path in FOLDER.glob("*.txt"):
        for line in path.read_text(encoding="utf-8").splitlines():
            frame = Frame("", bytes.fromhex(line.rpartition(": ")[2]))
            assert f"{frame.api.module}_v{frame.version}" == path.stem
            assert int.from_bytes(frame.data[:4], "big") == len(frame.data) - 4


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_is_one_request_and_nothing_of_it_is_unknown(frame: Frame) -> None:
    connection = ServerConnection(ROUTES, max_frame_bytes=1 << 20)

    (request,) = connection.receive(frame.data)

    assert request.route.api.key == frame.api.key
    assert request.version == frame.version
    assert request.correlation_id == int.from_bytes(frame.data[8:12], "big", signed=True)
    # The producer in Scala sends an empty name unless it is told one.
    assert request.client_id or frame.client.startswith("scala")
    assert (connection.trailing_bytes, connection.buffered) == (0, 0)


@pytest.mark.parametrize("frame", FRAMES)
def test_a_body_is_written_back_as_the_client_wrote_it(frame: Frame) -> None:
    message = frame.api.request.decode(frame.version, frame.body)

    assert message.encode(frame.version) == frame.body
    assert reference.decode(frame.api.request, frame.version, frame.body) == message
    assert reference.encode(message, frame.version) == frame.body
