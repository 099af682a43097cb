"""Passwords are in no log, answer, error, metric, text of an object or list of processes."""

from __future__ import annotations

import re
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker.metrics.listener import Credentials
from broker.security.credentials import parse_new_credential
from broker.security.sasl.plain import PlainExchange
from broker.security.sasl.scram import SHA_256, credential_of_password
from config import ConfigError, load
from config.jaas import PLAIN_LOGIN_MODULE, parse_login_module
from config.keystores import PrivateKey
from config.listener_security import ListenerSecurity
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.registry import APIS
from tests.support.broker_changes import SET, alter
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.certificates import Authority, encrypted
from tests.support.secured import ScramClient, authenticate, send_token, shake
from tests.support.server_process import free_port
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRETS = {
    "plain": "of-plain-zx81",
    "scram": "of-scram-zx82",
    "key": "of-key-zx83",
    "token": "of-metrics-zx84",
    "set later": "of-later-zx85",
    "guess": "of-guess-zx86",
}
JAAS = f'{PLAIN_LOGIN_MODULE} required user_alice="{SECRETS["plain"]}";'
BEARER = {"Authorization": f"Bearer {SECRETS['token']}"}
PATH = "listener.name.sasl.plain.sasl.jaas.config"


def shown_in(text: str | bytes) -> list[str]:
    """Which secrets a text has."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    return [name for name, secret in SECRETS.items() if secret in text]


class Guarded(BrokerProcess):
    """A broker with secrets in its files and none on its command line."""

    READY_LINE = re.compile(r'(listening on 127\.0\.0\.1:|"port": )(?P<port>\d+)')

    def __init__(self, folder: Path, *arguments: str) -> None:
        issued = Authority(folder).issue("broker")
        file, users, pem = (folder / name for name in ("server.properties", "users", "keys.pem"))
        pem.write_text(encrypted(issued.key, SECRETS["key"]) + issued.certificate.read_text())
        users.write_text(f"SCRAM-SHA-256=[name=bob,password={SECRETS['scram']}]\n")
        self.sasl_port, self.metrics_port = free_port(), free_port()
        file.write_text(
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL\n"
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n"
            f"{PATH}={JAAS}\n"
            f"ssl.keystore.location={pem}\nssl.key.password={SECRETS['key']}\n"
            f"metrics.port={self.metrics_port}\nmetrics.bearer.token={SECRETS['token']}\n"
        )
        for path in (file, users, pem):
            path.chmod(0o600)
        ports = {"PLAINTEXT": free_port(), "SASL": self.sasl_port, "TLS": free_port()}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        super().__init__(folder / "data", settings={"listeners": listeners}, may_fork=False)
        given = ("--config", str(file), "--add-scram", f"@{users}", "--log-level", "debug")
        self.arguments = (*given, *arguments)

    def sasl(self) -> Caller:
        return Caller(self.host, self.sasl_port)


@pytest.fixture(scope="module", params=["lines", "json"])
def guarded(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Guarded]:
    arguments = ("--json",) if request.param == "json" else ()
    with Guarded(tmp_path_factory.mktemp("guarded"), *arguments) as broker:
        yield broker


@pytest.fixture
def admin(guarded: Guarded) -> Iterator[Caller]:
    with Caller(guarded.host, guarded.port) as admin:
        yield admin


def test_nothing_that_the_broker_writes_has_a_password(guarded: Guarded, admin: Caller) -> None:
    for token in (f"\0alice\0{SECRETS['plain']}", f"\0alice\0{SECRETS['guess']}", SECRETS["guess"]):
        with guarded.sasl() as client:
            shake(client, "PLAIN")
            answer = authenticate(client, token.encode())
            assert shown_in(repr(answer.error_message)) == []
        with guarded.sasl() as client:
            shake(client, "PLAIN", 0)
            with suppress(ConnectionClosed):
                send_token(client, token.encode())
    for password in (SECRETS["scram"], SECRETS["guess"]):
        scram = ScramClient("SCRAM-SHA-256", "bob", password)
        with guarded.sasl() as client:
            shake(client, "SCRAM-SHA-256")
            challenge = authenticate(client, scram.first())
            answer = authenticate(client, scram.final(challenge.auth_bytes))
            assert (answer.error_code == 0) == (password == SECRETS["scram"])
    # Where a token is taken for a request, or for a mechanism.
    with guarded.sasl() as client:
        client.send_raw(len(SECRETS["guess"]).to_bytes(4, "big") + SECRETS["guess"].encode())
        assert client.closed_by_server()
    with guarded.sasl() as client:
        shake(client, "PLAIN")
        shake(client, SECRETS["guess"])
    later = f'{PLAIN_LOGIN_MODULE} required user_alice="{SECRETS["set later"]}";'
    assert alter(admin, (PATH, SET, later)).error_code == 0
    for wrong in (f"{later} {SECRETS['guess']}", SECRETS["guess"]):
        refused = alter(admin, (PATH, SET, wrong))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert shown_in(refused.error_message or "") == []
    refused = alter(admin, ("ssl.key.password", SET, SECRETS["guess"]))
    assert shown_in(refused.error_message or "") == []

    assert shown_in(guarded.output()) == []
    assert "authentication failed" in guarded.output()


def test_a_description_of_the_broker_has_no_password(guarded: Guarded, admin: Caller) -> None:
    asked = DescribeConfigsRequest.Resource(
        resource_type=4, resource_name="1", configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[asked], include_synonyms=True, include_documentation=True
    )
    for version in range(APIS[32].min_version, APIS[32].max_version + 1):
        api = APIS[32]
        sent = admin.send(request, version)
        answer = admin.receive(api, version, sent)
        (result,) = answer.results
        assert {PATH, "ssl.key.password"} <= {one.name for one in result.configs}
        assert shown_in(repr(answer)) == []


def test_the_metrics_and_the_list_of_processes_have_no_password(guarded: Guarded) -> None:
    for path in ("/metrics", "/client-metrics", f"/{SECRETS['guess']}"):
        connection = HTTPConnection("127.0.0.1", guarded.metrics_port, timeout=10)
        with closing(connection):
            connection.request("GET", path, headers=BEARER)
            answer = connection.getresponse()
            assert (answer.status == 200) == (path[1] != "o")
            assert shown_in(answer.read()) == []
    for name in ("cmdline", "environ"):
        assert shown_in(Path(f"/proc/{guarded.pid}/{name}").read_bytes()) == []


def test_no_text_of_an_object_has_a_password() -> None:
    secret = SECRETS["plain"]
    settings = load(
        overrides={
            PATH: JAAS,
            "metrics.bearer.token": secret,
            "ssl.keystore.password": secret,
        }
    )
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name="bob", mechanism=1, iterations=4096, salt=b"salt", salted_password=secret.encode()
    )
    for one in (
        settings,
        settings.layers,
        ListenerSecurity(settings, "SASL", "PLAIN"),
        parse_login_module(JAAS),
        PlainExchange({"alice": secret}),
        parse_new_credential(f"SCRAM-SHA-256=[name=bob,password={secret}]"),
        PrivateKey(secret.encode(), secret, "keys.pem"),
        Credentials(f"a:{secret}", secret),
        SaslAuthenticateRequest(auth_bytes=f"\0alice\0{secret}".encode()),
        AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]),
    ):
        assert shown_in(repr(one)) == shown_in(str(one)) == [], type(one)
    credential = credential_of_password(SHA_256, secret, b"0123456789abcdef", 4096)
    assert repr(credential.stored_key) not in repr(credential)


@pytest.mark.parametrize("text", [JAAS[:-1], JAAS.replace("required", "maybe"), SECRETS["plain"]])
def test_an_error_in_a_secret_does_not_tell_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=SASL://127.0.0.1:0\nlistener.security.protocol.map=SASL:SASL_PLAINTEXT\n"
        f"sasl.enabled.mechanisms=PLAIN\n{PATH}={text}\n"
    )
    with pytest.raises(ConfigError) as error:
        load(properties_file=file)
    assert shown_in(str(error.value)) == shown_in(repr(error.value)) == []
