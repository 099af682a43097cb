"""Invariant: a TLS handshake that was spoiled on its way ends, or goes on, with an error that has a
name for the log; nobody is taken for a client whose certificate did not come through whole.

`TEST_FUZZ_FACTOR=50` spoils 200,000.
"""

from __future__ import annotations

import os
import ssl
from random import Random
from typing import TYPE_CHECKING

import pytest

from broker.network.tls import Tls, new_context, why_failed
from broker.security.principal import ANONYMOUS, USER, Principal
from config import load
from config.listener_security import ListenerSecurity
from storage.disk import DiskFilesystem
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 4_000 * int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
FLIGHTS = 8
"""More than either side needs for a handshake."""
ALICE = Principal(USER, "CN=alice")
NAMED = (
    "the TLS handshake failed: ",
    "its certificate is not accepted: ",
    "it speaks plaintext; this listener speaks TLS",
    "it went away during the TLS handshake",
)


def spoiled(flight: bytes, random: Random) -> bytes:
    """The flight after one to three accidents, which are as likely in its short headers as
    anywhere."""
    data = bytearray(flight)
    for _ in range(random.choice((1, 1, 2, 3))):
        most = min(len(data), 64) if random.random() < 0.5 else len(data)
        at = random.randrange(most + 1)
        match random.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 1:
                del data[at:]
            case 2 if at < len(data):
                data[at] = random.choice((0, 1, 0x14, 0x15, 0x16, 0x17, 0xFF))
            case 3:
                del data[at : at + random.randrange(1, 32)]
            case 4:
                data[at:at] = data[at : at + random.randrange(1, 64)]
            case _:
                data[at:at] = random.randbytes(random.randrange(1, 16))
    return bytes(data)


class Listener:
    """The broker's side of one listener, and what its clients have."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        given = {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.location": str(authority.issue("broker").pem),
            "ssl.truststore.location": str(authority.certificate),
            "ssl.client.auth": "requested",
        }
        security = ListenerSecurity(load(overrides=given), "SSL")
        self.tls = Tls(DiskFilesystem(), "SSL", security)
        self.context = new_context(DiskFilesystem(), security)
        self.clients = []
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for certificate in (authority.issue("alice").pem, None):
                client = ssl.create_default_context(cafile=str(authority.certificate))
                client.maximum_version = version
                if certificate is not None:
                    client.load_cert_chain(certificate)
                self.clients.append((client, certificate is not None))


class Peer:
    """Stands for the transport of a connection: it knows its TLS."""

    def __init__(self, tls: ssl.SSLObject) -> None:
        self._tls = tls

    def get_extra_info(self, name: str) -> ssl.SSLObject:
        assert name == "ssl_object"
        return self._tls


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Listener:
    return Listener(tmp_path_factory.mktemp("listener"))


def outcome(
    listener: Listener, client: ssl.SSLContext, random: Random, *, spoil_at: int
) -> Principal | str | None:
    """Who the client is, why the handshake failed, or None if the broker waits for more."""
    to_broker, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = listener.context.wrap_bio(to_broker, to_client, server_side=True)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = client.wrap_bio(incoming, outgoing, server_hostname="localhost")
    for flight in range(FLIGHTS):
        try:
            theirs.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            return None  # what the broker says to it does not concern us here
        sent = outgoing.read()
        to_broker.write(spoiled(sent, random) if flight == spoil_at else sent)
        try:
            ours.do_handshake()
        except ssl.SSLWantReadError:
            incoming.write(to_client.read())
            continue
        except OSError as error:
            return why_failed(error)
        return listener.tls.principal(Peer(ours))
    return None


def test_whole_handshakes_go_well(listener: Listener) -> None:
    random = Random(0)
    for client, has_certificate in listener.clients:
        who = outcome(listener, client, random, spoil_at=FLIGHTS)
        assert who == (ALICE if has_certificate else ANONYMOUS)


@pytest.mark.parametrize("seed", range(4))
def test_a_spoiled_handshake_has_a_name_and_makes_nobody_somebody_else(
    listener: Listener, seed: int
) -> None:
    random, ends = Random(seed), set()
    for _ in range(COUNT // 4):
        client, has_certificate = random.choice(listener.clients)
        end = outcome(listener, client, random, spoil_at=random.choice((0, 0, 1)))
        if isinstance(end, Principal):
            assert end == (ALICE if has_certificate else ANONYMOUS)
        elif end is not None:
            assert end.startswith(NAMED)
            ends.add(end)
    assert len(ends) > 5, "the accidents meet few of the checks"
