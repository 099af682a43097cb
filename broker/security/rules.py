"""Access rules as administrators make, look for and remove them (KIP-11, KIP-290)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.acls import (
    ANY,
    CLUSTER_NAME,
    OPERATION_NAMES,
    PATTERN_TYPE_NAMES,
    PERMISSION_NAMES,
    RESOURCE_TYPE_NAMES,
    WILDCARD,
    PatternType,
    ResourceType,
)
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.logdata.metadata import AccessControlEntryRecord
    from storage.metadata.acl_table import AclTable


class Rule(NamedTuple):
    """One rule, by the codes of `protocol.acls`."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def rule_of(record: AccessControlEntryRecord) -> Rule:
    """The rule that a record has."""
    return Rule(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def check_rule(rule: Rule) -> None:
    """Raise KafkaError (INVALID_REQUEST) for a rule that there cannot be. An empty name would be
    the beginning of all names."""
    if rule.resource_type == ResourceType.CLUSTER and rule.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not rule.resource_name:
        raise _invalid("Invalid empty resource name")
    for what, code, names in (
        ("resource type", rule.resource_type, RESOURCE_TYPE_NAMES),
        ("pattern type", rule.pattern_type, PATTERN_TYPE_NAMES),
        ("operation", rule.operation, OPERATION_NAMES),
        ("permission type", rule.permission_type, PERMISSION_NAMES),
    ):
        if code not in names:
            raise _invalid(f"{what} {code}, wanted one of {', '.join(map(str, names))}")
    if ":" not in rule.principal:
        raise _invalid(f"principal '{rule.principal}', wanted Type:name")


class RuleFilter(NamedTuple):
    """What looked-for rules have. None and ANY match everything; the pattern type MATCH asks for
    all rules that are about a resource of this name."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, rule: Rule | AccessControlEntryRecord) -> bool:
        """Whether a rule is one of those looked for."""
        return (
            self.resource_type in (ANY, rule.resource_type)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (ANY, rule.operation)
            and self.permission_type in (ANY, rule.permission_type)
            and self._matches_name(rule)
        )

    def _matches_name(self, rule: Rule | AccessControlEntryRecord) -> bool:
        name, pattern = self.resource_name, self.pattern_type
        if pattern not in (ANY, PatternType.MATCH, rule.pattern_type):
            return False
        if name is None:
            return True
        if pattern != PatternType.MATCH:
            return name == rule.resource_name
        if rule.pattern_type == PatternType.PREFIXED:
            return name.startswith(rule.resource_name)
        return rule.resource_name in (name, WILDCARD)

    def found(self, acls: AclTable) -> Iterator[AccessControlEntryRecord]:
        """The rules of a table that are looked for."""
        return (record for record in acls.by_id.values() if self.matches(record))


def check_filter(wanted: RuleFilter) -> None:
    """Raise KafkaError (INVALID_REQUEST) for one that nobody could mean."""
    for what, code, names in (
        ("resource type", wanted.resource_type, RESOURCE_TYPE_NAMES),
        ("operation", wanted.operation, OPERATION_NAMES),
        ("permission type", wanted.permission_type, PERMISSION_NAMES),
    ):
        if code != ANY and code not in names:
            raise _invalid(f"{what} {code} in a filter, wanted 1 or one of those of rules")
    if wanted.pattern_type not in (ANY, PatternType.MATCH, *PATTERN_TYPE_NAMES):
        raise _invalid(f"pattern type {wanted.pattern_type} in a filter, wanted 1 to 4")


def _invalid(text: str) -> KafkaError:
    return KafkaError(text, code=ErrorCode.INVALID_REQUEST)
