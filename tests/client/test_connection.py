"""One connection to brokers of every age and mood, over real sockets."""

from __future__ import annotations

import socket
import struct
import time
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from client.connection import MAX_ANSWER_BYTES, SILENCE_S, Connection
from client.errors import ConnectionLost, NoVersion
from protocol.client import VERSIONS_0_8, VERSIONS_0_9
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListGroupsResponse
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.scripted_broker import RawServer, ScriptedBroker
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Serve = Callable[[socket.socket], None]

FETCH, LIST_OFFSETS, METADATA, LIST_GROUPS, API_VERSIONS = 1, 2, 3, 16, 18
NO_BROKER = r"what answers at \S+ is not a Kafka broker that can be asked \(security.protocol is"


def connect(server: RawServer, *, timeout_s: float = 5.0, may_be_old: bool = True) -> Connection:
    return Connection(server.host, server.port, timeout_s=timeout_s, may_be_old=may_be_old)


def frames(connection: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    """Key, version and correlation id of each request that comes."""
    with connection.makefile("rb") as stream:
        while head := stream.read(4):
            frame = stream.read(int.from_bytes(head))
            yield *struct.unpack_from(">hh", frame), frame[4:8]


def send(connection: socket.socket, body: bytes) -> None:
    connection.sendall(len(body).to_bytes(4) + body)


def versions(version: int, error_code: int = 0) -> bytes:
    kind = ApiVersionsResponse.ApiVersion
    keys = [kind(api_key=key, min_version=0, max_version=9) for key in (FETCH, METADATA)]
    return ApiVersionsResponse(error_code=error_code, api_keys=keys).encode(version)


# What is no broker.


def closes(connection: socket.socket) -> None:
    connection.recv(4096)


def speaks_http(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def speaks_tls(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x15\x03\x03\x00\x02\x02\x46")


def answers_somebody_else(connection: socket.socket) -> None:
    connection.recv(4096)
    send(connection, b"\x7f" * 4 + versions(3))


def answers_nonsense(connection: socket.socket) -> None:
    connection.recv(4096)
    send(connection, b"\0\0\0\1" + b"\x00\x00\x7f\xff")


def is_silent(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def claims_much(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x7f\xff\xff\xff")
    is_silent(connection)


@pytest.mark.parametrize(
    "serve",
    [closes, speaks_http, speaks_tls, answers_somebody_else, answers_nonsense, claims_much],
)
def test_what_is_no_broker_is_told_in_one_line(serve: Serve) -> None:
    with RawServer(serve) as server, pytest.raises(ConnectionLost, match=NO_BROKER) as raised:
        connect(server)
    assert "\n" not in str(raised.value)


def dribbles(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x00\x00\x10\x00")
    while True:
        connection.sendall(b"\x00")
        time.sleep(0.05)


@pytest.mark.parametrize("serve", [is_silent, dribbles])
def test_a_server_that_says_too_little_is_left_after_the_timeout(serve: Serve) -> None:
    began = time.monotonic()
    with (
        RawServer(serve) as server,
        pytest.raises(ConnectionLost, match=r"^no answer from \S+ to ApiVersions within 0\.4 s$"),
    ):
        connect(server, timeout_s=0.4)
    assert 0.3 < time.monotonic() - began < 3


def test_nobody_at_the_address_is_told() -> None:
    port = free_port()
    with pytest.raises(
        ConnectionLost, match=rf"^cannot connect to 127.0.0.1:{port}: connection refused$"
    ):
        Connection("127.0.0.1", port, timeout_s=5)


def test_a_name_that_no_host_can_have_is_told() -> None:
    wanted = r"^cannot connect to a\.\.b:9092: no host can have that name$"
    with pytest.raises(ConnectionLost, match=wanted):
        Connection("a..b", 9092, timeout_s=5)


# Ages.


def is_of_0_8(connection: socket.socket) -> None:
    for key, version, correlation_id in frames(connection):
        if key == API_VERSIONS:
            return
        assert key == LIST_OFFSETS
        assert version == 32767
        send(connection, correlation_id + ListOffsetsResponse(topics=[]).encode(0))


def is_of_0_9(connection: socket.socket) -> None:
    for key, version, correlation_id in frames(connection):
        if key == LIST_GROUPS:
            assert version == 0
            send(connection, correlation_id + ListGroupsResponse(error_code=0, groups=[]).encode(0))


def is_slow(connection: socket.socket) -> None:
    time.sleep(SILENCE_S + 0.2)
    for key, version, correlation_id in frames(connection):
        if key == LIST_GROUPS:
            send(connection, correlation_id + ListGroupsResponse(error_code=0, groups=[]).encode(0))
        else:
            send(connection, correlation_id + versions(version))


def is_slow_and_of_0_10(connection: socket.socket) -> None:
    time.sleep(SILENCE_S + 0.2)
    for key, version, correlation_id in frames(connection):
        if key == LIST_GROUPS:
            send(connection, correlation_id + ListGroupsResponse(error_code=0, groups=[]).encode(0))
        else:
            send(connection, correlation_id + versions(0, 35 if version else 0))


def test_a_broker_of_0_8_is_known_by_what_it_answers_when_asked_anew() -> None:
    with RawServer(is_of_0_8) as server:
        connection = connect(server)
        assert connection.versions is VERSIONS_0_8
        assert not connection.tells_versions
        assert connection.in_flight == 0
        connection.close()


def test_a_broker_of_0_9_is_known_by_its_answer_to_the_next_question() -> None:
    with RawServer(is_of_0_9) as server:
        connection = connect(server)
        assert connection.versions is VERSIONS_0_9
        assert connection.in_flight == 0
        connection.close()


@pytest.mark.parametrize("serve", [is_slow, is_slow_and_of_0_10])
def test_a_slow_broker_is_not_taken_for_an_old_one(serve: Serve) -> None:
    with RawServer(serve) as server:
        connection = connect(server)
        assert connection.versions == {FETCH: (0, 9), METADATA: (0, 9)}
        assert connection.tells_versions
        assert connection.in_flight == 0
        assert connection.usable
        connection.close()


def test_a_broker_that_has_told_its_versions_is_never_taken_for_an_old_one() -> None:
    with (
        RawServer(is_of_0_8) as server,
        pytest.raises(ConnectionLost, match=r"^lost the connection to .* at ApiVersions"),
    ):
        connect(server, may_be_old=False)


def test_a_version_that_is_missing_is_told_with_what_there_is() -> None:
    with ScriptedBroker({}, {METADATA: (0, 3)}) as server:
        connection = connect(server)
        assert connection.version(MetadataRequest) == 3
        assert connection.offers(MetadataRequest, oldest=3)
        assert not connection.offers(MetadataRequest, oldest=4)
        with pytest.raises(NoVersion, match="speaks versions 0 to 3 of Metadata, wanted one of 4"):
            connection.version(MetadataRequest, 4)
        with pytest.raises(NoVersion, match="speaks no version of Fetch"):
            connection.version(FetchRequest)
        connection.close()


# Answers.


def metadata() -> MetadataResponse:
    return MetadataResponse(brokers=[], topics=[], cluster_id="here")


def coordinator(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(host=request.key, node_id=1, port=2)


def test_answers_to_requests_sent_ahead_are_kept_for_who_asks() -> None:
    with ScriptedBroker({10: coordinator}, {10: (0, 3)}) as server:
        connection = connect(server)
        sent = [connection.send(FindCoordinatorRequest(key=key), 3) for key in ("a", "b", "c")]
        assert connection.in_flight == 3
        for place in (2, 0, 1):
            answer = connection.receive(sent[place], FindCoordinatorResponse)
            assert answer.host == "abc"[place]
        assert connection.in_flight == 0
        connection.close()


def test_answers_that_came_before_a_connection_broke_are_not_lost() -> None:
    def serve(connection: socket.socket) -> None:
        for number, (_, version, correlation_id) in enumerate(frames(connection)):
            if number == 2:
                return
            body = metadata().encode(version) if number else versions(version)
            send(connection, correlation_id + body)

    with RawServer(serve) as server:
        connection = connect(server)
        first, second = (connection.send(MetadataRequest(topics=None), 1) for _ in range(2))
        with pytest.raises(ConnectionLost, match="at Metadata: it was closed by the other side"):
            connection.receive(second, MetadataResponse)
        assert connection.receive(first, MetadataResponse).topics == []
        with pytest.raises(ConnectionLost, match=r"^lost the connection to"):
            connection.receive(second, MetadataResponse)
        assert not connection.usable


def test_what_the_broker_was_asked_to_wait_is_waited_besides() -> None:
    def serve(connection: socket.socket) -> None:
        for key, version, correlation_id in frames(connection):
            if key == API_VERSIONS:
                send(connection, correlation_id + versions(version))
            else:
                time.sleep(0.8)
                send(connection, correlation_id + metadata().encode(version))

    with RawServer(serve) as server:
        connection = connect(server, timeout_s=0.6)
        request = MetadataRequest(topics=None)
        assert connection.call(request, MetadataResponse, newest=1, wait_s=0.6).topics == []
        connection.close()


def test_an_answer_to_another_request_ends_the_connection() -> None:
    def serve(connection: socket.socket) -> None:
        for key, version, correlation_id in frames(connection):
            if key == API_VERSIONS:
                send(connection, correlation_id + versions(version))
            else:
                send(connection, b"\0\0\1\0" + metadata().encode(version))

    with RawServer(serve) as server:
        connection = connect(server)
        with pytest.raises(ConnectionLost, match=r"answered another request than Metadata$"):
            connection.call(MetadataRequest(topics=None), MetadataResponse, newest=1)
        assert not connection.usable


def test_a_connection_that_the_broker_ended_meanwhile_is_seen_before_it_is_used() -> None:
    def serve(connection: socket.socket) -> None:
        for _, version, correlation_id in frames(connection):
            send(connection, correlation_id + versions(version))
            return

    with RawServer(serve) as server:
        connection = connect(server)
        deadline = time.monotonic() + 5
        while connection.usable and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not connection.usable
        connection.close()


def fetched(records: bytes) -> FetchResponse:
    kind = FetchResponse.Topic
    entry = kind.Partition(partition_index=0, error_code=0, high_watermark=1, records=records)
    return FetchResponse(responses=[kind(topic="t", partitions=[entry])])


def test_a_large_answer_is_handed_on_as_a_view_of_what_was_received() -> None:
    content = bytes(range(256)) * (8 << 12)
    with ScriptedBroker({FETCH: lambda _: fetched(content)}, {FETCH: (0, 11)}) as server:
        connection = connect(server)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
        for _ in range(2):
            answer = connection.call(request, FetchResponse, newest=11)
            records = answer.responses[0].partitions[0].records
            assert isinstance(records, memoryview)
            assert isinstance(records.obj, bytearray)
            assert len(records.obj) < len(content) + 200
            assert records == content
        connection.close()


def test_memory_grows_with_what_arrives_and_not_with_what_is_announced() -> None:
    def serve(connection: socket.socket) -> None:
        for key, version, correlation_id in frames(connection):
            if key == API_VERSIONS:
                send(connection, correlation_id + versions(version))
            else:
                connection.sendall(MAX_ANSWER_BYTES.to_bytes(4) + correlation_id + bytes(1 << 20))

    with RawServer(serve) as server:
        connection = connect(server, timeout_s=0.5)
        tracemalloc.start()
        try:
            with pytest.raises(ConnectionLost, match=r"no answer from \S+ to Metadata within"):
                connection.call(MetadataRequest(topics=None), MetadataResponse, newest=1)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8 << 20
