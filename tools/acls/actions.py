"""What `triglot acls` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import Authorizer
from broker.security.principal import Principal
from protocol.acls import (
    ANY,
    CLUSTER_NAME,
    OPERATION_NAMES,
    PATTERN_TYPE_NAMES,
    PERMISSION_NAMES,
    RESOURCE_TYPE_NAMES,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from protocol.client import said
from protocol.logdata.metadata import AccessControlEntryRecord
from protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from storage.metadata.acl_table import AclTable
from tools.acls.resources import resources_of
from tools.errors import NotDone
from tools.printing import counted, print_json, print_lines, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tools.cluster import Cluster

    Arguments = argparse.Namespace
    Rule = CreateAclsRequest.Creation

PATTERNS = 1
"""The first version with prefixes (Kafka 2.0)."""
OPERATIONS = {name: code for code, name in OPERATION_NAMES.items()}
PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
HEAD = ("PERMISSION", "PRINCIPAL", "OPERATION", "TYPE", "NAME", "PATTERN", "HOST")
AUTHORIZER = "authorizer.class.name"
SUPER_USERS = "super.users"
OPEN = "allow.everyone.if.no.acl.found"


class Denied(NotDone):
    """What was asked about is not allowed."""


def run_add(cluster: Cluster, arguments: Arguments) -> None:
    """Add rules; those that are there already stay as they are."""
    rules = list(_asked_for(arguments))
    oldest = PATTERNS if arguments.prefix else 0
    request = CreateAclsRequest(creations=rules)
    answer = cluster.change(request, CreateAclsResponse, oldest=oldest)
    for rule, result in zip(rules, answer.results, strict=True):
        if result.error_code:
            raise NotDone(f"{_sentence(rule)}: {_why(result.error_code, result.error_message)}")
    _print(arguments, rules, f"added {counted(len(rules), 'rule')}")


def _asked_for(arguments: Arguments) -> Iterator[Rule]:
    for principal in dict.fromkeys(arguments.principal):
        for resource_type, name in dict.fromkeys(resources_of(arguments)):
            if arguments.producer or arguments.consumer:
                operations = (PRODUCER if arguments.producer else CONSUMER)[resource_type]
            else:
                operations = tuple(OPERATIONS[one] for one in dict.fromkeys(arguments.operation))
            for operation in operations:
                yield CreateAclsRequest.Creation(
                    resource_type=resource_type,
                    resource_name=name,
                    resource_pattern_type=(
                        PatternType.PREFIXED if arguments.prefix else PatternType.LITERAL
                    ),
                    principal=_principal(principal),
                    host=arguments.host,
                    operation=operation,
                    permission_type=Permission.DENY if arguments.deny else Permission.ALLOW,
                )


def run_remove(cluster: Cluster, arguments: Arguments) -> None:
    """Remove rules, and say which."""
    wanted = _filter(arguments, matching=False)
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.Filter(
                resource_type_filter=wanted.resource_type_filter,
                resource_name_filter=wanted.resource_name_filter,
                pattern_type_filter=wanted.pattern_type_filter,
                principal_filter=wanted.principal_filter,
                host_filter=wanted.host_filter,
                operation=wanted.operation,
                permission_type=wanted.permission_type,
            )
        ]
    )
    answer = cluster.change(request, DeleteAclsResponse)
    removed: list[Rule] = []
    for result in answer.filter_results:
        if result.error_code:
            raise NotDone(f"removing rules: {_why(result.error_code, result.error_message)}")
        for rule in result.matching_acls:
            if rule.error_code:
                raise NotDone(f"removing a rule: {_why(rule.error_code, rule.error_message)}")
            removed.append(
                CreateAclsRequest.Creation(
                    resource_type=rule.resource_type,
                    resource_name=rule.resource_name,
                    resource_pattern_type=rule.pattern_type,
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission_type,
                )
            )
    _print(arguments, removed, f"removed {counted(len(removed), 'rule')}")


def run_list(cluster: Cluster, arguments: Arguments) -> None:
    """Print rules."""
    rules = _described(cluster, _filter(arguments, matching=arguments.matching))
    _print(arguments, rules, "" if rules else "there are no such rules")


def run_explain(cluster: Cluster, arguments: Arguments) -> None:
    """Decide as a broker does. Raises Denied."""
    ((resource_type, name),) = resources_of(arguments)
    request = DescribeAclsRequest(
        resource_type_filter=resource_type,
        resource_name_filter=name,
        pattern_type_filter=PatternType.MATCH,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    acls = AclTable()
    for number, rule in enumerate(_described(cluster, request)):
        acls.add(_record(number, rule))
    settings = cluster.broker_config((AUTHORIZER, SUPER_USERS, OPEN))
    notes = _notes(settings, arguments)
    kind, _, user = _principal(arguments.principal).partition(":")
    super_users = [one.strip() for one in settings.get(SUPER_USERS, "").split(";")]
    authorizer = Authorizer(
        acls,
        super_users=[one for one in super_users if one],
        open_without_rules=settings.get(OPEN, "") == "true",
    )
    operation = OPERATIONS[arguments.operation]
    decision = authorizer.decide(
        Principal(kind, user), arguments.host or "", operation, resource_type, name
    )
    question = (
        f"{kind}:{user} {arguments.operation} {RESOURCE_TYPE_NAMES[resource_type]} '{name}'"
        f"{f' from {arguments.host}' if arguments.host else ''}"
    )
    if arguments.json:
        rule_json = None if decision.rule is None else _json(_rule(decision.rule))
        print_json({
            "allowed": decision.allowed,
            "reason": decision.reason,
            "rule": rule_json,
            "notes": notes,
        })  # fmt: skip
    else:
        by = "" if decision.rule is None else f": {_sentence(_rule(decision.rule))}"
        verdict = "allowed" if decision.allowed else "denied"
        print_lines([f"{verdict}: {question}", f"  {decision.reason}{by}"])
        print_lines(f"  note: {note}" for note in notes)
    if not decision.allowed:
        raise Denied(f"denied: {question}")


def _notes(settings: dict[str, str], arguments: Arguments) -> list[str]:
    notes = []
    if AUTHORIZER in settings and not settings[AUTHORIZER]:
        notes.append(f"the broker has no {AUTHORIZER}: today everybody may do everything")
    unknown = [key for key in (SUPER_USERS, OPEN) if key not in settings]
    if unknown:
        notes.append(f"the broker does not tell {' and '.join(unknown)}; taken as unset")
    if not arguments.host:
        notes.append("rules for single addresses are left out; --host ADDRESS counts them")
    return notes


def _filter(arguments: Arguments, *, matching: bool) -> DescribeAclsRequest:
    resources = resources_of(arguments)
    resource_type, name = resources[0] if resources else (ANY, None)
    pattern = PatternType.MATCH if matching else ANY
    if arguments.prefix:
        pattern = PatternType.PREFIXED
    return DescribeAclsRequest(
        resource_type_filter=resource_type,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None if arguments.principal is None else _principal(arguments.principal),
        host_filter=arguments.host,
        operation=ANY if arguments.operation is None else OPERATIONS[arguments.operation],
        permission_type=ANY,
    )


def _described(cluster: Cluster, request: DescribeAclsRequest) -> list[Rule]:
    oldest = PATTERNS if request.pattern_type_filter != PatternType.LITERAL else 0
    answer = cluster.ask(request, DescribeAclsResponse, oldest=oldest)
    if answer.error_code:
        raise NotDone(f"the rules: {_why(answer.error_code, answer.error_message)}")
    return [
        CreateAclsRequest.Creation(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            resource_pattern_type=resource.pattern_type,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission_type,
        )
        for resource in answer.resources
        for rule in resource.acls
    ]


def _record(number: int, rule: Rule) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=number.to_bytes(16),
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        pattern_type=rule.resource_pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission_type,
    )


def _rule(record: AccessControlEntryRecord) -> Rule:
    return CreateAclsRequest.Creation(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        resource_pattern_type=record.pattern_type,
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission_type=record.permission_type,
    )


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _print(arguments: Arguments, rules: list[Rule], summary: str) -> None:
    if arguments.json:
        print_json({"rules": [_json(rule) for rule in rules]})
        return
    if rules:
        rows = sorted(tuple(_json(rule).values()) for rule in rules)
        print_lines(table(HEAD, rows))
    if summary:
        print_lines([summary])


def _json(rule: Rule) -> dict[str, str]:
    return {
        "permission": PERMISSION_NAMES.get(rule.permission_type, str(rule.permission_type)),
        "principal": rule.principal,
        "operation": OPERATION_NAMES.get(rule.operation, str(rule.operation)),
        "type": RESOURCE_TYPE_NAMES.get(rule.resource_type, str(rule.resource_type)),
        "name": rule.resource_name,
        "pattern": PATTERN_TYPE_NAMES.get(
            rule.resource_pattern_type, str(rule.resource_pattern_type)
        ),
        "host": rule.host,
    }


def _sentence(rule: Rule) -> str:
    """A rule in words."""
    words = _json(rule)
    name = "" if words["name"] == CLUSTER_NAME else f" '{words['name']}'"
    pattern = "" if words["pattern"] == "literal" else f" ({words['pattern']})"
    host = "" if words["host"] == WILDCARD else f" from {words['host']}"
    return (
        f"{words['permission']} {words['principal']} {words['operation']} "
        f"{words['type']}{name}{pattern}{host}"
    )


def _why(code: int, message: str | None) -> str:
    return f"{said(code)} ({message})" if message else said(code)
