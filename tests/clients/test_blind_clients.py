"""Requests of clients of 0.8 to 0.10, sent without asking for versions: answered in their format.

Their own frames (tests/protocol/corpus) are sent to a running broker, each client's on one
connection, and the answers are read to the last byte.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.protocol.frames import Frame, captured_frames
from tests.support.caller import Caller
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.conftest import OutsideServer
    from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.clients

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10

#: A conversation in its natural order.
ORDER = (METADATA, FIND_COORDINATOR, PRODUCE, LIST_OFFSETS, FETCH)

#: Client, as the corpus names it; topic that its frames name; format in which it can read.
BLIND_CLIENTS = {
    "kafka-python 0.9.5": ("captured-kafka-python-0.9.5", 0),
    "scala 0.8.2.2": ("captured-scala-0.8.2", 0),
    "java 0.8.2.2": ("captured-java-0.8.2", 0),
    "java 0.9.0.1": ("captured-java-0.9.0", 0),
    "java 0.10.0.1": ("captured-java-0.10.0", 1),
    # It asks, and is content with the oldest answer.
    "java 0.10.2.2": ("captured-java-0.10.2", 1),
}

#: Of protocol.md 2.2, what is served before there are groups.
SENT_WITHOUT_ASKING = {
    *((PRODUCE, version) for version in (0, 1, 2)),
    *((FETCH, version) for version in (0, 1, 2, 3)),
    (LIST_OFFSETS, 0),
    *((METADATA, version) for version in (0, 1, 2)),
    (FIND_COORDINATOR, 0),
}


def frames_of(client: str) -> list[Frame]:
    """What it sent, in the order in which it would have."""
    found = [
        frame
        for frame in captured_frames()
        if frame.client.partition(",")[0] == client and frame.api.key in ORDER
    ]
    return sorted(found, key=lambda frame: ORDER.index(frame.api.key))


def test_frames_of_every_version_that_is_sent_without_asking_are_there() -> None:
    found = {(frame.api.key, frame.version) for name in BLIND_CLIENTS for frame in frames_of(name)}

    assert found >= SENT_WITHOUT_ASKING


def test_an_empty_list_of_topics_is_what_the_oldest_metadata_request_asks_with() -> None:
    (frame,) = [frame for frame in frames_of("kafka-python 0.9.5") if frame.api.key == METADATA]

    assert MetadataRequest.decode(frame.version, frame.body).topics == []


@pytest.mark.parametrize("name", BLIND_CLIENTS)
def test_what_a_client_sends_without_asking_is_answered(
    name: str, broker: ServerProcess | OutsideServer
) -> None:
    topic, _ = BLIND_CLIENTS[name]
    with Caller(broker.host, broker.port) as caller:
        # The frames hold records of years ago.
        caller.create_topic(topic, retention_ms="-1")
        # Apache Kafka answers a moment before the topic can be used.
        known = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)])
        while caller.call(known, 4).topics[0].error_code:
            time.sleep(0.05)

    with WireClient(broker.host, broker.port) as wire:
        for frame in frames_of(name):
            wire.send_raw(frame.data)
            CHECKS[frame.api.key](answer_to(frame, wire), topic, name)


def answer_to(frame: Frame, wire: WireClient) -> Any:
    """The decoded answer: none of these versions is flexible."""
    data = wire.recv_frame()
    assert data[:4] == frame.data[8:12], "the correlation id"
    return frame.api.response.decode(frame.version, data[4:])


def check_metadata(answer: Any, topic: str, name: str) -> None:
    assert answer.brokers
    found = [found for found in answer.topics if found.name == topic]
    # An empty list asks a broker of 0.8 for all topics, and one from 0.10 on for none.
    assert len(found) <= 1
    assert all(found.error_code == 0 and found.partitions for found in found)
    if BLIND_CLIENTS[name][1] == 0:
        assert found


def check_coordinator(answer: Any, topic: str, name: str) -> None:
    assert answer.port


def check_produce(answer: Any, topic: str, name: str) -> None:
    ((partition,),) = [found.partition_responses for found in answer.responses]
    assert (partition.index, partition.error_code) == (0, 0)
    assert partition.base_offset >= 0


def check_offsets(answer: Any, topic: str, name: str) -> None:
    partitions = [partition for found in answer.topics for partition in found.partitions]
    assert partitions
    assert all(partition.error_code == 0 for partition in partitions)
    assert all(partition.old_style_offsets or partition.offset >= 0 for partition in partitions)


def check_fetch(answer: Any, topic: str, name: str) -> None:
    found = {
        partition.partition_index: partition
        for response in answer.responses
        for partition in response.partitions
    }
    data = bytes(found[0].records)
    # Offset (8 bytes), length (4), checksum (4), then the format.
    (offset, _length, _checksum, magic) = struct.unpack_from(">qiIb", data)
    assert (found[0].error_code, magic) == (0, BLIND_CLIENTS[name][1])
    assert found[0].high_watermark > offset


CHECKS: dict[int, Callable[[Any, str, str], None]] = {
    METADATA: check_metadata,
    FIND_COORDINATOR: check_coordinator,
    PRODUCE: check_produce,
    LIST_OFFSETS: check_offsets,
    FETCH: check_fetch,
}
