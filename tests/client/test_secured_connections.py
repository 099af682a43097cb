"""The client on listeners with TLS and SASL, and on those of somebody else."""

from __future__ import annotations

import base64
import hashlib
import pickle
import socket
from typing import TYPE_CHECKING

import pytest

from client import sasl
from client.cluster import Cluster
from client.connection import Connection
from client.errors import ConnectionLost, Failure, Refused, WrongUse
from client.security import MODULES, parse_client_security, read_client_security
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests.support.certificates import PASSWORD, Authority
from tests.support.scripted_broker import RawServer
from tests.support.secured import PROTOCOLS, SecuredBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "listener.name.sasl_ssl.plain.connections.max.reauth.ms": "1500",
        "connection.failed.authentication.delay.ms": "10",
        "listener.name.ssl.ssl.client.auth": "required",
    }
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as broker:
        broker.add_scram_users()
        yield broker


def properties(
    broker: SecuredBroker, protocol: str, mechanism: str = "PLAIN", **others: str
) -> dict[str, str]:
    made = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        made["ssl.truststore.location"] = str(broker.authority.certificate)
    if protocol == "SSL":
        made["ssl.keystore.location"] = str(broker.certificate.pem)
    if protocol.startswith("SASL"):
        made["sasl.mechanism"] = mechanism
        made["sasl.jaas.config"] = jaas(mechanism, "alice", "alice-secret")
    return {**made, **{key.replace("_", "."): value for key, value in others.items()}}


def jaas(mechanism: str, user: str, password: str) -> str:
    return f'{MODULES[mechanism]} required username="{user}" password="{password}";'


def connect(broker: SecuredBroker, protocol: str, given: dict[str, str]) -> Connection:
    security = parse_client_security(given)
    return Connection(broker.host, broker.ports[protocol], timeout_s=10, security=security)


def is_served(connection: Connection) -> bool:
    return bool(connection.call(MetadataRequest(topics=[]), MetadataResponse).brokers)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_and_mechanism_is_spoken(
    secured: SecuredBroker, protocol: str, mechanism: str
) -> None:
    with connect(secured, protocol, properties(secured, protocol, mechanism)) as connection:
        assert is_served(connection)
        assert connection.usable


def test_keys_may_be_in_pkcs12(secured: SecuredBroker) -> None:
    given = properties(
        secured,
        "SSL",
        ssl_keystore_location=str(secured.certificate.pkcs12),
        ssl_keystore_password=PASSWORD,
        ssl_truststore_location=str(secured.certificate.pkcs12),
        ssl_truststore_password=PASSWORD,
    )
    with connect(secured, "SSL", given) as connection:
        assert is_served(connection)


def test_a_session_is_renewed_before_it_ends(secured: SecuredBroker) -> None:
    """With requests on their way, too. A broker takes no second authentication within a second."""
    with connect(secured, "SASL_SSL", properties(secured, "SASL_SSL")) as connection:
        first = connection._authenticate_at
        assert first is not None
        while connection._authenticate_at == first:
            version = connection.version(MetadataRequest)
            sent = [connection.send(MetadataRequest(topics=[]), version) for _ in range(3)]
            assert all(connection.receive(one, MetadataResponse).brokers for one in sent)
        again = connection._authenticate_at
        assert again is not None
        assert again > first
        assert is_served(connection)


@pytest.mark.parametrize(
    ("protocol", "changes", "sentence"),
    [
        ("SASL_SSL", {"sasl.jaas.config": jaas("PLAIN", "alice", "guessed")},
         r"refuses user 'alice' by PLAIN: .*\(sasl.jaas.config\)"),
        ("SASL_SSL", {"sasl.mechanism": "SCRAM-SHA-256",
                      "sasl.jaas.config": jaas("SCRAM-SHA-256", "carol", "guessed")},
         r"refuses user 'carol' by SCRAM-SHA-256: .*\(sasl.jaas.config\)"),
        ("SASL_SSL", {"ssl.truststore.location": "STRANGER"},
         r"the certificate of \S+ is not accepted: .*\(ssl.truststore.location"),
        ("SSL", {"ssl.keystore.location": ""}, r"a certificate.*ssl.keystore.location\)"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_key_to_set(
    secured: SecuredBroker,
    tmp_path: Path,
    protocol: str,
    changes: dict[str, str],
    sentence: str,
) -> None:
    stranger = str(Authority(tmp_path, "stranger").certificate)
    given = {**properties(secured, protocol), **changes}
    given = {key: value.replace("STRANGER", stranger) for key, value in given.items()}
    with pytest.raises(Failure, match=sentence) as refused:
        is_served(connect(secured, protocol, given))
    assert "guessed" not in str(refused.value)


@pytest.mark.parametrize(
    ("listener", "protocol", "sentence"),
    [
        ("PLAINTEXT", "SSL", r"\(security.protocol\)"),
        ("SASL_SSL", "PLAINTEXT", r"security.protocol is PLAINTEXT"),
        ("PLAINTEXT", "SASL_PLAINTEXT", r"security.protocol is SASL_PLAINTEXT"),
        ("SASL_PLAINTEXT", "PLAINTEXT", r"it may want authentication: security.protocol"),
    ],
)
def test_a_listener_of_another_protocol_is_told(
    secured: SecuredBroker, listener: str, protocol: str, sentence: str
) -> None:
    with pytest.raises(Failure, match=sentence):
        is_served(connect(secured, listener, properties(secured, protocol)))


def test_a_certificate_for_another_host_is_refused_unless_that_is_switched_off(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = properties(secured, "SASL_SSL")
    addresses = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **named: addresses(
            secured.host if host == "elsewhere.test" else host, *rest, **named
        ),
    )

    def to_elsewhere(given: dict[str, str]) -> Connection:
        security = parse_client_security(given)
        port = secured.ports["SASL_SSL"]
        return Connection("elsewhere.test", port, timeout_s=10, security=security)

    with pytest.raises(Refused, match=r"elsewhere.test.*ssl.endpoint.identification.algorithm"):
        to_elsewhere(given)
    with to_elsewhere({**given, "ssl.endpoint.identification.algorithm": ""}) as connection:
        assert is_served(connection)


# The settings


def write(path: Path, given: dict[str, str], mode: int = 0o600) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    path.chmod(mode)
    return str(path)


def test_a_pickled_client_has_no_secret_and_reads_its_file_again(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    path = write(tmp_path / "client.properties", properties(secured, "SASL_SSL"))
    servers = secured.bootstrap_of("SASL_SSL")
    with Cluster(servers, security=read_client_security(path)) as cluster:
        pickled = pickle.dumps(cluster)
        assert b"alice-secret" not in pickled
        with pickle.loads(pickled) as copy:
            assert copy.cluster_id() == cluster.cluster_id() is not None
    with pytest.raises(TypeError, match="secrets"):
        pickle.dumps(parse_client_security(properties(secured, "SASL_SSL")))


def test_a_file_with_a_secret_that_everybody_can_read_is_refused(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    path = write(tmp_path / "client.properties", properties(secured, "SASL_SSL"), 0o644)
    with pytest.raises(WrongUse, match=r"sasl.jaas.config.*chmod o-rwx"):
        read_client_security(path)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is TLS, wanted PLAINTEXT, SSL"),
        ({"security.protcol": "SSL"}, "did you mean security.protocol?"),
        ({"security.protocol": "SASL_SSL"}, "sasl.kerberos.service.name is wanted for GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "DIGEST-MD5"},
         "sasl.mechanism is DIGEST-MD5, wanted PLAIN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is want"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
          "sasl.jaas.config": jaas("SCRAM-SHA-256", "a", "hidden")}, "whose module is"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
          "sasl.jaas.config": f'{MODULES["PLAIN"]} required username="a" password=hidden'},
         "a semicolon at the end"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
          "sasl.jaas.config": f"{MODULES['OAUTHBEARER']} required;"}, "names no file with a token"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
          "sasl.jaas.config": f"{MODULES['OAUTHBEARER']} required clientSecret=hidden;",
          "sasl.oauthbearer.token.endpoint.url": "http://issuer.test/token"}, "a secret is sent"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
          "sasl.jaas.config": f"{MODULES['OAUTHBEARER']} required clientSecret=hidden;",
          "sasl.oauthbearer.token.endpoint.url": "https://issuer.test/token"},
         "client.credentials.client.id is wanted"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
          "sasl.jaas.config": f"{MODULES['OAUTHBEARER']} required user=hidden;",
          "sasl.oauthbearer.token.endpoint.url": "https://issuer.test/token"},
         "has 1 options that do nothing"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
          "sasl.jaas.config": f"{MODULES['OAUTHBEARER']} required clientSecret=hidden;",
          "sasl.oauthbearer.token.endpoint.url": "file:///token"}, "the token is in /token"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_said_without_its_secrets(
    given: dict[str, str], sentence: str
) -> None:
    with pytest.raises(WrongUse) as wrong:
        parse_client_security(given)
    assert sentence in str(wrong.value)
    assert "hidden" not in str(wrong.value)


def test_keys_of_other_matters_and_of_java_are_left_alone() -> None:
    security = parse_client_security({
        "bootstrap.servers": "a:1",
        "group.id": "g",
        "ssl.protocol": "TLSv1.3",
        "sasl.kerberos.service.name": "kafka",
    })  # fmt: skip
    assert (security.protocol, security.has_tls, security.has_sasl) == ("PLAINTEXT", False, False)


def test_no_text_of_a_security_has_a_secret() -> None:
    security = parse_client_security({
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas("PLAIN", "alice", "hidden"),
    })  # fmt: skip
    assert security.password == "hidden"
    assert "hidden" not in f"{security} {security!r}"


# Mechanisms, byte by byte


def test_scram_is_that_of_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = sasl.Scram("SCRAM-SHA-256", "user", "pencil")
    exchange._nonce = "rOprNGfwEbeRWgbNEkqO"
    exchange._bare = f"n=user,r={exchange._nonce}"
    challenge = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = exchange.next(challenge)
    assert final is not None
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert exchange.next(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_a_broker_that_does_not_know_the_password_is_not_trusted() -> None:
    exchange = sasl.Scram("SCRAM-SHA-512", "user", "pencil")
    nonce = exchange.first().split(b"r=")[1]
    exchange.next(b"r=" + nonce + b"more,s=c2FsdA==,i=4096")
    with pytest.raises(Refused, match="impostor"):
        exchange.next(b"v=" + base64.b64encode(hashlib.sha512().digest()))


@pytest.mark.parametrize("rest", [b",s=c2FsdA==,i=1", b",s=c2FsdA==,i=99999999", b",s=%,i=4096"])
def test_a_challenge_that_would_do_harm_is_refused(rest: bytes) -> None:
    exchange = sasl.Scram("SCRAM-SHA-256", "user", "pencil")
    nonce = exchange.first().split(b"r=")[1]
    with pytest.raises(Refused):
        exchange.next(b"r=" + nonce + b"more" + rest)


def test_brokers_before_1_0_are_given_bare_tokens(tmp_path: Path) -> None:
    """And one that refuses the token closes the connection. The token is OAUTHBEARER's here."""
    token = tmp_path / "token"
    token.write_text("a.b.c\n")
    seen: list[bytes] = []

    def old_broker(connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:

            def frame() -> bytes:
                return stream.read(int.from_bytes(stream.read(4)))

            def send(body: bytes) -> None:
                connection.sendall(len(body).to_bytes(4) + body)

            asked = frame()
            kind = ApiVersionsResponse.ApiVersion
            keys = [kind(api_key=key, min_version=0, max_version=0) for key in (3, 17, 18)]
            told = ApiVersionsResponse(error_code=35, api_keys=keys).encode(0)
            send(asked[4:8] + told)
            asked = frame()
            send(asked[4:8] + ApiVersionsResponse(error_code=0, api_keys=keys).encode(0))
            asked = frame()
            seen.append(asked[:4])
            send(asked[4:8] + SaslHandshakeResponse(error_code=0, mechanisms=[]).encode(0))
            seen.append(frame())
            if len(seen) == 2:
                send(b"")
                frame()

    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULES['OAUTHBEARER']} required;",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
    }
    security = parse_client_security(given)
    with RawServer(old_broker) as server:
        Connection(server.host, server.port, timeout_s=5, security=security).close()
        assert seen == [b"\0\x11\0\0", b"n,,\x01auth=Bearer a.b.c\x01\x01"]
        with pytest.raises(Refused, match="refuses the token by OAUTHBEARER: it closed"):
            Connection(server.host, server.port, timeout_s=5, security=security)


def waits(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.recv(1)


def test_a_client_that_wants_tls_is_not_held_up_by_a_silent_peer() -> None:
    security = parse_client_security({"security.protocol": "SSL"})
    with (
        RawServer(waits) as server,
        pytest.raises(ConnectionLost, match="did not end the TLS handshake in time"),
    ):
        Connection(server.host, server.port, timeout_s=0.2, security=security)
