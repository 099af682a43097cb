"""What a connection remembers of decisions: a bounded number, until a rule or its user changes."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers.context import DECISIONS_MAX, PARTS, Context, Parts
from broker.security.authorizer import Authorizer
from broker.security.principal import Principal
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.logdata.metadata import AccessControlEntryRecord
from storage.metadata.acl_table import AclTable

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
TOPIC = ResourceType.TOPIC
NO_ROUTES: Any = {}


@pytest.fixture
def table() -> AclTable:
    return AclTable()


@pytest.fixture
def context(table: AclTable) -> Context:
    parts = Parts()
    for name in PARTS:
        setattr(parts, name, None)
    parts.authorizer = Authorizer(table, super_users=(), open_without_rules=False)
    made = Context(parts, "PLAINTEXT", NO_ROUTES, peer=("10.0.0.1", 1), local=("10.0.0.2", 2))
    made.principal = ALICE
    return made


def allow(table: AclTable, principal: Principal, number: int = 0) -> AccessControlEntryRecord:
    record = AccessControlEntryRecord(
        id=number.to_bytes(16, "big"),
        resource_type=TOPIC,
        resource_name="a",
        pattern_type=PatternType.LITERAL,
        principal=str(principal),
        host="10.0.0.1",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )
    table.add(record)
    return record


def test_a_change_of_the_rules_is_a_new_decision(context: Context, table: AclTable) -> None:
    assert not context.may_read("a")
    record = allow(table, ALICE)
    assert context.may_read("a")
    table.remove(record.id)
    assert not context.may_read("a")


def test_another_user_of_the_connection_inherits_nothing(context: Context, table: AclTable) -> None:
    allow(table, ALICE)
    assert context.may_read("a")
    context.principal = BOB
    assert not context.may_read("a")
    context.principal = ALICE
    assert context.may_read("a")


def test_users_and_names_that_look_alike_are_others(context: Context, table: AclTable) -> None:
    allow(table, ALICE)
    for kind, name in (
        ("User", "Alice"), ("User", "alice "), ("user", "alice"), ("User", "\u0430lice"),
        ("User", "User:alice"), ("User:alice", ""), ("Group", "alice"), ("User", "*"),
    ):  # fmt: skip
        context.principal = Principal(kind, name)
        assert not context.may_read("a")


def test_a_client_cannot_make_the_broker_remember_names_without_end(context: Context) -> None:
    most = 0
    for number in range(3 * DECISIONS_MAX):
        context.may_describe(f"name-{number}", silent=True)
        most = max(most, len(context._decisions))
    assert most <= DECISIONS_MAX
