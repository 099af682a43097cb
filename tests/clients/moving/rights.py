"""Users, rules and quotas, as they are made at first, and as each broker changes them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsRequest
from tests.clients.moving.in_effect import (
    CROWD,
    LET_IN,
    LIMITED,
    NEIGHBOUR,
    QUOTA_TOPIC,
    REFUSED,
    SHA_256,
    SHA_512,
    UNLIMITED,
)
from tests.clients.moving.writing import KEEP
from tests.support.administrator import Administrator
from tests.support.caller import batch
from tests.support.secured import HASHES, ITERATIONS, salted_password

if TYPE_CHECKING:
    from tests.clients.moving.closed import Server
    from tests.clients.moving.in_effect import Passwords

TOPICS = ("orders", "orders-eu", "orders-secret", "other", QUOTA_TOPIC)
KNOWN_WITHIN_S = 1.0
"""Kafka answers before its parts know of a change, and nothing of it tells when they do."""
NOT_YET = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""Of a topic that Kafka has just made."""
CONNECTION_RATE = 2.0
RATE, CONNECTIONS = "producer_byte_rate", "connection_creation_rate"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
DENIED, GROUP_DENIED = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"

Rule = tuple[int, str, int, str, str, int, int]
"""As `Administrator.facts` has it: resource type, name, pattern, principal, host, operation,
permission."""

ALICE_WRITES = (TOPIC, "orders", LITERAL, "User:alice", "*", Operation.WRITE, ALLOW)
NOT_FROM_THERE = (TOPIC, "orders", LITERAL, "User:carol", NEIGHBOUR, Operation.WRITE, DENY)
DAVE_WRITES = (TOPIC, "ord", PREFIXED, "User:dave", "*", Operation.WRITE, ALLOW)
RULES: list[Rule] = [
    ALICE_WRITES,
    (TOPIC, "orders", PREFIXED, "User:alice", "*", Operation.READ, ALLOW),
    (TOPIC, "orders-secret", LITERAL, "User:alice", "*", Operation.READ, DENY),
    (GROUP, "g-", PREFIXED, "User:alice", "*", Operation.READ, ALLOW),
    (TOPIC, "orders", LITERAL, "User:bob", "127.0.0.1", Operation.WRITE, ALLOW),
    (TOPIC, "*", LITERAL, "User:carol", "*", Operation.ALL, ALLOW),
    NOT_FROM_THERE,
    (TOPIC, QUOTA_TOPIC, LITERAL, "User:*", "*", Operation.WRITE, ALLOW),
]
QUOTAS: list[tuple[dict[str, str | None], float]] = [
    ({"user": "alice", "client-id": "app"}, 20_000.0),
    ({"user": "alice"}, 40_000.0),
    ({"user": "bob", "client-id": None}, 10_000.0),
    ({"user": None, "client-id": "shared"}, 30_000.0),
    ({"client-id": "batch"}, 50_000.0),
    ({"client-id": None}, 60_000.0),
]
PASSWORDS: Passwords = {
    (user, mechanism): f"{user}-secret-{mechanism[-3:]}"
    for user in ("alice", "bob", "carol")
    for mechanism in HASHES
}
IN_EFFECT = {
    **{f"{user} by {mechanism}": LET_IN for user, mechanism in PASSWORDS},
    "alice with a wrong password": REFUSED,
    "alice writes orders": "NONE",
    "alice writes orders-eu": DENIED,
    "bob writes orders": "NONE",
    "bob writes orders-eu": DENIED,
    "carol writes orders": "NONE",
    "carol writes orders-eu": "NONE",
    "alice reads orders-eu": "NONE",
    "alice reads orders-secret": DENIED,
    "alice reads other": DENIED,
    "alice joins g-1": "NONE",
    "alice joins h": GROUP_DENIED,
    "bob writes orders from elsewhere": DENIED,
    "carol writes orders from elsewhere": DENIED,
    "carol writes other from elsewhere": "NONE",
    "quota of alice with app": "20000",
    "quota of alice with another": "40000",
    "quota of bob with any": "10000",
    "quota of carol with shared": "30000",
    "quota of carol with batch": "50000",
    "quota of carol with any": "60000",
    "often from one address": LIMITED,
}
"""How the attempts end by these."""


def prepare(server: Server) -> None:
    """Topics with a record in each."""
    with Administrator(server.host, server.port, timeout_s=30) as admin:
        for name in TOPICS:
            admin.create(name, configs=KEEP)
            for _ in range(100):
                code = admin.produce(name, batch(b"v"), version=9).error_code
                if code not in NOT_YET:
                    break
                time.sleep(0.1)
            assert code == ErrorCode.NONE


def make(server: Server) -> None:
    """All of it, by requests."""
    with Administrator(server.host, server.port, timeout_s=30) as admin:
        for (user, mechanism), password in PASSWORDS.items():
            set_password(admin, user, mechanism, password)
        for rule in RULES:
            add_rule(admin, rule)
        for entity, rate in QUOTAS:
            admin.set_quota(entity, RATE, rate)
        admin.set_quota({"ip": CROWD}, CONNECTIONS, CONNECTION_RATE)
    time.sleep(KNOWN_WITHIN_S)


def set_password(admin: Administrator, user: str, mechanism: str, password: str) -> None:
    # The salt that it gives.
    salted = salted_password(mechanism, password, b"salt of " + user.encode(), ITERATIONS)
    admin.set_password(user, HASHES[mechanism][0], salted)


def add_rule(admin: Administrator, rule: Rule) -> None:
    kind, name, pattern, principal, host, operation, permission = rule
    creation = CreateAclsRequest.Creation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )
    (answer,) = admin.call(CreateAclsRequest(creations=[creation]), 3).results
    assert answer.error_code == 0, answer.error_message


def remove_rule(admin: Administrator, rule: Rule) -> None:
    kind, name, pattern, principal, host, operation, permission = rule
    asked = DeleteAclsRequest.Filter(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=host,
        operation=operation,
        permission_type=permission,
    )
    (answer,) = admin.call(DeleteAclsRequest(filters=[asked]), 3).filter_results
    assert len(answer.matching_acls) == 1


def change_first(server: Server, passwords: Passwords) -> dict[str, str]:
    """A user more, another password, a rule less and one more, other quotas; and how the attempts
    end that it changes."""
    with Administrator(server.host, server.port, timeout_s=30) as admin:
        for mechanism in HASHES:
            passwords["dave", mechanism] = "dave-secret"
            set_password(admin, "dave", mechanism, "dave-secret")
        passwords["alice", SHA_512] = "alice-other"
        set_password(admin, "alice", SHA_512, "alice-other")
        remove_rule(admin, ALICE_WRITES)
        add_rule(admin, DAVE_WRITES)
        admin.set_quota({"user": "alice", "client-id": "app"}, RATE, 80_000.0)
        admin.set_quota({"ip": CROWD}, CONNECTIONS, None)
    time.sleep(KNOWN_WITHIN_S)
    return {
        **{f"dave by {mechanism}": LET_IN for mechanism in HASHES},
        "alice writes orders": DENIED,
        "quota of alice with app": "80000",
        "often from one address": UNLIMITED,
    }


def change_again(server: Server, passwords: Passwords) -> dict[str, str]:
    """The rule is there again and another is gone, a password, and quotas; and how the attempts end
    that it changes."""
    with Administrator(server.host, server.port, timeout_s=30) as admin:
        passwords["bob", SHA_256] = "bob-other"
        set_password(admin, "bob", SHA_256, "bob-other")
        remove_rule(admin, NOT_FROM_THERE)
        add_rule(admin, ALICE_WRITES)
        admin.set_quota({"client-id": "batch"}, RATE, None)
        admin.set_quota({"ip": CROWD}, CONNECTIONS, CONNECTION_RATE)
    time.sleep(KNOWN_WITHIN_S)
    return {
        "alice writes orders": "NONE",
        "carol writes orders from elsewhere": "NONE",
        "quota of carol with batch": "60000",
        "often from one address": LIMITED,
    }
