"""Decisions of access: rules for names, beginnings of names and all, by principal and host."""

from __future__ import annotations

import pytest

from broker.security.authorizer import Authorizer
from broker.security.principal import Principal, parse_principal
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.logdata.metadata import AccessControlEntryRecord
from storage.metadata.acl_table import AclTable

ALICE = Principal("User", "alice")
HOST = "10.0.0.1"
TOPIC = ResourceType.TOPIC

Rule = tuple[int, str, int, int, str]
"""Permission, principal, operation, pattern type, name."""


def authorizer(*rules: Rule, host: str = "*", open_without_rules: bool = False) -> Authorizer:
    table = AclTable()
    for number, (permission, principal, operation, pattern, name) in enumerate(rules):
        table.add(
            AccessControlEntryRecord(
                id=number.to_bytes(16, "big"),
                resource_type=TOPIC,
                resource_name=name,
                pattern_type=pattern,
                principal=principal,
                host=host,
                operation=operation,
                permission_type=permission,
            )
        )
    return Authorizer(table, super_users=["User:root"], open_without_rules=open_without_rules)


def allow(
    operation: int,
    name: str,
    *,
    principal: str = "User:alice",
    pattern: int = PatternType.LITERAL,
) -> Rule:
    return Permission.ALLOW, principal, operation, pattern, name


def deny(
    operation: int,
    name: str,
    *,
    principal: str = "User:alice",
    pattern: int = PatternType.LITERAL,
) -> Rule:
    return Permission.DENY, principal, operation, pattern, name


def prefixed(rule: Rule) -> Rule:
    return (*rule[:3], PatternType.PREFIXED, rule[4])


def may(one: Authorizer, operation: int, name: str, *, principal: str = "User:alice") -> bool:
    return one.allows(parse_principal(principal), HOST, operation, TOPIC, name)


def test_what_no_rule_names_is_closed_but_to_super_users() -> None:
    assert not may(authorizer(), Operation.READ, "a")
    assert may(authorizer(), Operation.READ, "a", principal="User:root")
    assert may(
        authorizer(deny(Operation.ALL, "*", principal="User:*")),
        Operation.READ,
        "a",
        principal="User:root",
    )


def test_what_no_rule_names_is_open_where_that_is_configured() -> None:
    one = authorizer(allow(Operation.READ, "a", principal="User:bob"), open_without_rules=True)
    assert may(one, Operation.READ, "b")
    assert not may(one, Operation.READ, "a")


@pytest.mark.parametrize(
    ("rule", "name", "expected"),
    [
        (allow(Operation.READ, "abc"), "abc", True),
        (allow(Operation.READ, "abc"), "abcd", False),
        (allow(Operation.READ, "abc"), "ABC", False),
        (allow(Operation.READ, "*"), "abc", True),
        (prefixed(allow(Operation.READ, "ab")), "abc", True),
        (prefixed(allow(Operation.READ, "abc")), "abc", True),
        (prefixed(allow(Operation.READ, "abcd")), "abc", False),
        (prefixed(allow(Operation.READ, "*")), "abc", False),
        (allow(Operation.ALL, "abc"), "abc", True),
        (allow(Operation.WRITE, "abc"), "abc", False),
        (allow(Operation.READ, "abc", principal="User:*"), "abc", True),
        (allow(Operation.READ, "abc", principal="User:bob"), "abc", False),
        (allow(Operation.READ, "abc", principal="Group:alice"), "abc", False),
    ],
)
def test_a_rule_is_about_a_name_a_beginning_or_all(rule: Rule, name: str, expected: bool) -> None:
    assert may(authorizer(rule), Operation.READ, name) is expected


@pytest.mark.parametrize("denying", [deny(Operation.READ, "abc"), deny(Operation.READ, "*"),
    prefixed(deny(Operation.READ, "a")), deny(Operation.ALL, "abc"),
    deny(Operation.READ, "abc", principal="User:*")])  # fmt: skip
def test_a_rule_that_denies_wins_wherever_it_stands(denying: Rule) -> None:
    allowing = allow(Operation.READ, "abc")
    assert not may(authorizer(allowing, denying), Operation.READ, "abc")
    assert not may(authorizer(denying, allowing), Operation.READ, "abc")


@pytest.mark.parametrize(
    "operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER]
)
def test_what_is_allowed_may_be_described_and_what_is_denied_implies_nothing(
    operation: int,
) -> None:
    assert may(authorizer(allow(operation, "a")), Operation.DESCRIBE, "a")
    one = authorizer(deny(operation, "a"), allow(Operation.DESCRIBE, "a"))
    assert may(one, Operation.DESCRIBE, "a")


def test_describing_allows_nothing_else() -> None:
    one = authorizer(allow(Operation.DESCRIBE, "a"))
    assert not may(one, Operation.READ, "a")
    assert not may(one, Operation.DESCRIBE_CONFIGS, "a")
    assert may(authorizer(allow(Operation.ALTER_CONFIGS, "a")), Operation.DESCRIBE_CONFIGS, "a")


def test_a_rule_is_about_its_host() -> None:
    rule = allow(Operation.READ, "a")
    assert may(authorizer(rule, host=HOST), Operation.READ, "a")
    assert not may(authorizer(rule, host="10.0.0.2"), Operation.READ, "a")


def test_another_generation_follows_every_change() -> None:
    table = AclTable()
    one = Authorizer(table, super_users=(), open_without_rules=False)
    generations = {one.acls.changes}
    record = AccessControlEntryRecord(
        id=bytes(16), resource_type=TOPIC, resource_name="a", pattern_type=PatternType.PREFIXED,
        principal="User:alice", host="*", operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )  # fmt: skip
    table.add(record)
    generations.add(one.acls.changes)
    assert may(one, Operation.READ, "ab")
    table.remove(record.id)
    generations.add(one.acls.changes)
    assert not may(one, Operation.READ, "ab")
    assert len(generations) == 3


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([allow(Operation.WRITE, "a")], True),
        ([allow(Operation.READ, "a")], False),
        ([allow(Operation.ALL, "a")], True),
        ([allow(Operation.WRITE, "a", principal="User:bob")], False),
        ([allow(Operation.WRITE, "a"), deny(Operation.WRITE, "a")], False),
        ([allow(Operation.WRITE, "a"), deny(Operation.WRITE, "b")], True),
        ([allow(Operation.WRITE, "a"), deny(Operation.WRITE, "*")], False),
        ([allow(Operation.WRITE, "*"), deny(Operation.WRITE, "a")], True),
        ([allow(Operation.WRITE, "abc"), prefixed(deny(Operation.WRITE, "ab"))], False),
        ([prefixed(allow(Operation.WRITE, "ab")), prefixed(deny(Operation.WRITE, "abc"))], True),
        ([prefixed(allow(Operation.WRITE, "abc")), prefixed(deny(Operation.WRITE, "ab"))], False),
        ([prefixed(allow(Operation.WRITE, "abc")), deny(Operation.WRITE, "abc")], True),
    ],
)
def test_something_of_a_type_is_allowed_if_denying_rules_leave_it(
    rules: list[Rule], expected: bool
) -> None:
    one = authorizer(*rules)
    assert one.allows_some(ALICE, HOST, Operation.WRITE, TOPIC) is expected


def test_super_users_may_do_something_of_every_type() -> None:
    root = parse_principal("User:root")
    one = authorizer(deny(Operation.ALL, "*", principal="User:*"))
    assert one.allows_some(root, HOST, Operation.WRITE, TOPIC)
