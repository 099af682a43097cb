"""The users, rules and quotas of `rights.py`, made with the command line tools of Apache Kafka."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from protocol.acls import OPERATION_NAMES, Operation, PatternType, Permission, ResourceType
from tests.clients.moving.in_effect import CROWD, SHA_256, SHA_512
from tests.clients.moving.rights import (
    CONNECTION_RATE,
    CONNECTIONS,
    KNOWN_WITHIN_S,
    PASSWORDS,
    QUOTAS,
    RATE,
    RULES,
)
from tests.support.kafka_tools import run_tool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.moving.closed import ClosedKafka
    from tests.clients.moving.rights import Rule

CONFIGS = "kafka.admin.ConfigCommand"
ACLS = {"3.9": "kafka.admin.AclCommand", "4": "org.apache.kafka.tools.AclCommand"}
ITERATIONS = {SHA_256: 4096, SHA_512: 8192}
ADMIN, ADMIN_SECRET = "admin", "admin-secret"
FORMAT = [
    word
    for mechanism in ITERATIONS
    for word in ("--add-scram", f"{mechanism}=[name={ADMIN},password={ADMIN_SECRET}]")
]
"""What `kafka-storage format` is told, so that there is a user at the first start."""
GONE = "eve"
"""A user that is made and removed, with her rule and quota."""
ENTITIES = {"user": "users", "client-id": "clients", "ip": "ips"}


class Tools:
    """Kafka's tools at a broker of their release."""

    def __init__(self, kafka: ClosedKafka, folder: Path) -> None:
        folder.mkdir()
        self._kafka = kafka
        self._folder = folder

    def make(self) -> None:
        """All of it."""
        for (user, mechanism), password in PASSWORDS.items():
            self._add_user(user, mechanism, password)
        for rule in RULES:
            self._acls("--add", *_words(rule))
        for entity, rate in QUOTAS:
            self._configs(entity, "--add-config", f"{RATE}={rate:.0f}")
        self._configs({"ip": CROWD}, "--add-config", f"{CONNECTIONS}={CONNECTION_RATE:.0f}")
        time.sleep(KNOWN_WITHIN_S)

    def make_and_remove(self) -> None:
        """A user, a rule and a quota that come and go."""
        rule = (ResourceType.TOPIC, "orders", PatternType.LITERAL, f"User:{GONE}", "*")
        words = _words((*rule, Operation.WRITE, Permission.ALLOW))
        self._add_user(GONE, SHA_256, "eve-secret")
        self._acls("--add", *words)
        self._configs({"user": GONE}, "--add-config", f"{RATE}=1")
        for key in (SHA_256, RATE):
            self._configs({"user": GONE}, "--delete-config", key)
        self._acls("--remove", "--force", *words)

    def _add_user(self, user: str, mechanism: str, password: str) -> None:
        # Kafka takes one credential of a user in a request.
        credential = f"{mechanism}=[iterations={ITERATIONS[mechanism]},password={password}]"
        self._configs({"user": user}, "--add-config", credential)

    def _configs(self, entity: dict[str, str | None], *words: str) -> None:
        named: list[str] = []
        for kind, name in entity.items():
            named += ["--entity-type", ENTITIES[kind]]
            named += ["--entity-default"] if name is None else ["--entity-name", name]
        self._run(CONFIGS, "--alter", *named, *words)

    def _acls(self, *words: str) -> None:
        self._run(ACLS[self._kafka.release.name], *words)

    def _run(self, tool: str, *words: str) -> None:
        bootstrap = ("--bootstrap-server", self._kafka.bootstrap)
        ended = run_tool(self._kafka.release, tool, *bootstrap, *words, folder=self._folder)
        assert ended.code == 0, (words, ended)
        assert "Error" not in ended.out + ended.err, (words, ended)


def _words(rule: Rule) -> list[str]:
    """A rule as kafka-acls takes it."""
    kind, name, pattern, principal, host, operation, permission = rule
    how = "allow" if permission == Permission.ALLOW else "deny"
    return [
        f"--{how}-principal",
        principal,
        f"--{how}-host",
        host,
        "--operation",
        OPERATION_NAMES[operation],
        "--topic" if kind == ResourceType.TOPIC else "--group",
        name,
        "--resource-pattern-type",
        "literal" if pattern == PatternType.LITERAL else "prefixed",
    ]
