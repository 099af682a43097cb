"""Access rules, SASL and delegation tokens: refused in the words of a Kafka without them."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from protocol.messages.delete_acls import DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.caller import Caller
from tests.support.running_controller import RunningController

ANY = 1
FILTER: dict[str, Any] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
RULE = CreateAclsRequest.Creation(
    resource_type=2,
    resource_name="orders",
    principal="User:alice",
    host="*",
    operation=3,
    permission_type=3,
)
# The texts are those of Kafka 3.9 and 4.3; tools print them.
NO_AUTHORIZER = "No Authorizer is configured."


@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_are_no_access_rules_without_an_authorizer(caller: Caller, version: int) -> None:
    answer = caller.call(DescribeAclsRequest(**FILTER), version)

    assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert answer.error_message == "No Authorizer is configured on the broker"


@pytest.mark.parametrize("version", range(4))
def test_a_rule_that_nobody_would_enforce_is_not_taken(caller: Caller, version: int) -> None:
    created = caller.call(CreateAclsRequest(creations=[RULE, RULE]), version).results
    wanted = [DeleteAclsRequest.Filter(**({**FILTER, "pattern_type_filter": 3}))]
    deleted = caller.call(DeleteAclsRequest(filters=wanted), version).filter_results

    assert [(one.error_code, one.error_message) for one in (*created, *deleted)] == [
        (ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    ] * 3
    assert [one.matching_acls for one in deleted] == [[]]


def test_the_controller_says_the_same(node: RunningController) -> None:
    with node.connect() as caller:
        answer = caller.call(DescribeAclsRequest(**FILTER), 3)
    assert answer.error_code == ErrorCode.SECURITY_DISABLED


def test_nobody_authenticates_where_nobody_is_asked_to(caller: Caller) -> None:
    shaken = caller.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    tried = caller.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)

    assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert (tried.error_code, tried.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")


@pytest.mark.parametrize("version", [1, 2])
def test_there_are_no_tokens_for_those_who_did_not_authenticate(
    caller: Caller, version: int
) -> None:
    for request in (
        CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
        RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
        ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
        DescribeDelegationTokenRequest(owners=None),
    ):
        answer = caller.call(request, version)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
