"""SaslHandshake and SaslAuthenticate over real connections. Codes and texts are Kafka's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.support.secured import (
    ScramClient,
    SecuredBroker,
    authenticate,
    recv_token,
    send_token,
    shake,
)
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.wire_client import WireClient

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
ALICE = b"\0alice\0alice-secret"
BOB = b"\0bob\0bob-secret"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "listener.name.sasl_ssl.plain.connections.max.reauth.ms": "1500",
        "connection.failed.authentication.delay.ms": "10",
    }
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as broker:
        broker.add_scram_users()
        yield broker
        said = broker.output()
        assert "Traceback" not in said, said[-3000:]
        assert "secret" not in said


@pytest.fixture
def client(secured: SecuredBroker) -> Iterator[WireClient]:
    with secured.connect("SASL_PLAINTEXT") as client:
        yield client


def is_served(client: WireClient) -> bool:
    return bool(client.call(MetadataRequest(topics=[]), 9).brokers)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_who_knows_the_password_is_served(
    secured: SecuredBroker, protocol: str, version: int
) -> None:
    with secured.connect(protocol) as client:
        shaken = shake(client, "PLAIN")
        answer = authenticate(client, ALICE, version)

        assert (shaken.error_code, shaken.mechanisms) == (0, MECHANISMS)
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, None, b"")
        assert is_served(client)


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_scram_goes_to_and_fro(client: WireClient, mechanism: str) -> None:
    alice = ScramClient(mechanism, "alice", "alice-secret")

    shake(client, mechanism)
    challenge = authenticate(client, alice.first())
    answer = authenticate(client, alice.final(challenge.auth_bytes))

    assert (challenge.error_code, answer.error_code, answer.session_lifetime_ms) == (0, 0, 0)
    assert alice.is_from_the_server(answer.auth_bytes)
    assert is_served(client)


def test_clients_of_0_10_send_tokens_without_a_header(client: WireClient) -> None:
    alice = ScramClient("SCRAM-SHA-256", "alice", "alice-secret")

    assert shake(client, "SCRAM-SHA-256", version=0).error_code == 0
    final = send_token(client, alice.final(send_token(client, alice.first())))

    assert alice.is_from_the_server(final)
    assert is_served(client)


def test_the_answer_to_a_token_of_plain_without_a_header_is_empty(client: WireClient) -> None:
    shake(client, "PLAIN", version=0)
    # Requests that come with it are served in their order.
    client.send_raw(len(ALICE).to_bytes(4, "big") + ALICE)
    number = client.send(MetadataRequest(topics=[]), 9)
    assert recv_token(client) == b""
    assert client.recv_frame()[:4] == number.to_bytes(4, "big")


def test_a_wrong_token_without_a_header_ends_the_connection(client: WireClient) -> None:
    shake(client, "PLAIN", version=0)
    with pytest.raises(ConnectionClosed):
        send_token(client, b"\0alice\0wrong")


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0alice-secret", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
        ),
        (
            b"alice alice-secret",
            "Authentication failed during authentication due to invalid credentials with SASL "
            "mechanism PLAIN",
        ),
        (
            b"\0\0x",
            "Authentication failed during authentication due to invalid credentials with SASL "
            "mechanism PLAIN",
        ),
    ],
)
def test_who_does_not_is_told_so_and_the_connection_ends(
    client: WireClient, token: bytes, text: str
) -> None:
    shake(client, "PLAIN")
    answer = authenticate(client, token)

    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (answer.error_message, answer.auth_bytes) == (text, b"")
    assert client.closed_by_server()


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_scram_tells_a_wrong_user_from_a_wrong_password_to_nobody(
    client: WireClient, user: str
) -> None:
    one = ScramClient("SCRAM-SHA-512", user, "wrong")
    shake(client, "SCRAM-SHA-512")
    challenge = authenticate(client, one.first())
    answer = authenticate(client, one.final(challenge.auth_bytes))

    assert (challenge.error_code, answer.error_code) == (0, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert answer.error_message.endswith("invalid credentials with SASL mechanism SCRAM-SHA-512")
    assert client.closed_by_server()


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(
    client: WireClient,
) -> None:
    answer = shake(client, "GSSAPI")

    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == MECHANISMS
    assert client.closed_by_server()


def test_the_apis_are_told_before_authentication_and_nothing_else(client: WireClient) -> None:
    keys = {one.api_key for one in client.call(ApiVersionsRequest(), 2).api_keys}
    assert {0, 1, 3, 17, 36} <= keys

    client.send(MetadataRequest(topics=[]), 9)

    assert client.closed_by_server()


@pytest.mark.parametrize("version", [0, 1])
def test_nothing_is_served_between_handshake_and_token(client: WireClient, version: int) -> None:
    shake(client, "PLAIN", version)
    client.send(MetadataRequest(topics=[]), 9)
    assert client.closed_by_server()


def test_requests_that_come_with_a_wrong_token_are_not_served(client: WireClient) -> None:
    shake(client, "PLAIN")
    token = client.frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2, 7)
    client.send_raw(token + client.frame(MetadataRequest(topics=[]), 9, 8))

    assert client.recv_frame()[:4] == (7).to_bytes(4, "big")
    assert client.closed_by_server()


def test_a_token_before_a_handshake_ends_the_connection(client: WireClient) -> None:
    client.send(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    assert client.closed_by_server()


def test_a_second_handshake_before_a_token_is_out_of_turn(client: WireClient) -> None:
    shake(client, "PLAIN")
    assert shake(client, "SCRAM-SHA-256").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.closed_by_server()


def test_a_token_larger_than_the_limit_ends_the_connection(client: WireClient) -> None:
    shake(client, "PLAIN")
    client.send_raw((524_289).to_bytes(4, "big"))
    assert client.closed_by_server()


def test_a_session_ends_unless_the_client_authenticates_again(secured: SecuredBroker) -> None:
    with secured.connect("SASL_SSL") as again, secured.connect("SASL_SSL") as never:
        for client in (again, never):
            shake(client, "PLAIN")
            assert authenticate(client, ALICE).session_lifetime_ms == 1500
            assert is_served(client)
        until = time.monotonic() + 1.2
        while time.monotonic() < until:  # Kafka takes no second handshake within a second
            assert is_served(again)
            time.sleep(0.05)

        assert shake(again, "PLAIN").error_code == 0
        assert is_served(again)  # the session of before holds until it ends
        assert authenticate(again, ALICE).session_lifetime_ms == 1500
        while time.monotonic() < until + 0.5:
            assert is_served(again)
            time.sleep(0.05)

        never.send(MetadataRequest(topics=[]), 9)
        assert never.closed_by_server()


def test_who_has_authenticated_does_not_become_somebody_else(secured: SecuredBroker) -> None:
    with secured.connect("SASL_SSL") as client:
        shake(client, "PLAIN")
        authenticate(client, ALICE)
        too_soon = shake(client, "PLAIN")
        tried = authenticate(client, BOB)
        time.sleep(1.01)
        shake(client, "PLAIN")
        answer = authenticate(client, BOB)

        assert (too_soon.error_code, too_soon.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert tried.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        assert client.closed_by_server()


def test_authenticating_again_is_by_the_same_mechanism(secured: SecuredBroker) -> None:
    with secured.connect("SASL_SSL") as client:
        shake(client, "PLAIN")
        authenticate(client, ALICE)
        time.sleep(1.01)
        assert shake(client, "SCRAM-SHA-256").error_code == 0
        answer = authenticate(client, b"n,,n=alice,r=abc")

        assert answer.error_message == (
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for "
            "re-authentication of mechanism 'PLAIN'"
        )
        assert client.closed_by_server()


def test_users_given_at_the_start_are_there_and_keep_what_they_have(tmp_path: Path) -> None:
    given = tmp_path / "users"
    given.write_text("# one a line\nSCRAM-SHA-256=[name=carol,password=first]\n")
    broker = SecuredBroker(tmp_path)
    broker.arguments = ("--add-scram", f"@{given}")
    for password in ("first", "second"):
        given.write_text(f"SCRAM-SHA-256=[name=carol,password={password}]\n")
        with broker, broker.connect("SASL_PLAINTEXT") as client:
            carol = ScramClient("SCRAM-SHA-256", "carol", "first")
            shake(client, "SCRAM-SHA-256")
            challenge = authenticate(client, carol.first())
            assert authenticate(client, carol.final(challenge.auth_bytes)).error_code == 0
            assert is_served(client)
