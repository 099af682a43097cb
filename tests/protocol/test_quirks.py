"""Known faults of clients: who has them, and requests with bytes behind their last field."""

from __future__ import annotations

import pytest

from broker.network.dispatch import served
from protocol.connection import Routes, ServerConnection
from protocol.quirks import TRAILING_BYTES, OldEntries, old_entries_read_by

ROUTES = Routes(served())

#: Whole frames as librdkafka of this release sent them to our broker, with what follows the last
#: field.
CAPTURED = [
    ("2.1.0", "0000001a0003000900000005000772646b61666b6100 00000000 01000000", "00"),
    ("2.1.0", "0000001a0003000900000005000772646b61666b6100 00000000 00000000", "000000"),
    ("2.3.0", "000000190003000c00000005000772646b61666b6100 00000000 000000", "000000"),
    ("2.3.0", "000000190003000c00000005000772646b61666b6100 00000000 010000", "010000"),
    ("2.14.0", "000000190003000d00000005000772646b61666b6100 00000000 000000", "000000"),
    ("2.14.0", "000000190003000d00000005000772646b61666b6100 00000000 010000", "010000"),
    ("2.0.2", "0000001a000900070000000d000772646b61666b6100 0267 00000000 0000", "000000"),
    ("2.0.2", "00000015001000040000000b000772646b61666b6100 01 0000", "00"),
    ("2.2.0", "0000001a0033000000000010000772646b61666b6100 02027501 00 010000", "00"),
]

FRAMES = [
    pytest.param(
        bytes.fromhex(frame), len(bytes.fromhex(rest)), id=f"{release} {frame[8:16]} {rest}"
    )
    for release, frame, rest in CAPTURED
]


def receive(frame: bytes) -> int:
    """The bytes that are found behind the last field and are not known."""
    connection = ServerConnection(ROUTES, max_frame_bytes=1 << 20)
    (request,) = connection.receive(frame)
    assert request.message is not None
    return connection.trailing_bytes


@pytest.mark.parametrize(("frame", "rest"), FRAMES)
def test_what_librdkafka_is_known_to_send_too_much_is_read_silently(
    frame: bytes, rest: int
) -> None:
    assert receive(frame) == 0


@pytest.mark.parametrize(("frame", "rest"), FRAMES)
def test_any_other_rest_is_counted(frame: bytes, rest: int) -> None:
    longer = frame + b"\0"
    other = frame[:-1] + b"\x07"

    assert receive(len(frame[3:]).to_bytes(4, "big") + longer[4:]) == rest + 1
    assert receive(other) == rest


def test_each_declared_rest_was_captured_or_differs_in_a_flag() -> None:
    captured = {
        (frame[5], frame[7], bytes.fromhex(rest))
        for frame, rest in ((bytes.fromhex(frame), rest) for _, frame, rest in CAPTURED)
    }
    declared = {(*key, rest) for key, rests in TRAILING_BYTES.items() for rest in rests}

    # Whether of stable offsets only: a consumer that reads committed records asks for them.
    assert declared - captured == {(9, 7, b"\0\1\0")}
    assert captured <= declared


@pytest.mark.parametrize(
    ("name", "version", "read"),
    [
        ("librdkafka", "2.4.0", OldEntries.RIGHT),
        ("librdkafka", "2.5.0", OldEntries.WRONG),
        ("librdkafka", "2.15.0", OldEntries.WRONG),
        ("librdkafka", "2.15.1", OldEntries.RIGHT),
        ("librdkafka", "3.0.0", OldEntries.RIGHT),
        ("librdkafka", "master", OldEntries.UNKNOWN),
        ("confluent-kafka-go", "v2.8.0", OldEntries.WRONG),
        ("confluent-kafka-python", "2.9.0-rdkafka-2.8.0", OldEntries.WRONG),
        ("confluent-kafka-python", "2.5.0-rdkafka-2.4.0", OldEntries.RIGHT),
        ("karafka", "v2.4.0-rdkafka-ruby-v0.16.0-librdkafka-v2.4.0", OldEntries.RIGHT),
        ("ClickHouse", "ClickHouse-25.8.1.1", OldEntries.UNKNOWN),
        ("apache-kafka-java", "2.8.0", OldEntries.RIGHT),
    ],
)
def test_the_release_of_librdkafka_is_found_under_every_name(
    name: str, version: str, read: OldEntries
) -> None:
    assert old_entries_read_by(name, version) is read
