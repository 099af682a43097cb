"""Delegation tokens: the same questions to us and to Apache Kafka, Kafka's own tool and clients,
and tokens that go with their data directory to Kafka and back."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.clients.moving.closed import ClosedBroker, ClosedKafka, log_in
from tests.support.administrator import SHA_512, Administrator
from tests.support.caller import Caller
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4, Release
from tests.support.kafka_tools import run_tool
from tests.support.secured import HASHES, ScramClient, authenticate, salted_password, shake
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.clients.moving.closed import Server

pytestmark = pytest.mark.clients

USERS = ("alice", "bob", "carol", "dave", "erin")
HOUR_MS = 3_600_000
WITH_TOKENS = {
    "delegation.token.secret.key": "key-of-the-tests",
    "delegation.token.expiry.time.ms": str(HOUR_MS),
    "delegation.token.max.lifetime.ms": str(10 * HOUR_MS),
}
SHA_512_NAME = "SCRAM-SHA-512"
RELEASES = [pytest.param(one, id=one.name) for one in (KAFKA_3_9, KAFKA_4)]


def prepare(server: Server) -> None:
    """Users, a topic, and rights: carol may ask for tokens of alice, dave may see them, and erin
    any."""
    with Administrator(server.host, server.port, timeout_s=30) as admin:
        for user in USERS:
            salt = b"salt of " + user.encode()
            salted = salted_password(SHA_512_NAME, f"{user}-secret", salt, 4096)
            admin.set_password(user, SHA_512, salted)
        admin.create("orders")
        admin.allow(ResourceType.USER, "User:alice", "User:carol", Operation.CREATE_TOKENS)
        admin.allow(ResourceType.USER, "User:alice", "User:dave", Operation.DESCRIBE_TOKENS)
        admin.allow(ResourceType.DELEGATION_TOKEN, "*", "User:erin", Operation.DESCRIBE)
        admin.allow(ResourceType.TOPIC, "orders", "User:alice", Operation.WRITE)


def settle(kafka: ClosedKafka) -> None:
    """Wait until its broker knows all that was changed before. It takes over the metadata log piece
    by piece, so two pieces more have come when it knows the second topic."""
    with Administrator(kafka.host, kafka.port, timeout_s=60) as admin:
        for _ in range(2):
            name = f"settled-{os.urandom(4).hex()}"
            admin.create(name)
            topics = [MetadataRequest.Topic(name=name)]
            asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            while admin.call(asked, 9).topics[0].error_code:
                time.sleep(0.02)


def connected(server: Server, user: str, *, port: int | None = None) -> Caller:
    client = Caller(server.host, port or server.users_port)
    if port is None:
        log_in(client, SHA_512_NAME, user, f"{user}-secret")
    return client


def log_in_by_token(
    server: Server, token_id: str, secret: bytes, mechanism: str = SHA_512_NAME
) -> Caller:
    """A client that has shown the token. Raises AssertionError if it is not let in."""
    client = Caller(server.host, server.users_port)
    password = base64.b64encode(secret).decode()
    scram = ScramClient(mechanism, token_id, password, ",tokenauth=true")
    assert shake(client, mechanism).error_code == 0
    answer = authenticate(client, scram.first())
    assert answer.error_code == 0, answer.error_message
    answer = authenticate(client, scram.final(bytes(answer.auth_bytes)))
    assert answer.error_code == 0, answer.error_message
    assert scram.is_from_the_server(bytes(answer.auth_bytes))
    assert 0 < answer.session_lifetime_ms <= 10 * HOUR_MS
    return client


def create(client: Caller, version: int = 3, **asked: Any) -> Any:
    renewers = [
        CreateDelegationTokenRequest.Renewer(principal_type=kind, principal_name=name)
        for kind, name in asked.pop("renewers", ())
    ]
    fields = {"max_lifetime_ms": -1, **asked, "renewers": renewers}
    return client.call(CreateDelegationTokenRequest(**fields), version)


def renew(client: Caller, secret: bytes, period_ms: int, version: int = 2) -> Any:
    return client.call(RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms), version)


def expire(client: Caller, secret: bytes, period_ms: int, version: int = 2) -> Any:
    asked = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
    return client.call(asked, version)


def described(client: Caller, *owners: str, everyone: bool = False, version: int = 3) -> str:
    """Owners, requesters and renewers of the tokens that the client sees."""
    kind = DescribeDelegationTokenRequest.Owner
    asked = None if everyone else [kind(principal_type="User", principal_name=o) for o in owners]
    answer = client.call(DescribeDelegationTokenRequest(owners=asked), version)
    rows = sorted(
        f"{one.principal_name} by {one.token_requester_principal_name} "
        f"renewed by {[each.principal_name for each in one.renewers]} "
        f"{hours(one.expiry_timestamp - one.issue_timestamp)} of "
        f"{hours(one.max_timestamp - one.issue_timestamp)}, {len(one.hmac)} bytes"
        for one in answer.tokens
    )
    return f"{ErrorCode(answer.error_code).name} {rows}"


def hours(time_ms: int) -> str:
    return f"{time_ms / HOUR_MS:.1f} h"


def of_created(answer: Any) -> str:
    times = (
        answer.expiry_timestamp_ms - answer.issue_timestamp_ms,
        (answer.max_timestamp_ms - answer.issue_timestamp_ms),
    )
    return (
        f"{ErrorCode(answer.error_code).name} {answer.principal_type}:{answer.principal_name} by "
        f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name} "
        f"{[hours(one) for one in times]} {len(answer.token_id)} {len(answer.hmac)} "
        f"{answer.issue_timestamp_ms > 0}"
    )


class Story:
    """Questions of all users and of nobody in particular, and the answers, a line each. `settled`
    waits until what was changed is known everywhere."""

    def __init__(self, server: Server, settled: Callable[[], None]) -> None:
        self.lines: list[str] = []
        self._server = server
        self._settled = settled
        self._users = {user: connected(server, user) for user in USERS}
        self._alice, self._bob, self._carol = (self._users[user] for user in USERS[:3])
        self._nobody = connected(server, "", port=server.port)
        self._token = create(self._alice, renewers=[("User", "bob")])
        self._secret = bytes(self._token.hmac)

    def tell(self) -> list[str]:
        """All of it."""
        for part in (self._create, self._see, self._renew, self._use, self._end):
            self._settled()
            part()
        return self.lines

    def _tell(self, what: str, answer: Any) -> None:
        if not isinstance(answer, str):
            code, ends = ErrorCode(answer.error_code).name, answer.expiry_timestamp_ms
            if not answer.error_code:
                ends = hours(ends - self._token.issue_timestamp_ms)
            answer = f"{code} {ends}"
        self.lines.append(f"{what}: {answer}")

    def _create(self) -> None:
        alice = self._alice
        self._tell("alice for herself", of_created(self._token))
        for version in (1, 2):
            self._tell(f"alice, version {version}", of_created(create(alice, version)))
        for life_ms in (HOUR_MS // 2, 99 * HOUR_MS, 0):
            found = of_created(create(alice, max_lifetime_ms=life_ms))
            self._tell(f"a life of {hours(life_ms)}", found)
        self._tell("a group renews", of_created(create(alice, renewers=[("Group", "x")])))
        owner: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "alice"}
        for who, client in (("nobody", self._nobody), ("bob", self._bob), ("carol", self._carol)):
            self._tell(f"{who} for alice", of_created(create(client, **owner)))

    def _see(self) -> None:
        create(self._bob)
        self._settled()
        for who, client in self._users.items():
            self._tell(f"{who} sees", described(client, everyone=True))
            self._tell(f"{who} sees of alice", described(client, "alice"))
            self._tell(f"{who} sees of bob", described(client, "bob"))
            self._tell(f"{who} sees of nobody", described(client))
            self._tell(f"{who} sees, version 1", described(client, everyone=True, version=1))
        self._tell("nobody sees", described(self._nobody, everyone=True))

    def _renew(self) -> None:
        secret = self._secret
        for period_ms in (-1, 0, HOUR_MS // 4, 2 * HOUR_MS, 99 * HOUR_MS):
            self._tell(f"alice renews for {period_ms} ms", renew(self._alice, secret, period_ms))
            self._settled()
        for who, client in (("nobody", self._nobody), ("bob", self._bob), ("carol", self._carol)):
            self._tell(f"{who} renews", renew(client, secret, HOUR_MS))
        self._tell("what is not there is renewed", renew(self._alice, b"none", HOUR_MS))

    def _use(self) -> None:
        secret = self._secret
        holder = log_in_by_token(self._server, self._token.token_id, secret)
        self._tell("by the token", of_created(create(holder)))
        self._tell("by the token sees", described(holder, everyone=True))
        self._tell("by the token renews", renew(holder, secret, HOUR_MS))
        self._tell("by the token expires", expire(holder, secret, -1))
        topics = [MetadataRequest.Topic(name="orders")]
        (topic,) = holder.call(MetadataRequest(topics=topics), 9).topics
        self._tell("by the token sees the owner's topic", ErrorCode(topic.error_code).name)

    def _end(self) -> None:
        alice, secret = self._alice, self._secret
        self._tell("carol expires", expire(self._carol, secret, -1))
        self._tell("nobody expires", expire(self._nobody, secret, -1))
        self._tell("what is not there expires", expire(alice, b"none", -1))
        self._tell("bob expires in a while", expire(self._bob, secret, HOUR_MS // 2))
        self._settled()
        self._tell("alice expires now", expire(alice, secret, -1))
        self._settled()
        self._tell("alice sees", described(alice, everyone=True))
        self._tell("alice renews what is gone", renew(alice, secret, HOUR_MS))
        secret = bytes(create(alice).hmac)
        self._settled()
        self._tell("at this moment", expire(alice, secret, 0))
        time.sleep(0.01)
        self._settled()
        self._tell("renewing what has ended", renew(alice, secret, HOUR_MS))
        self._tell("ending what has ended later", expire(alice, secret, HOUR_MS))
        self._tell("ending what has ended", expire(alice, secret, -1))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ClosedBroker]:
    with ClosedBroker(tmp_path / "data", settings=WITH_TOKENS) as running:
        prepare(running)
        yield running


def test_who_has_a_token_acts_for_its_owner_and_is_cut_off_with_it(broker: ClosedBroker) -> None:
    alice = connected(broker, "alice")
    created = create(alice)
    secret = bytes(created.hmac)
    for mechanism in HASHES:
        by_token = log_in_by_token(broker, created.token_id, secret, mechanism)
        asked = MetadataRequest(topics=[MetadataRequest.Topic(name="orders")])
        assert by_token.call(asked, 9).topics[0].error_code == 0
        assert create(by_token).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    with pytest.raises(AssertionError, match="invalid credentials"):
        log_in_by_token(broker, created.token_id, b"another secret")
    assert expire(alice, secret, -1).error_code == 0
    with pytest.raises(ConnectionClosed):
        by_token.call(asked, 9)
    with pytest.raises(AssertionError, match="invalid credentials"):
        log_in_by_token(broker, created.token_id, secret)
    assert alice.call(asked, 9).topics[0].error_code == 0


def test_our_own_commands_log_in_with_a_token(broker: ClosedBroker, tmp_path: Path) -> None:
    created = create(connected(broker, "alice"))
    password = base64.b64encode(bytes(created.hmac)).decode()
    config = tmp_path / "token.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={SHA_512_NAME}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{created.token_id}" password="{password}" tokenauth="true";\n'
    )
    config.chmod(0o600)
    at = f"{broker.host}:{broker.users_port}"
    words = ("groups", "list", "--bootstrap", at, "--command-config", str(config), "--json")
    ended = subprocess.run(
        [sys.executable, "-m", "tools", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def ask_on(client: Caller, asked: MetadataRequest) -> None:
    while True:
        client.call(asked, 9)


def test_a_token_that_was_shortened_ends_its_sessions_then(broker: ClosedBroker) -> None:
    alice = connected(broker, "alice")
    created = create(alice)
    by_token = log_in_by_token(broker, created.token_id, bytes(created.hmac))
    assert expire(alice, bytes(created.hmac), 300).error_code == 0
    asked = MetadataRequest(topics=[])
    assert by_token.call(asked, 9).brokers
    with pytest.raises(ConnectionClosed):
        ask_on(by_token, asked)


def test_expired_tokens_are_removed(tmp_path: Path) -> None:
    settings = {
        **WITH_TOKENS,
        "delegation.token.expiry.check.interval.ms": "50",
        "delegation.token.expiry.time.ms": "200",
    }
    with ClosedBroker(tmp_path / "data", settings=settings) as broker:
        prepare(broker)
        alice = connected(broker, "alice")
        create(alice)
        while described(alice, everyone=True) != "NONE []":
            pass


def test_without_a_secret_key_there_are_no_tokens(tmp_path: Path) -> None:
    with ClosedBroker(tmp_path / "data", settings={}) as broker:
        prepare(broker)
        alice = connected(broker, "alice")
        disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert create(alice).error_code == disabled
        assert renew(alice, b"x", 1).error_code == disabled
        assert expire(alice, b"x", 1).error_code == disabled
        assert described(alice, everyone=True) == f"{disabled.name} []"


@pytest.mark.long
@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("release", RELEASES)
def test_triglot_answers_as_apache_kafka(tmp_path: Path, release: Release) -> None:
    kafka = ClosedKafka(tmp_path / "kafka", tmp_path / "logs", release, settings=WITH_TOKENS)
    with kafka:
        prepare(kafka)
        settle(kafka)
        expected = Story(kafka, lambda: settle(kafka)).tell()
    with ClosedBroker(tmp_path / "data", settings=WITH_TOKENS) as broker:
        prepare(broker)
        found = Story(broker, lambda: None).tell()
    assert found == expected


TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
ID = re.compile(r"^(\S{22})\s+(\S+==)\s", re.M)


@pytest.mark.long
@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("release", RELEASES)
def test_kafkas_tool_and_its_clients_use_tokens_and_they_move(
    tmp_path: Path, release: Release
) -> None:
    data = tmp_path / "data"
    client = tmp_path / "alice.properties"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    common = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={SHA_512_NAME}\n"
    client.write_text(
        f'{common}sasl.jaas.config={login} username="alice" password="alice-secret";\n'
    )
    broker = ClosedBroker(data, settings=WITH_TOKENS)
    broker.start()
    try:
        prepare(broker)
        bootstrap = ("--bootstrap-server", f"{broker.host}:{broker.users_port}")
        common_words = (*bootstrap, "--command-config", str(client))

        def tool(*words: str) -> str:
            ended = run_tool(release, TOOL, *common_words, *words, folder=tmp_path)
            assert ended.code == 0, ended
            return ended.out

        made = ID.search(tool("--create", "--max-life-time-period", "-1"))
        assert made is not None
        token_id, secret = made[1], base64.b64decode(made[2])
        assert token_id in tool("--describe", "--owner-principal", "User:alice")
        tool("--renew", "--renew-time-period", "-1", "--hmac", made[2])
        by_token = tmp_path / "token.properties"
        by_token.write_text(
            f'{common}sasl.jaas.config={login} username="{token_id}" password="{made[2]}" '
            'tokenauth="true";\n'
        )
        listed = run_tool(
            release,
            "org.apache.kafka.tools.TopicCommand",
            *(*bootstrap, "--command-config", str(by_token), "--list"),
            folder=tmp_path,
        )
        assert listed.out.split() == ["orders"], listed
        tool("--expire", "--expiry-time-period", str(HOUR_MS), "--hmac", made[2])
    finally:
        broker.stop()
    with ClosedKafka(tmp_path / "kafka", data, release, settings=WITH_TOKENS) as kafka:
        log_in_by_token(kafka, token_id, secret)
        created = create(connected(kafka, "bob"))
    with ClosedBroker(data, settings=WITH_TOKENS) as broker:
        log_in_by_token(broker, token_id, secret)
        log_in_by_token(broker, created.token_id, bytes(created.hmac))
        assert expire(connected(broker, "alice"), secret, -1).error_code == 0
