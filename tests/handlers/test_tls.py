"""Listeners with TLS: who gets in and by which name, renewed certificates, and what is no TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from typing import TYPE_CHECKING

import pytest

from broker.server import start
from config import load
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from tests.support.broker_changes import SET, alter, described, set_all
from tests.support.caller import Caller
from tests.support.certificates import Authority
from tests.support.secured import SecuredBroker
from tests.support.server_process import ServerFailed
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.certificates import Issued
    from tests.support.wire_client import WireClient

SAME = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "ssl.client.auth": "requested",
        "connections.authentication.timeout.ms": "2000",
        "ssl.principal.mapping.rules": "RULE:^CN=(alice|bob)$/$1/",
    }
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as broker:
        yield broker
        said = broker.output()
        assert "Traceback" not in said, said[-3000:]


def is_served(client: WireClient) -> bool:
    return bool(client.call(MetadataRequest(topics=[]), 9).brokers)


def lets_in(broker: SecuredBroker, context: ssl.SSLContext | None = None) -> bool:
    with broker.connect("SSL", context) as client:
        return is_served(client)


def with_certificate(broker: SecuredBroker, issued: Issued) -> ssl.SSLContext:
    context = broker.context()
    context.load_cert_chain(issued.pem)
    return context


def said_in_time(broker: SecuredBroker, text: str) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if text in broker.output():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_go_over_tls(secured: SecuredBroker, version: ssl.TLSVersion) -> None:
    context = secured.context()
    context.minimum_version = context.maximum_version = version
    assert lets_in(secured, context)


def test_a_hello_that_comes_byte_by_byte_is_a_hello(secured: SecuredBroker) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = secured.context().wrap_bio(incoming, outgoing, server_hostname=secured.host)
    with secured.socket("SSL") as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
                break
            for byte in outgoing.read():
                connection.sendall(bytes([byte]))
            incoming.write(connection.recv(65_536))
    assert client.version() == "TLSv1.3"


def test_a_certificate_of_the_authority_is_taken_and_none_may_be_too(
    secured: SecuredBroker,
) -> None:
    alice = secured.authority.issue("alice")
    assert lets_in(secured, with_certificate(secured, alice))
    assert lets_in(secured)


@pytest.mark.parametrize(
    ("name", "days", "reason"), [("alice", 1, "its certificate is not accepted"), ("alice", -1, "")]
)
def test_other_certificates_are_not(
    secured: SecuredBroker, tmp_path: Path, name: str, days: int, reason: str
) -> None:
    strange = Authority(tmp_path, "another")
    issuer = strange if days > 0 else secured.authority
    context = with_certificate(secured, issuer.issue(name, days=days, file="strange"))

    with pytest.raises((ssl.SSLError, ConnectionClosed, ConnectionResetError)):
        lets_in(secured, context)
    assert said_in_time(secured, "its certificate is not accepted")


def test_a_certificate_of_whom_no_rule_makes_a_name_is_not(secured: SecuredBroker) -> None:
    carol = secured.authority.issue("carol")
    with pytest.raises((ssl.SSLError, ConnectionClosed, ConnectionResetError)):
        lets_in(secured, with_certificate(secured, carol))
    assert said_in_time(secured, "no rule of ssl.principal.mapping.rules is for CN=carol")


def test_plaintext_on_a_listener_of_tls_is_called_by_its_name(secured: SecuredBroker) -> None:
    with secured.connect("PLAINTEXT") as plain:
        frame = plain.frame(MetadataRequest(topics=[]), 9)
    for first in (frame, b"GET / HTTP/1.1\r\n\r\n", b"\0"):
        with secured.socket("SSL") as connection:
            connection.sendall(first)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(100) == b""
    assert said_in_time(secured, "it speaks plaintext; this listener speaks TLS")


def test_tls_on_a_listener_of_plaintext_is_called_by_its_name(secured: SecuredBroker) -> None:
    with secured.socket("PLAINTEXT") as bare, pytest.raises(OSError, match=r"TLS|SSL|EOF|reset"):
        secured.context().wrap_socket(bare, server_hostname=secured.host)
    assert said_in_time(secured, "a TLS client on a plaintext listener")


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_who_does_not_go_on_is_not_waited_for(secured: SecuredBroker, sent: bytes) -> None:
    with secured.socket("SSL") as connection:
        connection.sendall(sent)
        began = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""
        assert time.monotonic() - began < 8
    assert said_in_time(secured, "has not authenticated within 2 s")


def test_old_versions_and_other_suites_are_not_offered(tmp_path: Path) -> None:
    settings = {
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.1",
        "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    }
    with SecuredBroker(tmp_path, settings) as broker:
        with broker.connect("SSL") as client:
            assert isinstance(client.socket, ssl.SSLSocket)
            assert client.socket.version() == "TLSv1.2"
            assert client.socket.cipher() == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", 256)
        for change in ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.3"):
            context = broker.context()
            if change == "TLSv1.3":
                context.minimum_version = ssl.TLSVersion.TLSv1_3
            else:
                context.set_ciphers(change)
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises(ssl.SSLError):
                broker.connect("SSL", context)


def test_a_certificate_is_required_where_it_is_said(tmp_path: Path) -> None:
    with SecuredBroker(tmp_path, {"ssl.client.auth": "required"}) as broker:
        with pytest.raises((ssl.SSLError, ConnectionClosed, ConnectionResetError)):
            lets_in(broker)
        assert lets_in(broker, with_certificate(broker, broker.authority.issue("alice")))


def test_renewed_certificates_are_used_by_new_connections_and_old_ones_go_on(
    tmp_path: Path,
) -> None:
    with SecuredBroker(tmp_path) as broker, broker.connect("SSL") as before:
        assert isinstance(before.socket, ssl.SSLSocket)
        old = before.socket.getpeercert(binary_form=True)

        broker.certificate.pem.write_text("half of it")
        assert said_in_time(broker, "those of before stay")
        assert lets_in(broker)
        fresh = broker.authority.issue("broker", file="fresh")
        fresh.pem.replace(broker.certificate.pem)
        assert said_in_time(broker, "certificates were renewed")

        with broker.connect("SSL") as after:
            assert isinstance(after.socket, ssl.SSLSocket)
            assert after.socket.getpeercert(binary_form=True) != old
            assert is_served(after)
        assert is_served(before)


def test_a_key_that_others_may_read_stops_the_start_and_says_why(tmp_path: Path) -> None:
    broker = SecuredBroker(tmp_path)
    broker.certificate.pem.chmod(0o644)
    with pytest.raises(ServerFailed, match="every user of this machine; chmod o-rwx"):
        broker.start()


def test_the_certificate_of_a_listener_is_changed_at_run_time(tmp_path: Path) -> None:
    key = "listener.name.ssl.ssl.keystore.location"
    with SecuredBroker(tmp_path) as broker, Caller(broker.host, broker.ports["PLAINTEXT"]) as admin:
        other = broker.authority.issue("broker", file="other")
        set_all(admin, {key: str(other.pem)})
        refused = alter(admin, (key, SET, str(tmp_path / "nowhere")))
        moved = alter(admin, ("listener.security.protocol.map", SET, "SSL:PLAINTEXT," + SAME))

        with broker.connect("SSL") as client:
            assert isinstance(client.socket, ssl.SSLSocket)
            shown = client.socket.getpeercert(binary_form=True)
        assert shown == ssl.PEM_cert_to_DER_cert(other.certificate_text)
        assert described(admin)[key].value == str(other.pem)
    assert refused.error_code == moved.error_code == ErrorCode.INVALID_REQUEST
    assert "nowhere can't be read: No such file" in (refused.error_message or "")
    assert "SSL speaks SSL and can't change that" in (moved.error_message or "")


async def test_the_stock_event_loop_speaks_tls_too(tmp_path: Path) -> None:
    broker = SecuredBroker(tmp_path)
    settings = load(overrides={**broker.settings, "log.dirs": str(broker.data)})
    running = await start(settings, asyncio.get_running_loop())

    assert await asyncio.to_thread(lets_in, broker)
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        await asyncio.to_thread(broker.connect, "SSL", ssl.create_default_context())
    await running.stop()
