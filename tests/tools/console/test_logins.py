"""Users log in as their clients do, and see what the broker lets them see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster, TopicPartition
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.messages.create_acls import CreateAclsRequest
from protocol.records.builder import build_batch
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.console import ConsoleClient
from tests.support.secured import PROTOCOLS, SecuredBroker
from tools.console import logins
from tools.console.logins import Door, Logins

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.console import Answer

RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
DOOR = Door({1: "127.0.0.1:9092"}, "SASL_PLAINTEXT", ("PLAIN",), "")


class SecuredWithConsole(SecuredBroker):
    """One with a console, on some of the listeners."""

    def __init__(self, folder: Path, protocols: tuple[str, ...]) -> None:
        super().__init__(folder, RULES)
        self.arguments = ("--console", "127.0.0.1:0")
        self.settings["listeners"] = ",".join(
            f"{name}://{self.host}:{self.ports[name]}" for name in protocols
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredWithConsole]:
    """alice may read `hers`; bob may nothing."""
    with SecuredWithConsole(tmp_path_factory.mktemp("logins"), PROTOCOLS) as running:
        make_topics(running)
        running.add_scram_users()
        yield running
        assert "Traceback" not in running.output()
        assert "alice-secret" not in running.output()


def make_topics(running: SecuredBroker) -> None:
    with Cluster(running.bootstrap_of("PLAINTEXT")) as client:
        for topic in ("hers", "others"):
            client.create_topic(topic, 1)
            batch = build_batch([(0, None, f"in {topic}".encode(), ())])
            client.produce(TopicPartition(topic, 0), [batch])
    rules = [
        CreateAclsRequest.Creation(
            resource_type=ResourceType.TOPIC,
            resource_name="hers",
            resource_pattern_type=PatternType.LITERAL,
            principal="User:alice",
            host="*",
            operation=operation,
            permission_type=Permission.ALLOW,
        )
        for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS)
    ]
    with Caller(running.host, running.ports["PLAINTEXT"]) as caller:
        answer = caller.call(CreateAclsRequest(creations=rules))
        assert {one.error_code for one in answer.results} == {0}


def logged_in(
    broker: BrokerProcess, user: str, password: str, mechanism: str = "PLAIN"
) -> tuple[ConsoleClient, Answer]:
    console = ConsoleClient(broker)
    answer = console.send(
        "/login", "/login", user=user, password=password, mechanism=mechanism, to="/topics?q=h"
    )
    return console, answer


def test_who_has_not_logged_in_is_asked_to(secured: SecuredWithConsole) -> None:
    console = ConsoleClient(secured)
    for path in ("/topics", "/topics/hers/records?offset=0"):
        answer = console.get(path)
        assert answer.status == 303
        assert answer.fields["location"].startswith("/login?to=%2Ftopics")
    assert "hers" not in console.get("/login").text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_sees_what_the_rules_allow(secured: SecuredWithConsole, mechanism: str) -> None:
    console, answer = logged_in(secured, "alice", "alice-secret", mechanism)
    assert (answer.status, answer.fields["location"]) == (303, "/topics?q=h")
    assert "HttpOnly" in answer.fields["set-cookie"]
    assert "SameSite=strict" in answer.fields["set-cookie"]
    topics = console.get("/topics?internal=1")
    assert [row[0] for row in topics.rows[1:]] == ["hers"]
    assert "in hers" in console.get("/topics/hers/records").text
    for path in ("/topics/others", "/topics/others/records", "/topics/others/records?offset=0"):
        refused = console.get(path)
        assert refused.status == 403
        assert "in others" not in refused.text
    assert console.get("/topics/others/partitions/0/offsets/0/value").status == 403


def test_a_user_without_rights_sees_nothing(secured: SecuredWithConsole) -> None:
    console, _ = logged_in(secured, "bob", "bob-secret")
    assert "There are no topics" in console.get("/topics").text
    assert "There are no groups" in console.get("/groups").text
    refused = console.get("/clients")
    assert (refused.status, "DESCRIBE on the cluster" in refused.text) == (403, True)


def test_a_wrong_password_is_refused_and_nothing_is_seen(secured: SecuredWithConsole) -> None:
    for user, password in (("alice", "wrong"), ("nobody", ""), ("", "alice-secret")):
        console, answer = logged_in(secured, user, password)
        assert answer.status in (400, 403), (user, password)
        assert console.get("/topics").status == 303


def test_a_login_leads_to_no_other_host(secured: SecuredWithConsole) -> None:
    for to in ("https://evil.example/", "//evil.example/", "/\\evil.example/"):
        console = ConsoleClient(secured)
        values = {"user": "alice", "password": "alice-secret", "mechanism": "PLAIN", "to": to}
        answer = console.send("/login", "/login", **values)
        assert answer.fields["location"] == "/topics"


def test_who_logs_out_is_asked_again(secured: SecuredWithConsole) -> None:
    console, _ = logged_in(secured, "alice", "alice-secret")
    assert console.send("/topics", "/logout").fields["location"] == "/login"
    assert console.get("/topics").status == 303


def test_a_broker_with_tls_alone_is_spoken_to_and_a_plain_door_is_no_way_round(
    tmp_path: Path,
) -> None:
    with SecuredWithConsole(tmp_path, ("PLAINTEXT", "SASL_SSL")) as broker:
        make_topics(broker)
        assert ConsoleClient(broker).get("/topics").status == 303
        console, _ = logged_in(broker, "alice", "alice-secret")
        assert "in hers" in console.get("/topics/hers/records").text


def test_the_login_that_was_not_used_for_longest_ends_for_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logins, "LOGINS_MAX", 2)
    users = Logins(DOOR, lambda: 0.0)
    first, second = (
        users.begin(name, DOOR.security(name, "secret", "PLAIN")) for name in ("a", "b")
    )
    assert users.of(first) is not None
    third = users.begin("c", DOOR.security("c", "secret", "PLAIN"))
    assert [users.of(one) is not None for one in (first, second, third)] == [True, False, True]


def test_a_login_is_over_after_hours() -> None:
    now_s = 0.0
    users = Logins(DOOR, lambda: now_s)
    secret = users.begin("alice", DOOR.security("alice", "secret", "PLAIN"))
    now_s = logins.LOGIN_LASTS_S
    assert users.of(secret) is not None
    now_s += 1
    assert users.of(secret) is None
    assert users.of("") is None
