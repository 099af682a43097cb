"""Users of access rules: one for every right alone, one for each that has all but this, and more.

Their names say what they may do: `only-topic-read`, `but-topic-read` (everything is allowed, this
is denied). `prefixed` has everything on what begins like the names that are asked for; of
`prefixed-deny` just that is denied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.jaas import PLAIN_LOGIN_MODULE
from protocol.acls import (
    CLUSTER_NAME,
    OPERATION_NAMES,
    OPERATIONS,
    RESOURCE_TYPE_NAMES,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from protocol.messages.create_acls import CreateAclsRequest

if TYPE_CHECKING:
    from tests.support.caller import Caller

RIGHTS = {
    **OPERATIONS,
    ResourceType.CLUSTER: (*OPERATIONS[ResourceType.CLUSTER], Operation.DELETE),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE),
}
"""Every right that is asked for somewhere, by the type of the resource."""

NAMES = {
    ResourceType.TOPIC: ("t", "t-doomed", "t-new"),
    ResourceType.GROUP: ("g", "g-doomed"),
    ResourceType.CLUSTER: (CLUSTER_NAME,),
    ResourceType.TRANSACTIONAL_ID: ("x",),
}
"""What the rights are for. Topic `u` and group `h` are others."""

PREFIXES = {kind: names[0] for kind, names in NAMES.items()}

Creation = CreateAclsRequest.Creation


def _rule(user: str, kind: int, name: str, operation: int, **fields: int) -> Creation:
    facts = {
        "resource_pattern_type": PatternType.LITERAL,
        "permission_type": Permission.ALLOW,
        **fields,
    }
    return Creation(
        resource_type=kind,
        resource_name=name,
        principal=f"User:{user}",
        host=WILDCARD,
        operation=operation,
        **facts,
    )


def _rules() -> dict[str, list[Creation]]:
    found: dict[str, list[Creation]] = {"none": []}

    def everything(user: str) -> list[Creation]:
        return [
            _rule(user, kind, WILDCARD, Operation.ALL) for kind in RIGHTS if kind != CLUSTER
        ] + [_rule(user, CLUSTER, CLUSTER_NAME, Operation.ALL)]

    for kind, operations in RIGHTS.items():
        for operation in operations:
            what = f"{RESOURCE_TYPE_NAMES[kind]}-{OPERATION_NAMES[operation]}"
            only, but = f"only-{what}", f"but-{what}"
            found[only] = [_rule(only, kind, name, operation) for name in NAMES[kind]]
            found[but] = everything(but) + [
                _rule(but, kind, name, operation, permission_type=Permission.DENY)
                for name in NAMES[kind]
            ]
    found["all"] = everything("all")
    found["all-but-cluster"] = [
        _rule("all-but-cluster", kind, WILDCARD, Operation.ALL)
        for kind in RIGHTS
        if kind != CLUSTER
    ]
    prefixed = {"resource_pattern_type": PatternType.PREFIXED}
    named = [kind for kind in RIGHTS if kind != CLUSTER]
    found["prefixed"] = [
        _rule("prefixed", kind, PREFIXES[kind], Operation.ALL, **prefixed) for kind in named
    ]
    denied = {**prefixed, "permission_type": Permission.DENY}
    found["prefixed-deny"] = everything("prefixed-deny") + [
        _rule("prefixed-deny", kind, PREFIXES[kind], Operation.ALL, **denied) for kind in named
    ]
    return found


CLUSTER = ResourceType.CLUSTER
RULES = _rules()
USERS = list(RULES)

JAAS = (
    f"{PLAIN_LOGIN_MODULE} required "
    + " ".join(f'user_{user}="{user}-secret"' for user in USERS)
    + ";"
)


def make_rules(administrator: Caller) -> None:
    """All rules of all users, which hold for requests after this."""
    creations = [rule for rules in RULES.values() for rule in rules]
    answer = administrator.call(CreateAclsRequest(creations=creations), 3)
    assert {result.error_code for result in answer.results} == {0}, answer.results
