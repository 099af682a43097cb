"""Access rules are made, looked for and removed by requests of every version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.acls import (
    ANY,
    CLUSTER_NAME,
    UNKNOWN,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from protocol.errors import ErrorCode
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NEWEST = 3


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def creation(name: str, **fields: Any) -> CreateAclsRequest.Creation:
    return CreateAclsRequest.Creation(
        **{
            "resource_type": ResourceType.TOPIC,
            "resource_name": name,
            "resource_pattern_type": PatternType.LITERAL,
            "principal": "User:alice",
            "host": "*",
            "operation": Operation.READ,
            "permission_type": Permission.ALLOW,
            **fields,
        }
    )


def wanted(name: str | None, **fields: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ResourceType.TOPIC,
        "resource_name_filter": name,
        "pattern_type_filter": PatternType.LITERAL,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **fields,
    }


def create(
    caller: Caller, *creations: CreateAclsRequest.Creation, version: int = NEWEST
) -> list[int]:
    answer = caller.call(CreateAclsRequest(creations=list(creations)), version)
    return [result.error_code for result in answer.results]


def described(caller: Caller, name: str | None, version: int = NEWEST, **fields: Any) -> set[Any]:
    answer = caller.call(DescribeAclsRequest(**wanted(name, **fields)), version)
    assert answer.error_code == ErrorCode.NONE
    return {
        (one.resource_name, one.pattern_type, acl.principal, acl.operation)
        for one in answer.resources
        for acl in one.acls
    }


def delete(caller: Caller, name: str, version: int = NEWEST, **fields: Any) -> list[Any]:
    filters = [DeleteAclsRequest.Filter(**wanted(name, **fields))]
    (result,) = caller.call(DeleteAclsRequest(filters=filters), version).filter_results
    assert result.error_code == ErrorCode.NONE
    return [(one.resource_name, one.principal) for one in result.matching_acls]


@pytest.mark.parametrize("version", range(4))
def test_a_rule_is_there_until_it_is_removed(caller: Caller, topic: str, version: int) -> None:
    assert create(caller, creation(topic), version=version) == [ErrorCode.NONE]
    assert described(caller, topic, version) == {(topic, 3, "User:alice", Operation.READ)}
    assert delete(caller, topic, version) == [(topic, "User:alice")]
    assert described(caller, topic, version) == set()
    assert delete(caller, topic, version) == []


def test_a_rule_that_there_is_is_not_made_twice(caller: Caller, topic: str) -> None:
    assert create(caller, creation(topic), creation(topic)) == [ErrorCode.NONE] * 2
    assert create(caller, creation(topic)) == [ErrorCode.NONE]
    assert delete(caller, topic) == [(topic, "User:alice")]


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_name": ""},
        {"resource_name": "", "resource_pattern_type": PatternType.PREFIXED},
        {"resource_type": ResourceType.CLUSTER},
        {"resource_type": ANY},
        {"resource_pattern_type": PatternType.MATCH},
        {"principal": "alice"},
        {"operation": ANY},
        {"permission_type": ANY},
    ],
)
def test_a_rule_without_sense_is_refused_and_the_others_are_made(
    caller: Caller, topic: str, fields: dict[str, Any]
) -> None:
    codes = create(caller, creation(topic, **fields), creation(topic))
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


def test_rules_of_the_cluster_have_its_name(caller: Caller) -> None:
    assert create(caller, creation(CLUSTER_NAME, resource_type=ResourceType.CLUSTER)) == [0]


def test_a_filter_finds_rules_by_their_pattern_or_by_what_they_are_about(
    caller: Caller, topic: str
) -> None:
    beginning = topic[:-1]
    prefixed = creation(beginning, resource_pattern_type=PatternType.PREFIXED)
    everywhere = creation("*", principal=f"User:{topic}")
    assert create(caller, creation(topic), prefixed, everywhere) == [0, 0, 0]

    def names(name: str | None, pattern: int) -> set[str]:
        found = described(caller, name, pattern_type_filter=pattern)
        return {one[0] for one in found if one[0] in (topic, beginning) or one[2].endswith(topic)}

    assert names(topic, PatternType.LITERAL) == {topic}
    assert names(beginning, PatternType.PREFIXED) == {beginning}
    assert names(topic, PatternType.PREFIXED) == set()
    assert names(topic, ANY) == {topic}
    assert names(topic, PatternType.MATCH) == {topic, beginning, "*"}
    assert names(None, ANY) == {topic, beginning, "*"}


def test_a_filter_that_nobody_could_mean_is_refused(caller: Caller, topic: str) -> None:
    answer = caller.call(DescribeAclsRequest(**wanted(topic, operation=UNKNOWN)), NEWEST)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_rules_are_there_after_a_kill(tmp_path: Path, settings: Mapping[str, str]) -> None:
    own = BrokerProcess(tmp_path / "data", settings=settings)
    own.start()
    with Caller(own.host, own.port) as client:
        assert create(client, creation("a")) == [ErrorCode.NONE]
    own.kill()
    own.start()
    with Caller(own.host, own.port) as client:
        assert described(client, "a") == {("a", 3, "User:alice", Operation.READ)}
    own.stop()
