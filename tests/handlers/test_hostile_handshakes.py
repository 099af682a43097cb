"""Clients that stall, spoil or leave TLS and SASL midway, and one that reads TLS slowly."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import ssl
import struct
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.registry import APIS
from tests.support.caller import Caller, Target, batch, fetch_request, records_in
from tests.support.secured import SecuredBroker, authenticate, shake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.wire_client import WireClient

AUTHENTICATING_MAX = 20
STALLED = 120
SPOILED = 400
AT_ONCE = 16
"""Fewer than may be on their way at once."""
ALICE = b"\0alice\0alice-secret"
SLICE = 900_000
SLICES = 12
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "connections.authenticating.max": str(AUTHENTICATING_MAX),
        "connection.failed.authentication.delay.ms": "10",
        "connections.authentication.timeout.ms": "60000",
    }
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as broker:
        yield broker
        said = broker.output()
        assert "Traceback" not in said, said[-3000:]


class Handshake:
    """The client's side of TLS, in memory."""

    def __init__(self, broker: SecuredBroker) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = broker.context().wrap_bio(
            self._incoming, self._outgoing, server_hostname=broker.host
        )

    def flight(self, received: bytes = b"") -> bytes:
        """What is sent after what was received: with nothing, the hello."""
        self._incoming.write(received)
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()


def is_served(client: WireClient) -> bool:
    return bool(client.call(MetadataRequest(topics=[]), 9).brokers)


def comes_in(broker: SecuredBroker, protocol: str) -> WireClient:
    client = broker.connect(protocol)
    if protocol.startswith("SASL"):
        shake(client, "PLAIN")
        assert authenticate(client, ALICE).error_code == 0
    assert is_served(client)
    return client


def is_open(one: socket.socket) -> bool:
    """Whether the server has not closed it."""
    ready, _, _ = select.select([one], [], [], 0)
    if not ready:
        return True
    try:
        return one.recv(1 << 16) != b""
    except ConnectionResetError:
        return False


def ended(one: socket.socket) -> bool:
    """Whether the server ends it, whatever it says before."""
    try:
        while one.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def files_open(broker: SecuredBroker) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


def in_time(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def silent(broker: SecuredBroker, protocol: str) -> socket.socket:
    return broker.socket(protocol)


def with_half_a_hello(broker: SecuredBroker, protocol: str) -> socket.socket:
    one = broker.socket(protocol)
    one.sendall(Handshake(broker).flight()[:100])
    return one


def without_the_last_flight(broker: SecuredBroker, protocol: str) -> socket.socket:
    one = broker.socket(protocol)
    one.sendall(Handshake(broker).flight())
    assert one.recv(1 << 16)
    return one


def without_a_token(broker: SecuredBroker, protocol: str) -> socket.socket:
    client = broker.connect(protocol)
    shake(client, "PLAIN")
    return client.socket


@pytest.mark.parametrize(
    ("protocol", "stalled"),
    [
        ("SSL", silent),
        ("SSL", with_half_a_hello),
        ("SSL", without_the_last_flight),
        ("SASL_PLAINTEXT", silent),
        ("SASL_PLAINTEXT", without_a_token),
        ("SASL_SSL", without_a_token),
    ],
)
def test_many_that_stall_keep_out_nobody(
    secured: SecuredBroker,
    protocol: str,
    stalled: Callable[[SecuredBroker, str], socket.socket],
) -> None:
    before = files_open(secured)
    with comes_in(secured, protocol) as old, ExitStack() as stack:
        crowd = [stack.enter_context(stalled(secured, protocol)) for _ in range(STALLED)]

        with comes_in(secured, protocol):
            assert in_time(lambda: sum(map(is_open, crowd)) < AUTHENTICATING_MAX)
            # The oldest went: all but the one that the good client put in its place.
            assert [is_open(one) for one in crowd[-AUTHENTICATING_MAX + 1 :]].count(False) == 0
            assert files_open(secured) - before <= AUTHENTICATING_MAX + 4
            assert is_served(old)
    assert in_time(lambda: files_open(secured) <= before)


def spoil(hello: bytes, made: random.Random) -> bytes:
    """Cut short, changed in some bytes, with a piece twice or one left out."""
    data = bytearray(hello)
    for _ in range(made.randint(1, 4)):
        at = made.randrange(1, max(2, len(data)))
        match made.randrange(4):
            case 0:
                del data[at:]
            case 1:
                data[at % len(data)] = made.randrange(256)
            case 2:
                data[at:at] = data[at : at + made.randrange(64)]
            case _:
                del data[at : at + made.randrange(64)]
    return bytes(data)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_spoiled_flights_end_their_own_connection_alone(
    secured: SecuredBroker, protocol: str
) -> None:
    made, before = random.Random(protocol), files_open(secured)
    with comes_in(secured, protocol) as good:
        for _ in range(0, SPOILED // 2, AT_ONCE):
            with ExitStack() as stack:
                crowd = []
                for number in range(AT_ONCE):
                    one = stack.enter_context(secured.socket(protocol))
                    crowd.append(one)
                    handshake = Handshake(secured)
                    # Who has closed already takes no more.
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        if number % 4 == 0:
                            one.sendall(handshake.flight())
                            one.sendall(spoil(handshake.flight(one.recv(1 << 16)), made))
                        else:
                            one.sendall(spoil(handshake.flight(), made))
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_WR)
                assert is_served(good)
                assert all(map(ended, crowd))
    with comes_in(secured, protocol):
        pass
    assert in_time(lambda: files_open(secured) <= before)


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_who_leaves_in_the_middle_of_a_handshake_leaves_nothing(
    secured: SecuredBroker, protocol: str, reset: bool
) -> None:
    before = files_open(secured)
    for number in range(60):
        one, handshake = secured.socket(protocol), Handshake(secured)
        if reset:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        if number % 4 > 0:
            one.sendall(handshake.flight())
        if number % 4 > 1:
            last = handshake.flight(one.recv(1 << 16))
            one.sendall(last if number % 4 == 3 else last[: len(last) // 2])
        one.close()
    with comes_in(secured, protocol):
        pass
    assert in_time(lambda: files_open(secured) <= before)


def test_who_leaves_while_its_token_is_looked_at_leaves_nothing(secured: SecuredBroker) -> None:
    before = files_open(secured)
    for token in (ALICE, b"\0alice\0wrong"):
        for _ in range(20):
            client = secured.connect("SASL_SSL")
            shake(client, "PLAIN")
            client.send(SaslAuthenticateRequest(auth_bytes=token), 2)
            client.close()
    with comes_in(secured, "SASL_SSL"):
        pass
    assert in_time(lambda: files_open(secured) <= before)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_reads_tls_slowly_gets_every_byte(
    secured: SecuredBroker, version: ssl.TLSVersion
) -> None:
    made, topic = random.Random(SLICE), f"slow-{version.name.lower()}"
    values = [made.randbytes(SLICE) for _ in range(SLICES)]
    context = secured.context()
    context.minimum_version = context.maximum_version = version
    with secured.connect("PLAINTEXT") as admin, _narrow(secured, context) as slow:
        assert isinstance(admin, Caller)
        admin.create_topic(topic)
        for value in values:
            assert admin.produce(topic, batch(value)).error_code == 0
        asked = [
            (offset, slow.send(fetch_request(Target(topic, offset)), 12))
            for offset in range(SLICES)
        ]
        assert is_served(admin)

        for offset, correlation_id in asked:
            answer = slow.receive(APIS[1], 12, correlation_id)
            entry = answer.responses[0].partitions[0]
            assert records_in(entry.records)[0] == (offset, values[offset])
            time.sleep(0.02)


def _narrow(broker: SecuredBroker, context: ssl.SSLContext) -> WireClient:
    """A client with little room for what comes."""
    client = broker.connect("PLAINTEXT")
    client.close()
    client.socket = socket.socket()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    client.socket.settimeout(10)
    client.socket.connect((broker.host, broker.ports["SSL"]))
    client.socket = context.wrap_socket(client.socket, server_hostname=broker.host)
    return client


def test_a_token_behind_the_last_flight_is_read(secured: SecuredBroker) -> None:
    """What follows the handshake may come in the same packet as its end."""
    handshake = Handshake(secured)
    with secured.connect("PLAINTEXT") as plain, secured.socket("SSL") as one:
        one.sendall(handshake.flight())
        last = handshake.flight(one.recv(1 << 16))
        handshake._tls.write(plain.frame(MetadataRequest(topics=[]), 9))
        one.sendall(last + handshake._outgoing.read())
        found = b""
        while not found:
            handshake._incoming.write(one.recv(1 << 16))
            with contextlib.suppress(ssl.SSLWantReadError):
                found = handshake._tls.read(1 << 16)
        assert found[4:8] == (1).to_bytes(4, "big")


def test_a_stop_waits_for_no_handshake(tmp_path: Path) -> None:
    settings = {"connections.authenticating.max": "2"}
    with ExitStack() as stack, SecuredBroker(tmp_path, settings) as broker:
        for _ in range(5):
            stack.enter_context(with_half_a_hello(broker, "SSL"))
        assert in_time(lambda: "not authenticated yet" in broker.output())
        assert broker.run is not None
        run = broker.run
        broker.stop()
        assert "connections cut off" not in run.output()
