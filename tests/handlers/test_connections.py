"""Connections over a real socket: what they may do and what closes them."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from pathlib import Path

import pytest

from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.registry import APIS
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, Target, batch, fetch_request, produce_request
from tests.support.compacted import wait_until
from tests.support.wire_client import ConnectionClosed

METADATA = APIS[3]
MIB = 1 << 20
NOTHING = MetadataRequest(topics=[])


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.mark.parametrize("client_id", [None, b"", b"x" * 32_000, b"\xff\xfe\x80", "zoë".encode()])
@pytest.mark.parametrize("version", [1, 12])
def test_any_client_id_is_taken(caller: Caller, client_id: bytes | None, version: int) -> None:
    head = struct.pack(">hhi", 3, version, 9)
    head += b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    body = (b"\0" if version >= 9 else b"") + NOTHING.encode(version)

    caller.send_raw(struct.pack(">i", len(head) + len(body)) + head + body)

    assert caller.receive(METADATA, version, 9).brokers


def test_unknown_tags_are_stepped_over_in_the_header_and_in_every_struct(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    three_tags = b"\x03" + b"\x05\x01x" + b"\x64\x00" + b"\xe8\x07\x03abc"
    head = struct.pack(">hhih", 3, 12, 4, -1) + three_tags
    name = topic.encode()
    entry = bytes(16) + bytes([len(name) + 1]) + name + three_tags
    body = b"\x02" + entry + b"\x00" + b"\x00" + three_tags

    caller.send_raw(struct.pack(">i", len(head) + len(body)) + head + body)

    answer = caller.receive(METADATA, 12, 4)
    assert [(found.name, found.error_code) for found in answer.topics] == [(topic, 0)]


def test_bytes_behind_the_last_field_are_ignored(caller: Caller) -> None:
    frame = caller.frame(NOTHING, 8, 1)[4:] + b"trailing"

    caller.send_raw(struct.pack(">i", len(frame)) + frame)

    assert caller.receive(METADATA, 8, 1).brokers


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"\xff\xff\xff\xff", id="negative length"),
        pytest.param(b"\0\0\0\0", id="length 0"),
        pytest.param(struct.pack(">i", 104_857_601), id="length above the maximum"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(bytes.fromhex("16030100c8010000c40303") + bytes(100), id="TLS hello"),
        pytest.param(struct.pack(">ihhih", 10, 3, 1, 1, 500), id="client id beyond the frame"),
        pytest.param(struct.pack(">ihhi", 8, 3, 1, 1), id="header cut"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1), id="array of 2^31 - 1"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 1, 1, -1, -2), id="array count -2"),
        pytest.param(
            struct.pack(">ihhih", 16, 3, 9, 1, -1) + b"\0\xff\xff\xff\xff\x0f", id="compact count"
        ),
        pytest.param(
            struct.pack(">ihhih", 17, 3, 9, 1, -1) + b"\0\xff\xff\xff\xff\xff\x01", id="long varint"
        ),
        pytest.param(struct.pack(">ihhih", 13, 3, 9, 1, -1) + b"\1\0\x7f", id="tag beyond the end"),
        pytest.param(struct.pack(">ihhihih", 16, 3, 1, 1, -1, 1, 50), id="body cut"),
    ],
)
def test_malformed_bytes_close_the_connection_after_what_is_owed_and_with_a_fin(
    caller: Caller, garbage: bytes
) -> None:
    caller.send_raw(caller.frame(NOTHING, 12, 1) + garbage)

    assert caller.receive(METADATA, 12, 1).brokers
    with pytest.raises(ConnectionClosed, match="after 0"):
        caller.recv_frame()


def test_tls_and_http_clients_get_a_hint_in_the_log(broker: BrokerProcess) -> None:
    for hello in (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GET / HTTP/1.1\r\n\r\n"):
        with Caller(broker.host, broker.port) as caller:
            caller.send_raw(hello)
            assert caller.closed_by_server()

    hints = ("a TLS client on a plaintext listener", "an HTTP client")
    wait_until(lambda: all(hint in broker.output() for hint in hints), "both hints in the log")


def test_a_frame_may_come_byte_by_byte(caller: Caller) -> None:
    for byte in caller.frame(NOTHING, 12, 1):
        caller.send_raw(bytes([byte]))

    assert caller.receive(METADATA, 12, 1).brokers


def test_announced_frames_that_never_come_cost_no_memory(broker: BrokerProcess) -> None:
    before = resident_bytes(broker.pid)
    silent = [socket.create_connection((broker.host, broker.port)) for _ in range(50)]
    try:
        for connection in silent:
            connection.sendall(struct.pack(">i", 100 * MIB) + b"x" * 100)
        time.sleep(0.3)
        after = resident_bytes(broker.pid)
    finally:
        for connection in silent:
            connection.close()

    assert after - before < 10 * MIB


def test_half_closing_still_gets_what_is_owed(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    caller.send_raw(
        caller.frame(produce_request((topic, 0, batch(b"a"))), 9, 1) + caller.frame(NOTHING, 12, 2)
    )
    caller.socket.shutdown(socket.SHUT_WR)

    assert caller.receive(APIS[0], 9, 1).responses[0].partition_responses[0].error_code == 0
    assert caller.receive(METADATA, 12, 2).brokers
    assert caller.closed_by_server()


def test_half_closing_drops_a_fetch_that_waits(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    caller.send(fetch_request(Target(topic), max_wait_ms=30_000), 12)
    caller.see_nothing_come()

    caller.socket.shutdown(socket.SHUT_WR)

    started_s = time.monotonic()
    assert caller.closed_by_server()
    assert time.monotonic() - started_s < 5


def test_a_client_that_leaves_while_it_waits_is_forgotten(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    for _ in range(20):
        with Caller(broker.host, broker.port) as leaving:
            leaving.send(fetch_request(Target(topic), max_wait_ms=30_000), 12)
            leaving.see_nothing_come(0.01)

    assert caller.produce(topic, batch(b"a")).error_code == 0
    assert caller.values(topic) == [b"a"]


def test_a_client_that_resets_in_the_middle_of_a_large_answer_harms_nobody(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, max_message_bytes="9000000")
    caller.produce(topic, batch(b"x" * 8_000_000))
    for _ in range(10):
        with Caller(broker.host, broker.port) as leaving:
            leaving.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            for _ in range(3):
                leaving.send(fetch_request(Target(topic)), 12)
            leaving.socket.recv(1000)

    assert len(caller.fetch(topic).records) > 8_000_000


def test_a_reader_that_does_not_read_costs_no_memory_and_delays_nobody(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, max_message_bytes="9000000")
    caller.produce(topic, batch(b"x" * 8_000_000))
    caller.fetch(topic)
    before = resident_bytes(broker.pid)
    slow = [Caller(broker.host, broker.port) for _ in range(10)]
    try:
        for reader in slow:
            for number in range(10):
                reader.send_raw(reader.frame(fetch_request(Target(topic)), 12, number))
        time.sleep(0.3)
        started_s = time.monotonic()
        assert caller.produce(topic, batch(b"y")).error_code == 0
        assert time.monotonic() - started_s < 2
        grown = resident_bytes(broker.pid) - before

        for number in range(10):
            entry = slow[0].receive(APIS[1], 12, number).responses[0].partitions[0]
            assert len(entry.records) > 8_000_000
    finally:
        for reader in slow:
            reader.close()

    assert grown < 20 * MIB, "100 answers of 8 MB are owed; none of them may be in memory"


def test_what_is_read_ahead_of_a_waiting_fetch_is_bounded(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    before = resident_bytes(broker.pid)
    flood = caller.frame(produce_request((topic, 0, batch(b"x" * 900_000))), 9, 2)
    with Caller(broker.host, broker.port) as pushing:
        pushing.send(fetch_request(Target(topic), max_wait_ms=2_000), 12)
        pushing.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            for _ in range(100):
                pushing.socket.sendall(flood)
        grown = resident_bytes(broker.pid) - before

    assert grown < 40 * MIB, "90 MB were offered behind a fetch that waits"


def test_hundreds_of_requests_in_one_write_are_answered_in_order(caller: Caller) -> None:
    ids = range(1000)

    caller.send_raw(b"".join(caller.frame(ApiVersionsRequest(), 0, number) for number in ids))

    for number in ids:
        assert caller.receive(APIS[18], 0, number).error_code == 0


def test_connections_above_the_limit_of_their_address_are_closed(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", settings={"max.connections.per.ip": "2"}) as limited,
        Caller(limited.host, limited.port) as first,
        Caller(limited.host, limited.port) as second,
    ):
        assert first.call(NOTHING).brokers
        assert second.call(NOTHING).brokers
        with Caller(limited.host, limited.port) as third:
            assert third.closed_by_server()
        assert first.call(NOTHING).brokers
