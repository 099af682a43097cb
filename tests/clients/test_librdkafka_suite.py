"""librdkafka's own test suite, its tests with a broker: at an open door, and with SASL_SSL.

`TEST_LIBRDKAFKA` names a checkout of librdkafka (https://github.com/confluentinc/librdkafka, in C,
which is not part of this project) in which `./configure && make libs && make -C tests build` has
been run. Its tests that need no broker are left out, and those of what is not served here: share
groups (KIP-932), followers to fetch from, failures of sockets that it makes itself, and 0098, which
compiles a Java program in a checkout of Kafka. Of 0126 (OIDC) the parts for share groups are left
out.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from tests.support import token_server
from tests.support.fetched import NotAvailable
from tests.support.kafka_release import KAFKA_4
from tests.support.secured import USERS, SecuredBroker
from tests.support.token_server import TokenServer
from tests.support.tokens import jwk, key_set

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SUITE = os.environ.get("TEST_LIBRDKAFKA", "")
REQUIRED = bool(os.environ.get("TEST_REQUIRE_LIBRDKAFKA"))
TEST_S = 600
RELEASE = "4.1.0"
"""The Kafka that it is told it has before it: groups have settings, and nobody shares."""
TOOLS = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}

TESTS = (
    *("0001", "0002", "0003", "0005", "0007", "0008", "0011", "0012", "0013", "0014", "0015"),
    *("0017", "0018", "0019", "0020", "0021", "0022", "0026", "0029", "0030", "0031", "0033"),
    *("0034", "0035", "0036", "0039", "0040", "0041", "0042", "0044", "0045", "0048", "0050"),
    *("0051", "0052", "0053", "0054", "0055", "0056", "0057", "0059", "0060", "0061", "0063"),
    *("0064", "0065", "0067", "0069", "0070", "0073", "0077", "0081", "0083", "0084"),
    *("0085", "0086", "0089", "0090", "0091", "0093", "0099", "0102", "0103"),
    *("0109", "0110", "0112", "0113", "0114", "0115", "0119", "0122", "0123", "0125"),
    *("0127", "0129", "0130", "0132", "0135", "0137", "0139", "0140"),
)
OF_TWO_AT_ONCE = ("0118",)
"""Two members have to join in one rebalance: else one may still commit where it should not."""
NEVER_QUICK = ("0082",)
"""Left out of its quick mode."""
BEFORE_4 = ("0092",)
"""Of what Kafka 4 has no more: format 1 of records."""
RELEASE_BEFORE_4 = "3.9.1"
WITHOUT_AUTO_CREATION = ("0045", "0107", "0111")
"""Those of its scenario `noautocreate`."""
OIDC_PARTS = ("do_test_produce_consumer_with_OIDC", "do_test_OIDC_aws_iam")
"""The parts of 0126 that need no share groups, by the beginnings of their names."""
PASSPHRASE = "the passphrase of a key"


class Door(NamedTuple):
    """How the suite comes in."""

    name: str
    protocol: str
    mechanism: str = ""


DOORS = (
    Door("open", "PLAINTEXT"),
    Door("scram", "SASL_SSL", "SCRAM-SHA-512"),
    Door("plain", "SASL_SSL", "PLAIN"),
)
TOKENS = Door("tokens", "SASL_SSL", "OAUTHBEARER")


class Suite:
    """The suite at one broker. `settings` are more of librdkafka's, `environ` of the suite."""

    def __init__(
        self,
        folder: Path,
        broker: SecuredBroker,
        door: Door,
        *,
        settings: Mapping[str, str],
        environ: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._environ = environ
        self._bootstrap = broker.bootstrap_of(door.protocol)
        self._java_properties: list[str] = []
        lines = {
            "bootstrap.servers": self._bootstrap,
            "security.protocol": door.protocol,
            "test.timeout.multiplier": "4",
            "test.topic.random": "true",
        }
        if door.mechanism:
            lines |= {
                "ssl.ca.location": str(broker.authority.certificate),
                "sasl.mechanisms": door.mechanism,
                "sasl.username": "alice",
                "sasl.password": USERS["alice"],
            }
        lines |= settings
        self._conf = folder / "test.conf"
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self._kafka = folder / "kafka"
        self._make_tools()

    def _make_tools(self) -> None:
        """The commands that some of its tests call; they go to the open listener, as they do."""
        (self._kafka / "bin").mkdir(parents=True)
        java = shlex.join(KAFKA_4.tools.java(self._folder, "tool", quiet=True))
        for name, tool in TOOLS.items():
            script = self._kafka / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {java} {tool} "$@"\n')
            script.chmod(0o755)

    def run(
        self,
        test: str,
        *options: str,
        quick: bool = True,
        part: str | None = None,
        release: str = RELEASE,
    ) -> subprocess.CompletedProcess[str]:
        """All parts of a test, or those whose names begin with `part`; of all the quick ones, or
        every one."""
        checkout = Path(SUITE).resolve()
        environ = {
            **os.environ,
            **self._environ,
            **({"SUBTESTS": part} if part else {}),
            "LD_LIBRARY_PATH": f"{checkout}/src:{checkout}/src-cpp",
            "RDKAFKA_TEST_CONF": str(self._conf),
            "TESTS": test,
            "TEST_KAFKA_VERSION": release,
            "KAFKA_PATH": str(self._kafka),
            "BROKERS": self._bootstrap,
        }
        command = ["./test-runner", "-p1", "-L", "-K", "-E", *options]
        if quick:
            command.append("-Q")
        return subprocess.run(
            command,
            cwd=checkout / "tests",
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TEST_S,
            check=False,
        )


@contextmanager
def suite_at(
    folder: Path,
    door: Door,
    settings: Mapping[str, str] | None = None,
    *,
    of_client: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Suite]:
    """The suite at a broker with more `settings`; `of_client` are librdkafka's."""
    if not SUITE:
        assert not REQUIRED, "TEST_LIBRDKAFKA=/path/to/librdkafka make librdkafka-suite"
        pytest.skip("TEST_LIBRDKAFKA does not name a built checkout")
    given = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Its tests give and take rights of single topics; everything else is open.
        "allow.everyone.if.no.acl.found": "true",
        "replication.factor.clamp": "true",
        "num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
    }
    with SecuredBroker(folder, given) as broker:
        broker.add_scram_users()
        try:
            yield Suite(folder, broker, door, settings=of_client or {}, environ=environ or {})
        except NotAvailable as reason:
            pytest.skip(str(reason))
        assert "Traceback" not in broker.output()


@pytest.fixture(scope="module", params=DOORS, ids=lambda door: door.name)
def suite(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Suite]:
    with suite_at(tmp_path_factory.mktemp("suite"), request.param) as suite:
        yield suite


@pytest.fixture(scope="module", params=DOORS, ids=lambda door: door.name)
def without_auto_creation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Suite]:
    settings = {"auto.create.topics.enable": "false"}
    with suite_at(tmp_path_factory.mktemp("suite"), request.param, settings) as suite:
        yield suite


@pytest.fixture(params=DOORS, ids=lambda door: door.name)
def with_time_to_join(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Suite]:
    settings = {"group.initial.rebalance.delay.ms": "3000"}
    with suite_at(tmp_path, request.param, settings) as suite:
        yield suite


@pytest.fixture(params=DOORS[1:], ids=lambda door: door.name)
def with_sessions_that_end(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Suite]:
    settings = {"connections.max.reauth.ms": "10000"}
    with suite_at(tmp_path, request.param, settings) as suite:
        yield suite


def _write_key(path: Path, encryption: KeySerializationEncryption) -> str:
    """The key of assertions, as PEM; its path."""
    key = token_server.assertion_key()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return str(path)


@pytest.fixture
def with_tokens(tmp_path: Path) -> Iterator[Suite]:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set([jwk("RS256", "one")]))
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "us",
    }
    encrypted = BestAvailableEncryption(PASSPHRASE.encode())
    with TokenServer() as issuer:
        of_client = {
            "sasl.oauthbearer.method": "OIDC",
            "sasl.oauthbearer.client.id": token_server.CLIENT_ID,
            "sasl.oauthbearer.client.secret": token_server.CLIENT_SECRET,
            "sasl.oauthbearer.scope": token_server.SCOPE,
            "sasl.oauthbearer.token.endpoint.url": issuer.url(),
        }
        environ = {
            "VALID_OIDC_URL": issuer.url(),
            "INVALID_OIDC_URL": issuer.url("malformed"),
            "EXPIRED_TOKEN_OIDC_URL": issuer.url("expired"),
            "OAUTHBEARER_CLIENT_PRIVATE_KEY": _write_key(tmp_path / "key.pem", NoEncryption()),
            "OAUTHBEARER_CLIENT_PRIVATE_KEY_ENCRYPTED": _write_key(
                tmp_path / "encrypted.pem", encrypted
            ),
            "OAUTHBEARER_CLIENT_PRIVATE_KEY_PASSWORD": PASSPHRASE,
        }
        with suite_at(tmp_path, TOKENS, settings, of_client=of_client, environ=environ) as suite:
            yield suite


def judge(test: str, ended: subprocess.CompletedProcess[str]) -> None:
    """Fail, or skip where the suite did, with its reason."""
    # A number may be that of several tests. `<MAIN>` stands in the table too, and always passes.
    outcomes = set(re.findall(rf"\b{test}_\w+ +\| +([A-Z]+)", ended.stdout))
    assert ended.returncode == 0, ended.stdout[-6000:]
    if outcomes == {"SKIPPED"}:
        reasons = re.findall(r"SKIPPING TEST: (.*)", ended.stdout)
        pytest.skip(reasons[0] if reasons else "the suite does not say why")
    assert "PASSED" in outcomes, ended.stdout[-3000:]
    assert outcomes <= {"PASSED", "SKIPPED"}, ended.stdout[-3000:]


@pytest.mark.timeout(TEST_S + 60)
@pytest.mark.parametrize("test", TESTS)
def test_a_test_of_librdkafka_is_passed(suite: Suite, test: str) -> None:
    judge(test, suite.run(test))


@pytest.mark.timeout(TEST_S + 60)
@pytest.mark.parametrize("test", OF_TWO_AT_ONCE)
def test_a_test_of_librdkafka_of_members_that_join_together_is_passed(
    with_time_to_join: Suite, test: str
) -> None:
    judge(test, with_time_to_join.run(test))


@pytest.mark.timeout(TEST_S + 60)
@pytest.mark.parametrize("test", NEVER_QUICK)
def test_a_test_of_librdkafka_that_is_not_quick_is_passed(suite: Suite, test: str) -> None:
    judge(test, suite.run(test, quick=False))


@pytest.mark.timeout(TEST_S + 60)
@pytest.mark.parametrize("test", BEFORE_4)
def test_a_test_of_librdkafka_of_what_kafka_4_has_no_more_is_passed(
    suite: Suite, test: str
) -> None:
    judge(test, suite.run(test, release=RELEASE_BEFORE_4))


@pytest.mark.timeout(TEST_S + 60)
@pytest.mark.parametrize("test", WITHOUT_AUTO_CREATION)
def test_a_test_of_librdkafka_is_passed_where_topics_are_not_made_by_themselves(
    without_auto_creation: Suite, test: str
) -> None:
    judge(test, without_auto_creation.run(test, "-s", "noautocreate"))


@pytest.mark.timeout(TEST_S + 60)
def test_the_test_of_librdkafka_that_authenticates_again_is_passed(
    with_sessions_that_end: Suite,
) -> None:
    judge("0142", with_sessions_that_end.run("0142"))


@pytest.mark.timeout(TEST_S + 60)
@pytest.mark.parametrize("part", OIDC_PARTS)
def test_the_test_of_librdkafka_that_gets_its_tokens_of_an_issuer_is_passed(
    with_tokens: Suite, part: str
) -> None:
    ended = with_tokens.run("0126", quick=False, part=part)
    judge("0126", ended)
    assert f"[ {part}" in ended.stdout, ended.stdout[-3000:]
