"""Clients that want to be served without authenticating, or after they may no longer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from broker.network.dispatch import HANDLERS
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.registry import APIS
from tests.protocol.frames import captured_frames
from tests.support.caller import Caller, batch, produce_request
from tests.support.secured import ScramClient, SecuredBroker, authenticate, send_token, shake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.wire_client import WireClient

ALICE = b"\0alice\0alice-secret"
OF_AUTHENTICATION = {17, 18, 36}
TOPIC = "t"
SESSION_MS = 1500


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "connection.failed.authentication.delay.ms": "0",
        "listener.name.sasl_ssl.connections.max.reauth.ms": str(SESSION_MS),
    }
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as broker:
        broker.add_scram_users()
        with Caller(broker.host, broker.ports["PLAINTEXT"]) as admin:
            admin.create_topic(TOPIC)
        yield broker
        said = broker.output()
        assert "Traceback" not in said, said[-3000:]


@pytest.fixture
def client(secured: SecuredBroker) -> Iterator[WireClient]:
    with secured.connect("SASL_PLAINTEXT") as client:
        yield client


def end_offset(broker: SecuredBroker) -> int:
    with Caller(broker.host, broker.ports["PLAINTEXT"]) as admin:
        offset: int = admin.fetch(TOPIC).high_watermark
        return offset


def is_served(client: WireClient) -> bool:
    return bool(client.call(MetadataRequest(topics=[]), 9).brokers)


def at_the_beginning(client: WireClient) -> None:
    pass


def after_the_handshake(client: WireClient) -> None:
    shake(client, "PLAIN")


def after_the_handshake_of_0_10(client: WireClient) -> None:
    shake(client, "PLAIN", 0)


def within_scram(client: WireClient) -> None:
    shake(client, "SCRAM-SHA-256")
    assert authenticate(client, ScramClient("SCRAM-SHA-256", "alice", "x").first()).error_code == 0


def within_scram_of_0_10(client: WireClient) -> None:
    shake(client, "SCRAM-SHA-256", 0)
    assert send_token(client, ScramClient("SCRAM-SHA-256", "alice", "x").first())


STATES = [
    at_the_beginning,
    after_the_handshake,
    after_the_handshake_of_0_10,
    within_scram,
    within_scram_of_0_10,
]


def every_request() -> list[tuple[int, int, bytes]]:
    """Key, version and a frame of a real client of each served API, one of each version."""
    found: dict[tuple[int, int], bytes] = {}
    for frame in captured_frames():
        key, version = (
            int.from_bytes(frame.data[4:6], "big"),
            int.from_bytes(frame.data[6:8], "big"),
        )
        if key in HANDLERS and key not in OF_AUTHENTICATION:
            found.setdefault((key, version), frame.data)
    for key in HANDLERS.keys() - OF_AUTHENTICATION:
        for version in (APIS[key].min_version, APIS[key].max_version):
            # As far as the name of the client is enough to see that it may not ask.
            made = (
                key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff\0\0\0"
            )
            found.setdefault((key, version), len(made).to_bytes(4, "big") + made)
    return [(key, version, data) for (key, version), data in sorted(found.items())]


@pytest.mark.parametrize("state", STATES)
def test_no_api_is_served_in_any_state_before_authentication(
    secured: SecuredBroker, state: Callable[[WireClient], None]
) -> None:
    requests = every_request()
    assert {key for key, _, _ in requests} == HANDLERS.keys() - OF_AUTHENTICATION
    for _, _, data in requests:
        with secured.connect("SASL_PLAINTEXT") as client:
            state(client)
            client.send_raw(data)
            assert client.closed_by_server()


@pytest.mark.parametrize("state", STATES)
def test_a_produce_before_authentication_stores_nothing(
    secured: SecuredBroker, client: WireClient, state: Callable[[WireClient], None]
) -> None:
    before = end_offset(secured)
    state(client)
    for acks in (0, 1):
        client.send(produce_request((TOPIC, 0, batch(b"stolen")), acks=acks), 9)
    assert client.closed_by_server()
    assert end_offset(secured) == before


def test_a_session_that_has_ended_serves_no_api(secured: SecuredBroker) -> None:
    requests = every_request()
    clients = [secured.connect("SASL_SSL") for _ in requests]
    for client in clients:
        shake(client, "PLAIN")
        assert authenticate(client, ALICE).error_code == 0
    time.sleep(SESSION_MS / 1000)
    for client, (_, _, data) in zip(clients, requests, strict=True):
        with client:
            client.send_raw(data)
            assert client.closed_by_server()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_has_chosen_scram_is_not_let_in_by_the_token_of_plain(
    client: WireClient, mechanism: str
) -> None:
    shake(client, mechanism)
    assert authenticate(client, ALICE).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.closed_by_server()


def test_a_mechanism_with_another_hash_is_another(client: WireClient) -> None:
    weak = ScramClient("SCRAM-SHA-256", "alice", "alice-secret")
    shake(client, "SCRAM-SHA-512")
    challenge = authenticate(client, weak.first())
    answer = authenticate(client, weak.final(challenge.auth_bytes))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.closed_by_server()


@pytest.mark.parametrize("name", ["plain", "PLAIN ", "PLAIN\0", "", "SCRAM-SHA-1", "ANONYMOUS"])
def test_no_other_name_is_that_of_a_mechanism(client: WireClient, name: str) -> None:
    assert shake(client, name).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert client.closed_by_server()


def overheard(secured: SecuredBroker) -> tuple[bytes, bytes]:
    """What a client of SCRAM has sent that was let in."""
    with secured.connect("SASL_PLAINTEXT") as client:
        one = ScramClient("SCRAM-SHA-256", "alice", "alice-secret")
        shake(client, "SCRAM-SHA-256")
        final = one.final(authenticate(client, one.first()).auth_bytes)
        assert authenticate(client, final).error_code == 0
        return one.first(), final


def test_messages_of_scram_are_of_no_use_to_who_has_overheard_them(
    secured: SecuredBroker, client: WireClient
) -> None:
    first, final = overheard(secured)
    shake(client, "SCRAM-SHA-256")
    challenge = authenticate(client, first)
    assert challenge.error_code == 0
    assert challenge.auth_bytes not in final
    assert authenticate(client, final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.closed_by_server()


def test_the_last_message_of_scram_alone_is_no_message(
    secured: SecuredBroker, client: WireClient
) -> None:
    _, final = overheard(secured)
    shake(client, "SCRAM-SHA-256")
    assert authenticate(client, final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.closed_by_server()


def test_the_last_message_of_scram_twice_is_once_too_often(client: WireClient) -> None:
    one = ScramClient("SCRAM-SHA-256", "alice", "alice-secret")
    shake(client, "SCRAM-SHA-256")
    final = one.final(authenticate(client, one.first()).auth_bytes)
    assert authenticate(client, final).error_code == 0
    assert authenticate(client, final).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_served(client)


@pytest.mark.parametrize(
    "header", ["p=tls-unique,,", "p=tls-server-end-point,,", "p=tls-exporter,,"]
)
def test_a_channel_is_not_bound_and_who_wants_it_is_told(
    secured: SecuredBroker, header: str
) -> None:
    with secured.connect("SASL_SSL") as client:
        shake(client, "SCRAM-SHA-256")
        answer = authenticate(client, f"{header}n=alice,r=abc".encode())
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.closed_by_server()


def test_a_proof_made_for_another_header_is_refused(client: WireClient) -> None:
    """Who takes away that the client could bind a channel changes what it has signed."""
    one = ScramClient("SCRAM-SHA-256", "alice", "alice-secret")
    shake(client, "SCRAM-SHA-256")
    challenge = authenticate(client, one.first().replace(b"n,,", b"y,,", 1))
    final = one.final(challenge.auth_bytes)
    assert authenticate(client, final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_user_who_was_removed_is_out_at_the_end_of_the_session(secured: SecuredBroker) -> None:
    with secured.connect("SASL_SSL") as client:
        scram = ScramClient("SCRAM-SHA-512", "bob", "bob-secret")
        shake(client, "SCRAM-SHA-512")
        challenge = authenticate(client, scram.first())
        assert authenticate(client, scram.final(challenge.auth_bytes)).error_code == 0
        deletion = AlterUserScramCredentialsRequest.Deletion(name="bob", mechanism=2)
        with Caller(secured.host, secured.ports["PLAINTEXT"]) as admin:
            request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
            assert admin.call(request).results[0].error_code == 0
        assert is_served(client), "the session goes on, and ends"

        again = ScramClient("SCRAM-SHA-512", "bob", "bob-secret")
        shake(client, "SCRAM-SHA-512")
        challenge = authenticate(client, again.first())
        answer = authenticate(client, again.final(challenge.auth_bytes))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        client.send(SaslAuthenticateRequest(auth_bytes=b""), 2)
        assert client.closed_by_server()


def test_who_ends_in_the_middle_of_a_request_has_asked_nothing(secured: SecuredBroker) -> None:
    before = end_offset(secured)
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        with secured.connect(protocol) as client:
            shake(client, "PLAIN")
            assert authenticate(client, ALICE).error_code == 0
            frame = client.frame(produce_request((TOPIC, 0, batch(b"half"))), 9, 3)
            client.send_raw(frame[:-1])
            # With TLS: without its goodbye, as one would who cuts the line.
            client.socket.close()
    assert end_offset(secured) == before
