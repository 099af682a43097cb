"""Real clients that log in with the token of an issuer (OAUTHBEARER)."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import time
import warnings
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import jwt
import pytest

from client.connection import Connection
from client.errors import Refused as RefusedUs
from client.security import parse_client_security
from config.security_rules import UNSECURED_VALIDATOR
from protocol.errors import ErrorCode
from tests.clients.available import end_of_test
from tests.clients.drivers.driver import Refused
from tests.clients.drivers.old_program_driver import old_java_driver
from tests.clients.records import FIRST_TIMESTAMP_MS, Record
from tests.support.certificates import Authority
from tests.support.fetched import NotAvailable
from tests.support.kafka_release import RELEASES, Release
from tests.support.kafka_tools import run_tool
from tests.support.secured import SecuredBroker, authenticate, send_token, shake
from tests.support.tokens import jwk, key_set, response, token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.clients.drivers.old_program_driver import OldProgramDriver

pytestmark = pytest.mark.clients

RECORDS = [b"one", b"two", b"three"]
LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"


def fresh(claims: dict[str, Any] | None = None, **how: Any) -> str:
    return token(claims, now_s=int(time.time()), **how)


def unsigned() -> str:
    """What the login module of Java makes by itself: a token that nobody has signed."""
    return jwt.encode({"sub": "dev", "exp": int(time.time()) + 60}, "", algorithm="none")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("bearer")
    keys = folder / "keys.json"
    keys.write_bytes(key_set([jwk("RS256", "one"), jwk("ES256", "two")]))
    given = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        JWKS_URL: keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "us",
    }
    with SecuredBroker(folder, given) as broker:
        yield broker
        assert "Traceback" not in broker.output()


def with_kafka_python(broker: SecuredBroker, topic: str) -> list[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer, KafkaProducer
        from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return fresh()

    given: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_of("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(broker.authority.certificate),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    producer = KafkaProducer(**given)
    for record in RECORDS:
        producer.send(topic, record).get(timeout=20)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **given)
    found = [next(consumer).value for _ in RECORDS]
    consumer.close()
    return found


def with_confluent(broker: SecuredBroker, topic: str) -> list[bytes]:
    from confluent_kafka import Consumer, Producer

    given: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_of("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.authority.certificate),
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _config: (fresh(algorithm="ES256", key_id="two"), time.time() + 3600),
    }
    producer = Producer(given)
    for record in RECORDS:
        producer.produce(topic, record)
    assert producer.flush(20) == 0
    consumer = Consumer({**given, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(RECORDS):
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        found.append(message.value() or b"")
    consumer.close()
    return found


def with_aiokafka(broker: SecuredBroker, topic: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return fresh()

    async def run() -> list[bytes]:
        given: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_of("SASL_SSL"),
            "security_protocol": "SASL_SSL",
            "ssl_context": broker.context(),
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Provider(),
        }
        async with AIOKafkaProducer(**given) as producer:
            for record in RECORDS:
                await producer.send_and_wait(topic, record)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **given) as consumer:
            return [(await consumer.getone()).value for _ in RECORDS]

    return asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("use", [with_kafka_python, with_confluent, with_aiokafka])
def test_records_come_back_for_a_client_with_a_token(
    secured: SecuredBroker, use: Callable[[SecuredBroker, str], list[bytes]], topic: str
) -> None:
    assert use(secured, topic) == RECORDS


def test_our_client_logs_in_with_the_token_in_a_file(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    security = parse_client_security({
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{LOGIN_MODULE} required;",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.authority.certificate),
    })  # fmt: skip
    file.write_text(fresh())
    host, port = secured.host, secured.ports["SASL_SSL"]
    Connection(host, port, timeout_s=20, security=security).close()
    file.write_text(fresh({"aud": "console"}))
    with pytest.raises(RefusedUs, match=r"refuses the token by OAUTHBEARER: .*invalid_token"):
        Connection(host, port, timeout_s=20, security=security)
    assert "another audience" in secured.output()


TOPICS = "org.apache.kafka.tools.TopicCommand"
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"


@pytest.mark.long
@pytest.mark.java
@pytest.mark.parametrize("release", [pytest.param(one, id=one.name) for one in RELEASES])
def test_java_logs_in_with_the_token_in_a_file(
    secured: SecuredBroker, release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    options = f"{ALLOWED}.urls={file.as_uri()} {ALLOWED}.files={file}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={LOGIN_MODULE} required;\n"
        f"sasl.login.callback.handler.class={handler}\n"
        f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={secured.authority.certificate}\n"
    )
    bootstrap = secured.bootstrap_of("SASL_SSL")
    how = ("--bootstrap-server", bootstrap, "--command-config", str(properties))

    def run(*words: str) -> str:
        try:
            ended = run_tool(release, TOPICS, *how, *words, folder=tmp_path)
        except NotAvailable as reason:
            end_of_test("java", str(reason))
        return ended.out + ended.err

    topic = f"java-{release.name}"
    file.write_text(fresh({"scope": "kafka"}))
    assert "Created topic" in run("--create", "--topic", topic)
    assert topic in run("--list")
    file.write_text(fresh({"aud": "console", "scope": "kafka"}))
    assert "invalid_token" in run("--list")


@pytest.fixture(scope="module")
def java_2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldProgramDriver]:
    try:
        driver = old_java_driver("2.8.2", tmp_path_factory.mktemp("java"), "bearer")
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    yield driver
    driver.program.close()


@pytest.mark.long
@pytest.mark.java
def test_java_2_logs_in_with_a_signed_token_by_a_handler_of_its_own(
    secured: SecuredBroker, java_2: OldProgramDriver, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    java_2.settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.authority.certificate),
        "sasl.mechanism": "OAUTHBEARER",
        # The words of a command stand between spaces; tabs will do.
        "sasl.jaas.config": f'{LOGIN_MODULE}\trequired\ttokenFile="{file}";',
        "sasl.login.callback.handler.class": "triglot.TokenFile",
    }
    bootstrap = secured.bootstrap_of("SASL_SSL")
    records = [
        Record(0, FIRST_TIMESTAMP_MS + n, b"%d" % n, value) for n, value in enumerate(RECORDS)
    ]

    file.write_text(fresh())
    java_2.produce(bootstrap, topic, records, codec="none")
    found = java_2.consume(bootstrap, topic, {0: len(records)})[0]
    assert [record.value for _, record in found] == RECORDS

    for refused in (fresh({"aud": "console"}), unsigned()):
        file.write_text(refused)
        with pytest.raises(Refused, match="invalid_token"):
            java_2.produce(bootstrap, topic, records, codec="none")


def test_a_session_ends_with_its_token(secured: SecuredBroker) -> None:
    with secured.connect("SASL_SSL") as client:
        shake(client, "OAUTHBEARER")
        answer = authenticate(client, response(fresh({"exp": int(time.time()) + 100})))
        assert answer.error_code == 0
        assert 95_000 < answer.session_lifetime_ms <= 100_000


def test_a_token_of_another_user_does_not_take_over_a_session(secured: SecuredBroker) -> None:
    with secured.connect("SASL_SSL") as client:
        shake(client, "OAUTHBEARER")
        assert authenticate(client, response(fresh())).error_code == 0
        shake(client, "OAUTHBEARER")
        answer = authenticate(client, response(fresh({"sub": "bob"})))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in answer.error_message


def test_tokens_without_a_header_log_in_too(secured: SecuredBroker) -> None:
    with secured.connect("SASL_PLAINTEXT") as client:
        assert shake(client, "OAUTHBEARER", 0).error_code == 0
        assert send_token(client, response(fresh())) == b""


def test_keys_come_from_a_url_when_the_first_token_does_and_no_token_is_logged(
    tmp_path: Path,
) -> None:
    asked = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path == "/away":
                self.send_response(302)
                self.send_header("Location", "/keys")
                self.end_headers()
                return
            data = key_set([jwk("ES256", "two")])
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    given = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"listener.name.sasl_ssl.oauthbearer.{JWKS_URL}": f"{url}/keys",
        f"listener.name.sasl_plaintext.oauthbearer.{JWKS_URL}": f"{url}/away",
    }
    bearer_token = fresh(algorithm="ES256", key_id="two")
    try:
        with SecuredBroker(tmp_path, given) as broker:
            assert asked == []
            for _ in range(2):
                with broker.connect("SASL_SSL") as client:
                    shake(client, "OAUTHBEARER")
                    assert authenticate(client, response(bearer_token)).error_code == 0
            assert asked == ["/keys"]
            with broker.connect("SASL_PLAINTEXT") as client:
                shake(client, "OAUTHBEARER")
                answer = authenticate(client, response(bearer_token))
                assert answer.auth_bytes == b'{"status":"invalid_token"}'
                last = authenticate(client, b"\x01")
                assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert asked == ["/keys", "/away"]
            assert "no keys to check a token" in broker.output()
            assert bearer_token not in broker.output()
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("trusted", [True, False])
def test_keys_are_taken_of_an_https_endpoint_whose_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(key_set([jwk("ES256", "two")]))

        def log_message(self, *_: object) -> None: ...

    (tmp_path / "issuer").mkdir()
    authority = Authority(tmp_path / "issuer")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("issuer").pem)
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    given = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        JWKS_URL: f"https://127.0.0.1:{server.server_port}/keys",
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    try:
        with SecuredBroker(tmp_path, given) as broker, broker.connect("SASL_PLAINTEXT") as client:
            shake(client, "OAUTHBEARER")
            bearer_token = fresh(algorithm="ES256", key_id="two")
            answer = authenticate(client, response(bearer_token))
            assert answer.auth_bytes == (b"" if trusted else b'{"status":"invalid_token"}')
            if not trusted:
                authenticate(client, b"\x01")
                assert "CERTIFICATE_VERIFY_FAILED" in broker.output()
    finally:
        server.shutdown()
        server.server_close()


def test_our_client_asks_an_issuer_for_its_token(secured: SecuredBroker) -> None:
    asked = []

    class Issuer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.headers["Authorization"], form))
            secret = base64.b64encode(b"app:app-secret").decode()
            known = self.headers["Authorization"] == f"Basic {secret}"
            found = {"access_token": fresh()} if known else {"error": "invalid_client"}
            self.send_response(200 if known else 401)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Issuer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{server.server_port}/token",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.authority.certificate),
    }
    in_keys = {
        "sasl.jaas.config": f"{LOGIN_MODULE} required;",
        "sasl.oauthbearer.client.credentials.client.id": "app",
        "sasl.oauthbearer.client.credentials.client.secret": "app-secret",
        "sasl.oauthbearer.scope": "read write",
    }
    in_jaas = {
        "sasl.jaas.config": f'{LOGIN_MODULE} required clientId="app" clientSecret="app-secret";'
    }
    wrong = in_keys | {"sasl.oauthbearer.client.credentials.client.secret": "other-secret"}
    host, port = secured.host, secured.ports["SASL_SSL"]
    try:
        for more in (in_keys, in_jaas):
            security = parse_client_security(given | more)
            assert "app-secret" not in f"{security!r} {security.token_endpoint!r}"
            Connection(host, port, timeout_s=20, security=security).close()
        security = parse_client_security(given | wrong)
        with pytest.raises(RefusedUs, match="gives no token: HTTP 401: invalid_client") as refused:
            Connection(host, port, timeout_s=20, security=security)
        assert "other-secret" not in str(refused.value)
    finally:
        server.shutdown()
        server.server_close()
    assert [form for _, form in asked] == [
        b"grant_type=client_credentials&scope=read+write",
        b"grant_type=client_credentials",
        b"grant_type=client_credentials&scope=read+write",
    ]


def test_unsecured_tokens_are_taken_where_a_switch_says_so_and_the_start_says_it(
    tmp_path: Path,
) -> None:
    given = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
            UNSECURED_VALIDATOR
        ),
        f"listener.name.sasl_ssl.oauthbearer.{JWKS_URL}": "http://127.0.0.1:1/keys",
    }
    with SecuredBroker(tmp_path, given) as broker:
        for protocol, answered in (("SASL_PLAINTEXT", b""), ("SASL_SSL", b"{")):
            with broker.connect(protocol) as client:
                shake(client, "OAUTHBEARER")
                assert authenticate(client, response(unsigned())).auth_bytes[:1] == answered
        assert "whoever reaches this listener may be anyone" in broker.output()
