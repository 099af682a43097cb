"""Denials in the log: one line for each cause in a minute, few about one principal, none lost."""

from __future__ import annotations

from typing import Any

import pytest

from broker import logs
from broker.security.audit import LINES_MAX, MINUTE_S, PRINCIPALS_MAX, Audit
from broker.security.authorizer import Authorizer
from broker.security.principal import Principal
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.logdata.metadata import AccessControlEntryRecord
from storage.metadata.acl_table import AclTable

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
TABLE = AclTable()
TABLE.add(
    AccessControlEntryRecord(
        id=bytes(16),
        resource_type=ResourceType.TOPIC,
        resource_name="b",
        pattern_type=PatternType.PREFIXED,
        principal="User:*",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.DENY,
    )
)
AUTHORIZER = Authorizer(TABLE, super_users=(), open_without_rules=False)


class Log:
    """The lines at each level, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.warned: list[dict[str, Any]] = []
        self.debugged: list[dict[str, Any]] = []
        self.now_s = 5.0
        monkeypatch.setattr(logs, "warning", lambda event, **facts: self.warned.append(facts))
        monkeypatch.setattr(logs, "debug", lambda event, **facts: self.debugged.append(facts))
        self.audit = Audit(lambda: self.now_s)

    def deny(
        self, name: str, principal: Principal = ALICE, operation: int = Operation.READ
    ) -> None:
        kind = ResourceType.TOPIC
        _, rule, reason = AUTHORIZER.decide(principal, "10.0.0.1", operation, kind, name)
        self.audit.denied(principal, "10.0.0.1", operation, kind, name, rule, reason)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def test_a_line_says_who_was_refused_what_and_why(log: Log) -> None:
    log.deny("abc")
    log.deny("bcd")
    assert log.warned == [
        {
            "principal": "User:alice",
            "address": "10.0.0.1",
            "operation": "read",
            "resource": "topic 'abc'",
            "reason": "the resource has no rules",
        },
        {
            "principal": "User:alice",
            "address": "10.0.0.1",
            "operation": "read",
            "resource": "topic 'bcd'",
            "reason": "a rule denies it: prefixed 'b' of User:* from *",
        },
    ]


def test_a_cause_is_said_once_a_minute_and_every_time_at_debug(log: Log) -> None:
    for _ in range(3):
        log.deny("a")
    log.deny("a", BOB)
    log.deny("a", operation=Operation.WRITE)
    assert (len(log.warned), len(log.debugged)) == (3, 2)
    log.now_s += MINUTE_S
    log.deny("a")
    assert len(log.warned) == 4


def test_who_asks_for_ever_new_names_fills_neither_log_nor_memory(log: Log) -> None:
    for number in range(10 * LINES_MAX):
        log.deny(f"name-{number}")
    log.deny("a", BOB)
    assert len(log.warned) == LINES_MAX + 1
    for number in range(2 * PRINCIPALS_MAX):
        log.deny("a", Principal("User", str(number)))
    assert len(log.audit._said) <= PRINCIPALS_MAX


def test_a_name_cannot_begin_a_line_of_its_own(log: Log) -> None:
    log.deny("a\n2026-01-01 [info] access allowed")
    assert "\n" not in log.warned[0]["resource"]
