"""Who may do what: decisions by the rules in the metadata log.

The semantics are those of Kafka's StandardAuthorizer: rules for the resource itself, for all of its
type (`*`) and for beginnings of its name count alike; one that denies wins over all that allow; a
resource without any rule is closed, unless allow.everyone.if.no.acl.found. Super users may do
everything, and so may the other processes of the data directory (PROCESS itself, not whoever has
its name: a delegation token may have an owner of any name).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.security.audit import Audit
from broker.security.principal import PROCESS
from protocol.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Operation,
    PatternType,
    Permission,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from broker.security.principal import Principal
    from config import BrokerSettings
    from protocol.logdata.metadata import AccessControlEntryRecord
    from storage.metadata.acl_table import AclTable

_IMPLYING = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Operations that give each of these along; what is denied implies nothing."""
_ANY_NAME = "hardcode"
"""With this name of a resource Kafka asks whether somebody may do everything."""


class Decision(NamedTuple):
    """Whether something is allowed, and by what: the rule, or in words why there is none."""

    allowed: bool
    rule: AccessControlEntryRecord | None
    reason: str


class Authorizer:
    """Decides by the table of rules, which changes while the broker runs.

    `super_users` are principals as texts.
    """

    def __init__(
        self, acls: AclTable, *, super_users: Collection[str], open_without_rules: bool
    ) -> None:
        self.acls = acls
        """The rules. With each of their `changes` what was decided before holds no more."""
        self._audit = Audit()
        self._super_users = frozenset(super_users)
        self._open_without_rules = open_without_rules

    def take(self, acls: AclTable) -> None:
        """Decide by other rules from now on; what is remembered of decisions is not believed."""
        acls.changes = max(acls.changes, self.acls.changes) + 1
        self.acls = acls

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: int,
        resource_type: int,
        name: str,
    ) -> bool:
        """Whether this principal may do this from this address."""
        return self.decide(principal, host, operation, resource_type, name).allowed

    def denied(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> None:
        """Say in the log that something that was asked for was not allowed."""
        _, rule, reason = self.decide(principal, host, operation, resource_type, name)
        self._audit.denied(principal, host, operation, resource_type, name, rule, reason)

    def decide(
        self,
        principal: Principal,
        host: str,
        operation: int,
        resource_type: int,
        name: str,
    ) -> Decision:
        """The same with what decides it."""
        if principal is PROCESS:
            return Decision(True, None, "it is a process of the same data directory")
        text = str(principal)
        if text in self._super_users:
            return Decision(True, None, f"{text} is a super user")
        allowing = None
        wanted = (Operation.ALL, operation, *_IMPLYING.get(operation, ()))
        found = False
        for rule in self._rules_for(resource_type, name):
            found = True
            if not _names(rule, text, host):
                continue
            if rule.permission_type == Permission.DENY:
                if rule.operation in (Operation.ALL, operation):
                    return Decision(False, rule, "a rule denies it")
            elif allowing is None and rule.operation in wanted:
                allowing = rule
        if allowing is not None:
            return Decision(True, allowing, "a rule allows it")
        if found:
            return Decision(False, None, "no rule of this resource allows it")
        if self._open_without_rules:
            return Decision(
                True, None, "the resource has no rules, and allow.everyone.if.no.acl.found is true"
            )
        return Decision(False, None, "the resource has no rules")

    def allows_some(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> bool:
        """Whether this principal may do this to some resource of the type, there or not: a rule
        allows it for a name or a beginning of names, and denying ones leave something of that."""
        if self.allows(principal, host, operation, resource_type, _ANY_NAME):
            return True
        denied: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        allowed: list[AccessControlEntryRecord] = []
        text = str(principal)
        for rule in self.acls.by_id.values():
            if (
                rule.resource_type != resource_type
                or rule.operation not in (Operation.ALL, operation)
                or not _names(rule, text, host)
            ):
                continue
            if rule.permission_type == Permission.ALLOW:
                allowed.append(rule)
            elif rule.pattern_type in denied:
                denied[rule.pattern_type].add(rule.resource_name)
        if WILDCARD in denied[PatternType.LITERAL]:
            return False
        return any(_leaves_something(rule, denied) for rule in allowed)

    def _rules_for(self, resource_type: int, name: str) -> Iterator[AccessControlEntryRecord]:
        acls = self.acls
        yield from acls.of(resource_type, PatternType.LITERAL, name)
        if name != WILDCARD:
            yield from acls.of(resource_type, PatternType.LITERAL, WILDCARD)
        for prefix in acls.prefixes(resource_type, name):
            yield from acls.of(resource_type, PatternType.PREFIXED, prefix)


def _names(rule: AccessControlEntryRecord, principal: str, host: str) -> bool:
    """Whether a rule is about this principal at this address."""
    return rule.principal in (principal, WILDCARD_PRINCIPAL) and rule.host in (host, WILDCARD)


def _leaves_something(rule: AccessControlEntryRecord, denied: dict[int, set[str]]) -> bool:
    """Whether an allowing rule has resources that no denying one covers."""
    name = rule.resource_name
    if rule.pattern_type == PatternType.LITERAL:
        if name == WILDCARD:
            return True
        if name in denied[PatternType.LITERAL]:
            return False
    prefixes = denied[PatternType.PREFIXED]
    return not any(name[:length] in prefixes for length in range(1, len(name) + 1))


def authorizer_of(settings: BrokerSettings, acls: AclTable) -> Authorizer:
    """What decides by these rules, as the settings want it."""
    return Authorizer(
        acls,
        super_users=settings.super_users,
        open_without_rules=settings.allow_everyone_if_no_acl_found,
    )
