"""Clients that do not read, many of them; and clients that send a byte now and then."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker.network.connection import SLOWEST_BYTES_PER_S
from protocol.messages.metadata import MetadataRequest
from protocol.registry import APIS
from tests.broker.network.test_connection import framed
from tests.support.caller import Caller, Target, batch, fetch_request
from tests.support.compacted import wait_until
from tests.support.fake_connection import InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.broker_process import BrokerProcess

MIB = 1 << 20
BOUND = 8 * MIB
CLIENTS = 60
OLD_FETCH = 2


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"connections.backlog.max.bytes": str(BOUND)}


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def test_many_that_do_not_read_cost_what_is_allowed_for_all_and_hold_up_nobody(
    broker: BrokerProcess,
) -> None:
    with ExitStack() as stack:
        good = stack.enter_context(Caller(broker.host, broker.port))
        good.create_topic("converted")
        assert good.produce("converted", batch(bytes(MIB - 1000))).error_code == 0
        # For so old a reader the answer is made in memory.
        asked = good.frame(fetch_request(Target("converted")), OLD_FETCH, 1)
        assert len(good.fetch("converted", version=OLD_FETCH).records) > MIB - 1000
        before = resident_bytes(broker.pid)

        for number in range(CLIENTS):
            one = stack.enter_context(Caller(broker.host, broker.port))
            one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            one.send_raw(asked * 15)
            if number % 5 == 0:
                assert good.produce("converted", batch(b"v")).error_code == 0
        assert good.fetch("converted", version=OLD_FETCH).error_code == 0

        grown = resident_bytes(broker.pid) - before
        assert grown < 12 * BOUND, f"{CLIENTS} clients could hold 7 MB each and more"
        wait_until(lambda: "connection cut off" in broker.output(), "the line in the log")


def test_a_slow_consumer_of_records_is_not_cut_off(broker: BrokerProcess) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(Caller(broker.host, broker.port))
        first.create_topic("large", max_message_bytes="9000000")
        assert first.produce("large", batch(bytes(8 * MIB))).error_code == 0
        slow = [stack.enter_context(Caller(broker.host, broker.port)) for _ in range(20)]
        asked = [one.send(fetch_request(Target("large")), 12) for one in slow]

        for one, correlation_id in zip(slow, asked, strict=True):
            entry = one.receive(APIS[1], 12, correlation_id).responses[0].partitions[0]
            assert len(entry.records) > 8 * MIB


class Minutes:
    """A broker whose loop is told the time, and looks at its connections every ten seconds."""

    def __init__(self, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = broker.connect()
        self._now_s = broker.loop.time()
        self._connections = broker.running.broker.connections
        for part in (self._connections, self.client.connection):
            monkeypatch.setattr(part, "_loop", self)

    def time(self) -> float:
        return self._now_s

    def pass_by(self, minutes: float) -> None:
        for _ in range(round(minutes * 6)):
            self._now_s += 10
            self._connections.close_idle()

    @property
    def is_open(self) -> bool:
        return not self.client.transport.closed


@pytest.fixture
def minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Minutes]:
    """connections.max.idle.ms is ten minutes, as it is by itself."""
    with InProcessBroker(tmp_path / "data") as running, monkeypatch.context() as patched:
        yield Minutes(running, patched)


def test_a_request_that_drips_is_not_waited_for(minutes: Minutes) -> None:
    minutes.client.feed(struct.pack(">i", 100 * MIB))

    for _ in range(9):
        minutes.pass_by(1)
        minutes.client.feed(b"\0")
    assert minutes.is_open
    for _ in range(2):
        minutes.pass_by(1)
        minutes.client.feed(b"\0")

    assert not minutes.is_open


def test_a_large_request_over_a_slow_link_is_waited_for(minutes: Minutes) -> None:
    minutes.client.feed(struct.pack(">i", 100 * MIB))

    for _ in range(60):
        minutes.pass_by(1)
        minutes.client.feed(bytes(60 * SLOWEST_BYTES_PER_S))

    assert minutes.is_open


def test_a_client_that_rests_between_requests_is_not_taken_for_a_slow_one(
    minutes: Minutes,
) -> None:
    frame = framed(MetadataRequest(topics=[]), 9, 1)

    for _ in range(10):
        minutes.client.feed(frame[:10])
        minutes.pass_by(1)
        minutes.client.feed(frame[10:])
        minutes.pass_by(9)

    assert len(minutes.client.answered()) == 10
    assert minutes.is_open


def test_requests_behind_a_fetch_that_waits_are_not_taken_for_slow_ones(minutes: Minutes) -> None:
    waiting = framed(fetch_request(Target("missing"), max_wait_ms=2_000_000, min_bytes=1), 12, 1)
    minutes.client.feed(waiting)
    minutes.client.feed(framed(MetadataRequest(topics=[]), 9, 2))

    minutes.pass_by(9)
    minutes.client.feed(b"\0")
    minutes.pass_by(9)

    assert minutes.is_open


def test_who_does_not_take_what_it_is_owed_is_cut_off_in_the_end(
    minutes: Minutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, connection = minutes.client.transport, minutes.client.connection
    unsent = [5_000_000]
    monkeypatch.setattr(transport, "get_write_buffer_size", lambda: unsent[0])
    connection.pause_writing()

    for _ in range(30):  # it takes a little every nine minutes
        minutes.pass_by(9)
        unsent[0] -= 1
    assert minutes.is_open
    minutes.pass_by(11)

    assert transport.aborted
