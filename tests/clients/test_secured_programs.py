"""Clients of Go and Node over SASL_SSL, with every mechanism that they have but Kerberos."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.drivers.program_driver import CLIENTS
from tests.support import fetched
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable
from tests.support.secured import USERS, SecuredBroker
from tests.support.tokens import jwk, key_set, token

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.timeout(180)]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BEARER = "OAUTHBEARER"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    keys = folder / "keys.json"
    keys.write_bytes(key_set([jwk("RS256", "one")]))
    given = {
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, BEARER)),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    with SecuredBroker(folder, given) as broker:
        broker.add_scram_users()
        yield broker
        assert "Traceback" not in broker.output()


def read_back(
    broker: SecuredBroker, command: Sequence[str], mechanism: str, topic: str, password: str
) -> subprocess.CompletedProcess[str]:
    with Caller(broker.host, broker.ports["PLAINTEXT"]) as caller:
        caller.create_topic(topic)
    words = (broker.bootstrap_of("SASL_SSL"), mechanism, str(broker.authority.certificate))
    return subprocess.run(
        [*command, *words, "alice", password, topic],
        env={**os.environ, "NODE_PATH": _node_modules()},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def _node_modules() -> str:
    try:
        return str(fetched.node_modules(CLIENTS / "node"))
    except NotAvailable:
        return ""


def _go(library: str) -> list[str]:
    try:
        return [str(fetched.go_program(CLIENTS / "go", "secured")), library]
    except NotAvailable as reason:
        end_of_test("go", str(reason))


def _node() -> list[str]:
    try:
        fetched.node_modules(CLIENTS / "node")
        return [fetched.runtime("node"), str(CLIENTS / "node" / "kafkajs_secured.js")]
    except NotAvailable as reason:
        end_of_test("node", str(reason))


def fresh_token() -> str:
    return token(now_s=int(time.time()))


@pytest.mark.go
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("library", ["franz-go", "kafka-go", "sarama"])
def test_clients_of_go_log_in(secured: SecuredBroker, library: str, mechanism: str) -> None:
    topic = f"{library}-{mechanism}"
    ended = read_back(secured, _go(library), mechanism, topic, USERS["alice"])
    assert ended.stdout == "over TLS\n", ended.stderr


@pytest.mark.node
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkajs_logs_in(secured: SecuredBroker, mechanism: str) -> None:
    ended = read_back(secured, _node(), mechanism, f"kafkajs-{mechanism}", USERS["alice"])
    assert ended.stdout == "over TLS\n", ended.stderr


@pytest.mark.go
@pytest.mark.parametrize("library", ["kafka-go", "sarama"])  # franz-go tries for ever
def test_a_wrong_password_is_told_to_clients_of_go(secured: SecuredBroker, library: str) -> None:
    ended = read_back(secured, _go(library), "SCRAM-SHA-512", f"{library}-wrong", "wrong")
    assert ended.returncode == 1
    assert "uthentication" in ended.stderr or "credentials" in ended.stderr


@pytest.mark.go
@pytest.mark.parametrize("library", ["franz-go", "sarama"])  # kafka-go has no OAUTHBEARER
def test_clients_of_go_log_in_with_the_token_of_an_issuer(
    secured: SecuredBroker, library: str
) -> None:
    ended = read_back(secured, _go(library), BEARER, f"{library}-{BEARER}", fresh_token())
    assert ended.stdout == "over TLS\n", ended.stderr


@pytest.mark.node
def test_kafkajs_logs_in_with_the_token_of_an_issuer(secured: SecuredBroker) -> None:
    ended = read_back(secured, _node(), BEARER, f"kafkajs-{BEARER}", fresh_token())
    assert ended.stdout == "over TLS\n", ended.stderr
