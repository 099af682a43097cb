"""Counters of who was let in, and of who had to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.handlers.quota_calls import alter, entry, ip, user
from tests.support.broker_changes import delete_all, set_all
from tests.support.caller import Caller, batch, produce_request
from tests.support.scraped import counters
from tests.support.secured import ScramClient, SecuredBroker, authenticate, shake
from tests.support.server_process import free_port
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.wire_client import WireClient

ALICE = b"\0alice\0alice-secret"
WRONG = b"\0alice\0guessed"
BOB = b"\0bob\0bob-secret"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "metrics.port": str(free_port()),
        "listener.name.sasl_ssl.plain.connections.max.reauth.ms": "60000",
        "listener.name.sasl_plaintext.max.connection.creation.rate": "1000",
        "listener.name.ssl.ssl.client.auth": "required",
        "connection.failed.authentication.delay.ms": "10",
        "quota.window.num": "2",
    }
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as broker:
        broker.add_scram_users()
        yield broker


class Grown:
    """What counters have grown by."""

    def __init__(self, broker: SecuredBroker) -> None:
        self._port = int(broker.settings["metrics.port"])
        self._before = counters(self._port)

    def by(self, *beginnings: str) -> dict[str, float]:
        return {
            name: value - self._before.get(name, 0)
            for name, value in counters(self._port).items()
            if name.startswith(beginnings) and value != self._before.get(name, 0)
        }


def at(listener: str, mechanism: str) -> str:
    return f'{{listener="{listener}",mechanism="{mechanism}"}}'


def plain(client: WireClient, token: bytes) -> int:
    shake(client, "PLAIN")
    code: int = authenticate(client, token).error_code
    return code


OF_AUTHENTICATION = ("successful_", "failed_authentication", "failed_reauthentication")


def test_each_authentication_is_counted_by_listener_and_mechanism(secured: SecuredBroker) -> None:
    grown = Grown(secured)
    for protocol, token in (
        ("SASL_PLAINTEXT", ALICE),
        ("SASL_SSL", ALICE),
        ("SASL_SSL", WRONG),
        ("SASL_SSL", WRONG),
    ):
        with secured.connect(protocol) as client:
            assert (plain(client, token) == 0) == (token == ALICE)
    with secured.connect("SASL_SSL") as client:
        scram = ScramClient("SCRAM-SHA-512", "bob", "bob-secret")
        shake(client, "SCRAM-SHA-512")
        challenge = authenticate(client, scram.first())
        assert authenticate(client, scram.final(challenge.auth_bytes)).error_code == 0
    with secured.connect("SASL_SSL") as client:
        assert shake(client, "NONE-SUCH").error_code != 0

    assert grown.by(*OF_AUTHENTICATION) == {
        "successful_authentication_total" + at("SASL_PLAINTEXT", "PLAIN"): 1,
        "successful_authentication_total" + at("SASL_SSL", "PLAIN"): 1,
        "failed_authentication_total" + at("SASL_SSL", "PLAIN"): 2,
        "successful_authentication_total" + at("SASL_SSL", "SCRAM-SHA-512"): 1,
        "failed_authentication_total" + at("SASL_SSL", ""): 1,
    }


def test_what_the_tls_handshake_decides_is_counted(secured: SecuredBroker) -> None:
    grown, context = Grown(secured), secured.context()
    with secured.socket("SSL") as one:
        one.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
        assert one.recv(1) == b""
    context.load_cert_chain(secured.authority.issue("alice").pem)
    with secured.connect("SSL", context) as client:
        assert client.call(MetadataRequest(topics=[]), 9)

    assert grown.by(*OF_AUTHENTICATION) == {
        "failed_authentication_total" + at("SSL", "SSL"): 1,
        "successful_authentication_total" + at("SSL", "SSL"): 1,
    }


@pytest.mark.parametrize("token", [ALICE, BOB])
def test_authenticating_again_is_counted_apart(secured: SecuredBroker, token: bytes) -> None:
    with secured.connect("SASL_SSL") as client:
        assert plain(client, ALICE) == 0
        grown = Grown(secured)
        assert (plain(client, token) == 0) == (token == ALICE)
        what = "successful" if token == ALICE else "failed"
        assert grown.by(*OF_AUTHENTICATION) == {
            f"{what}_reauthentication_total" + at("SASL_SSL", "PLAIN"): 1
        }


def test_who_waits_for_a_quota_is_counted(secured: SecuredBroker) -> None:
    with Caller(secured.host, secured.ports["PLAINTEXT"]) as admin:
        admin.create_topic("t")
        grown = Grown(secured)
        alter(admin, entry(user("ANONYMOUS"), producer_byte_rate=10_000.0))
        request = produce_request(("t", 0, batch(b"v" * 12_000)), acks=1)
        wait_ms = admin.call(request, 9).throttle_time_ms
        alter(admin, entry(user("ANONYMOUS"), producer_byte_rate=None))

        assert wait_ms > 0
        assert grown.by("throttle") == {
            'throttled_total{quota="producer_byte_rate"}': 1,
            'throttle_time_seconds_total{quota="producer_byte_rate"}': wait_ms / 1000,
        }


def test_connections_that_are_turned_away_are_counted(secured: SecuredBroker) -> None:
    with Caller(secured.host, secured.ports["PLAINTEXT"]) as admin:
        grown = Grown(secured)
        alter(admin, entry(ip("127.0.0.1"), connection_creation_rate=1.0))
        for _ in range(3):
            with Caller(secured.host, secured.ports["PLAINTEXT"]) as client:
                try:
                    client.call(MetadataRequest(topics=[]), 9)
                except ConnectionClosed:
                    continue
        alter(admin, entry(ip("127.0.0.1"), connection_creation_rate=None))
        counted = grown.by("throttled", "connection_creation_total")
        assert counted['throttled_total{quota="connection_creation_rate"}'] >= 1
        assert counted["connection_creation_total"] == 3


def test_connections_that_wait_for_their_turn_are_counted(secured: SecuredBroker) -> None:
    grown = Grown(secured)
    with Caller(secured.host, secured.ports["PLAINTEXT"]) as admin:
        name = "listener.name.plaintext.max.connection.creation.rate"
        set_all(admin, {name: "1"})
        for _ in range(2):
            with Caller(secured.host, secured.ports["PLAINTEXT"]) as client:
                assert client.call(MetadataRequest(topics=[]), 9)
        delete_all(admin, name)
    counted = grown.by("connection_accept")
    assert counted['connection_accept_throttled_total{listener="PLAINTEXT"}'] == 1
    assert counted['connection_accept_throttle_time_seconds_total{listener="PLAINTEXT"}'] > 0
