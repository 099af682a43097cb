"""GSSAPI with Kerberos over real connections, with a KDC: who is let in, and who is not."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from tests.support.broker_changes import SET, alter, delete_all, set_all
from tests.support.caller import Caller
from tests.support.kerberos import (
    GssapiClient,
    KerberosBroker,
    Realm,
    kerberos_settings,
    realm_with_broker,
)
from tests.support.secured import (
    USERS,
    SecuredBroker,
    authenticate,
    recv_token,
    send_token,
    shake,
)
from tests.support.server_process import ServerFailed
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.wire_client import WireClient

CHOICE = b"\x01\0\0\0"
INVALID = "Authentication failed during authentication due to invalid credentials with SASL "


class Site(NamedTuple):
    realm: Realm
    broker: KerberosBroker
    alice: Path
    """Her tickets."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    settings = {
        "connection.failed.authentication.delay.ms": "10",
        "listener.name.sasl_ssl.gssapi.connections.max.reauth.ms": "60000",
        "sasl.kerberos.principal.to.local.rules": (
            "RULE:[1:$1@$0](.*@TEST.EXAMPLE)s/@.*//,RULE:[2:$1-$2](web-.*)/U"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with realm_with_broker(tmp_path_factory.mktemp("kerberos"), settings) as (realm, broker):
        yield Site(realm, broker, realm.kinit("alice", USERS["alice"]))
        assert "secret" not in broker.output()


@pytest.fixture
def client(site: Site) -> Iterator[WireClient]:
    with site.broker.connect("SASL_PLAINTEXT") as client:
        yield client


def is_served(client: WireClient) -> bool:
    return bool(client.call(MetadataRequest(topics=[]), 9).brokers)


def log_in(client: WireClient, who: GssapiClient, choice: bytes = CHOICE) -> Any:
    """The answer to the last token, which is the choice of a layer."""
    proof = authenticate(client, who.first())
    assert proof.error_code == 0
    who.take(proof.auth_bytes)
    offer = authenticate(client, b"")
    assert who.offered(offer.auth_bytes) == b"\x01\x01\0\0"
    return authenticate(client, who.wrapped(choice))


def log_in_bare(client: WireClient, who: GssapiClient) -> None:
    """Tokens without a header. There is no answer to the last one."""
    who.take(send_token(client, who.first()))
    who.offered(send_token(client, b""))
    last = who.wrapped(CHOICE)
    client.send_raw(len(last).to_bytes(4, "big") + last)


def said_of(broker: KerberosBroker, pattern: str) -> bool:
    return any(pattern in line for line in broker.output().splitlines())


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_who_has_a_ticket_is_served(site: Site, protocol: str) -> None:
    with site.broker.connect(protocol) as client:
        shaken = shake(client, "GSSAPI")
        answer = log_in(client, GssapiClient(site.alice))

        assert (shaken.error_code, shaken.mechanisms) == (0, ["GSSAPI", "PLAIN"])
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
        # As in Kafka a session does not end with its ticket, but with connections.max.reauth.ms.
        assert answer.session_lifetime_ms == (60_000 if protocol == "SASL_SSL" else 0)
        assert is_served(client)


def test_clients_of_0_10_send_tokens_without_a_header(site: Site, client: WireClient) -> None:
    assert shake(client, "GSSAPI", version=0).error_code == 0
    log_in_bare(client, GssapiClient(site.alice))
    assert is_served(client)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_clients_of_0_9_begin_with_a_token(site: Site, protocol: str) -> None:
    with site.broker.connect(protocol) as client:
        log_in_bare(client, GssapiClient(site.alice))
        assert is_served(client)


def test_a_first_token_may_come_byte_by_byte(site: Site, client: WireClient) -> None:
    alice = GssapiClient(site.alice)
    token = alice.first()
    for byte in len(token).to_bytes(4, "big") + token:
        client.send_raw(bytes((byte,)))
    alice.take(recv_token(client))


def test_a_session_is_renewed_by_the_same_principal(site: Site) -> None:
    with site.broker.connect("SASL_SSL") as client:
        shake(client, "GSSAPI")
        log_in(client, GssapiClient(site.alice))
        shake(client, "GSSAPI")
        again = log_in(client, GssapiClient(site.alice))
        assert (again.error_code, again.session_lifetime_ms) == (0, 60_000)
        assert is_served(client)


def test_a_session_is_not_taken_over_by_another_principal(site: Site) -> None:
    bob = site.realm.kinit("bob", USERS["bob"])
    with site.broker.connect("SASL_SSL") as client:
        shake(client, "GSSAPI")
        log_in(client, GssapiClient(site.alice))
        shake(client, "GSSAPI")
        again = log_in(client, GssapiClient(bob))
        assert again.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert again.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )


@pytest.mark.parametrize("authzid", [b"", b"bob", b"bob@TEST.EXAMPLE", b"kafka@localhost", b"\xff"])
def test_one_acts_as_the_owner_of_the_ticket_whatever_one_asks_for(
    site: Site, authzid: bytes
) -> None:
    """As with Kafka, whose clients in Python name the broker there."""
    with site.broker.connect("SASL_SSL") as client:
        shake(client, "GSSAPI")
        assert log_in(client, GssapiClient(site.alice), CHOICE + authzid).error_code == 0
        shake(client, "GSSAPI")
        # Only for User:alice is this a second authentication by the same principal.
        assert log_in(client, GssapiClient(site.alice)).error_code == 0


@pytest.mark.parametrize(
    ("choice", "cause"),
    [
        (b"\x02\0\0\0", "the client chose layer 2"),
        (b"\x04\0\x10\0", "the client chose layer 4"),
        (b"\x07\0\0\0", "the client chose layer 7"),
        (b"\0\0\0\0", "the client chose layer 0"),
        (b"\x01\0\0", "a choice of layers of 3 bytes"),
        (b"", "a choice of layers of 0 bytes"),
    ],
)
def test_no_layer_but_none_is_given(
    site: Site, client: WireClient, choice: bytes, cause: str
) -> None:
    shake(client, "GSSAPI")
    answer = log_in(client, GssapiClient(site.alice), choice)

    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == INVALID + "mechanism GSSAPI"
    assert client.closed_by_server()
    assert said_of(site.broker, cause)


def test_a_ticket_is_taken_once(site: Site) -> None:
    first = GssapiClient(site.alice).first()
    with site.broker.connect("SASL_PLAINTEXT") as client:
        shake(client, "GSSAPI")
        assert authenticate(client, first).error_code == 0
    with site.broker.connect("SASL_PLAINTEXT") as client:
        shake(client, "GSSAPI")
        answer = authenticate(client, first)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.closed_by_server()
    assert said_of(site.broker, "a replay")


def test_the_last_message_of_another_connection_is_worth_nothing(
    site: Site, client: WireClient
) -> None:
    heard = GssapiClient(site.alice)
    shake(client, "GSSAPI")
    log_in(client, heard)
    last = heard.wrapped(CHOICE)
    alice = GssapiClient(site.alice)
    with site.broker.connect("SASL_PLAINTEXT") as other:
        shake(other, "GSSAPI")
        alice.take(authenticate(other, alice.first()).auth_bytes)
        authenticate(other, b"")
        assert authenticate(other, last).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_ticket_for_another_service_is_refused(site: Site, client: WireClient) -> None:
    """The keytab has its key, and the principal of the broker is another."""
    site.realm.add("http/localhost")
    site.realm.keytab("kafka", "http/localhost")
    shake(client, "GSSAPI")
    answer = authenticate(client, GssapiClient(site.alice, "http@localhost").first())
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.closed_by_server()


def test_a_ticket_of_another_realm_is_refused(
    site: Site, client: WireClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its names are the same: the key of the broker is not."""
    with Realm(tmp_path) as other:
        other.add("alice", password="guessed")
        other.add("kafka/localhost")
        with monkeypatch.context() as there:
            for name, value in other.environ.items():
                there.setenv(name, value)
            first = GssapiClient(other.kinit("alice", "guessed")).first()
    shake(client, "GSSAPI")
    answer = authenticate(client, first)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.closed_by_server()


def test_a_principal_that_no_rule_is_for_is_refused(site: Site, client: WireClient) -> None:
    """Kafka says that it is authenticated, and closes the connection at its first request."""
    site.realm.add("mail/localhost", password="mail")
    tickets = site.realm.kinit("mail/localhost", "mail")
    shake(client, "GSSAPI")
    answer = log_in(client, GssapiClient(tickets))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert said_of(site.broker, "no rule has a name for mail/localhost@TEST.EXAMPLE")


def test_the_name_of_a_principal_is_made_by_the_rules(site: Site) -> None:
    site.realm.add("web/localhost", password="web")
    tickets = site.realm.kinit("web/localhost", "web")
    with site.broker.connect("SASL_SSL") as client:
        shake(client, "GSSAPI")
        log_in(client, GssapiClient(tickets))
        shake(client, "GSSAPI")
        answer = log_in(client, GssapiClient(site.alice))
        assert answer.error_message.endswith("from User.WEB-LOCALHOST: User.alice")


def test_rules_change_at_run_time(site: Site) -> None:
    name = "listener.name.sasl_ssl.gssapi.sasl.kerberos.principal.to.local.rules"
    with Caller(site.broker.host, site.broker.ports["PLAINTEXT"]) as administrator:
        set_all(administrator, {name: "RULE:[1:new-$1]"})
        try:
            with site.broker.connect("SASL_SSL") as client:
                shake(client, "GSSAPI")
                log_in(client, GssapiClient(site.alice))
                shake(client, "GSSAPI")
                bob = GssapiClient(site.realm.kinit("bob", USERS["bob"]))
                assert log_in(client, bob).error_message.endswith("User.new-alice: User.new-bob")
        finally:
            delete_all(administrator, name)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("sasl.kerberos.principal.to.local.rules", "RULE:[1:$2]", r"\$0 to \$1 in the format"),
        (
            "sasl.jaas.config",
            kerberos_settings(Path("/nowhere"))["listener.name.sasl_ssl.gssapi.sasl.jaas.config"],
            "/nowhere can't be read",
        ),
    ],
)
def test_what_can_not_be_served_is_refused_at_run_time(
    site: Site, key: str, value: str, reason: str
) -> None:
    with Caller(site.broker.host, site.broker.ports["PLAINTEXT"]) as administrator:
        answer = alter(administrator, (f"listener.name.sasl_ssl.gssapi.{key}", SET, value))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert re.search(reason, answer.error_message or "")


def test_a_start_without_the_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gssapi.py").write_text("raise ImportError('it is hidden')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = kerberos_settings(tmp_path / "keytab")
    with (
        pytest.raises(ServerFailed, match=r"GSSAPI needs pip install triglot\[kerberos\]"),
        SecuredBroker(tmp_path, settings),
    ):
        pass


def spoiled(token: bytes) -> bytes:
    at = len(token) // 2
    return token[:at] + bytes((token[at] ^ 1,)) + token[at + 1 :]


@pytest.mark.parametrize(
    "accident",
    [lambda _: b"", lambda t: t[:1], lambda t: t[:100], spoiled, lambda _: os.urandom(700)],
    ids=["empty", "a byte", "the beginning", "a bit", "noise"],
)
def test_a_spoiled_ticket_is_refused(
    site: Site, client: WireClient, accident: Callable[[bytes], bytes]
) -> None:
    shake(client, "GSSAPI")
    answer = authenticate(client, accident(GssapiClient(site.alice).first()))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == INVALID + "mechanism GSSAPI"
    assert client.closed_by_server()


def test_a_spoiled_first_token_without_a_handshake_ends_the_connection(
    site: Site, client: WireClient
) -> None:
    with pytest.raises(ConnectionClosed):
        send_token(client, spoiled(GssapiClient(site.alice).first()))


def test_a_token_is_no_first_frame_where_gssapi_is_not_enabled(site: Site, tmp_path: Path) -> None:
    with SecuredBroker(tmp_path) as broker, broker.connect("SASL_PLAINTEXT") as client:
        with pytest.raises(ConnectionClosed):
            send_token(client, GssapiClient(site.alice).first())
        until = time.monotonic() + 10
        while "is not served before authentication" not in broker.output():
            assert time.monotonic() < until, broker.output()
            time.sleep(0.02)


def test_keys_that_are_added_to_the_keytab_are_used_at_once(site: Site, client: WireClient) -> None:
    site.realm.keytab("kafka", "kafka/localhost")
    tickets = site.realm.kinit("alice", USERS["alice"], lifetime_s=1800)
    shake(client, "GSSAPI")
    assert log_in(client, GssapiClient(tickets)).error_code == 0
    assert is_served(client)
