"""AlterClientQuotas, versions 0 and 1. The codes are what Apache Kafka 3.9 answers, but where it is
said that we refuse what it takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from tests.handlers.quota_calls import (
    Part,
    alter,
    client,
    describe,
    entry,
    ip,
    quotas_in,
    user,
)
from tests.support.caller import Caller

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

VERSIONS = range(2)
INVALID = ErrorCode.INVALID_REQUEST

BYTES, PERCENTAGE = "producer_byte_rate", "request_percentage"
MUTATIONS, CONNECTIONS = "controller_mutation_rate", "connection_creation_rate"
LARGEST = 2.0**63


@pytest.mark.parametrize("version", VERSIONS)
def test_quotas_are_set_changed_and_taken_away(caller: Caller, topic: str, version: int) -> None:
    alice, anna = user(topic), client(topic)
    (answered,) = alter(
        caller, entry(alice, anna, producer_byte_rate=1.0, request_percentage=0.5), version=version
    )
    assert answered.error_code == 0
    assert [(one.entity_type, one.entity_name) for one in answered.entity] == [alice, anna]
    assert quotas_in(describe(caller))[frozenset({alice, anna})] == {BYTES: 1.0, PERCENTAGE: 0.5}

    # The order of an entity's parts says nothing.
    alter(caller, entry(anna, alice, producer_byte_rate=7.0), version=version)
    assert quotas_in(describe(caller))[frozenset({alice, anna})] == {BYTES: 7.0, PERCENTAGE: 0.5}

    alter(caller, entry(alice, anna, producer_byte_rate=None), version=version)
    assert quotas_in(describe(caller))[frozenset({alice, anna})] == {PERCENTAGE: 0.5}
    alter(caller, entry(alice, anna, request_percentage=None), version=version)
    assert frozenset({alice, anna}) not in quotas_in(describe(caller))


def test_quotas_outlive_a_kill(own_broker: BrokerProcess) -> None:
    own_broker.start()
    wanted = [
        entry(user("alice"), producer_byte_rate=1024.0),
        entry(user("alice"), client(None), consumer_byte_rate=2048.0),
        entry(user(None), client(None), request_percentage=12.5),
        entry(ip("10.1.2.3"), connection_creation_rate=5.0),
        entry(ip(None), connection_creation_rate=9.0),
    ]
    with Caller(own_broker.host, own_broker.port) as caller:
        assert {one.error_code for one in alter(caller, *wanted)} == {0}
        before = quotas_in(describe(caller))
        assert len(before) == len(wanted)
    own_broker.kill()
    own_broker.start()

    with Caller(own_broker.host, own_broker.port) as caller:
        assert quotas_in(describe(caller)) == before


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ((), INVALID),
        ((("group", "x"),), INVALID),
        ((("", "x"),), INVALID),
        ((user(""),), INVALID),
        ((client(""),), INVALID),
        ((ip(""),), INVALID),
        ((ip("not an ip"),), INVALID),
        ((ip("no.such.host.invalid"),), INVALID),
        ((ip("1.2.3.4"), user("a")), INVALID),
        ((client("a"), ip("1.2.3.4")), INVALID),
        ((user("a"), client("b"), ip(None)), INVALID),
        ((ip("::1"),), 0),
        ((ip("255.255.255.255"),), 0),
        ((ip(None),), 0),
        ((user("ä b\n"),), 0),
        # Kafka takes the last of two, and asks elsewhere for the address of a name.
        ((user("a"), user("b")), INVALID),
        ((user("a"), user("a")), INVALID),
        ((ip("localhost"),), INVALID),
    ],
)
def test_who_can_have_a_quota(caller: Caller, parts: tuple[Part, ...], code: int) -> None:
    key = CONNECTIONS if any(kind == "ip" for kind, _ in parts) else BYTES

    (answered,) = alter(caller, entry(*parts, **{key: 1.0}), validate_only=True)

    assert answered.error_code == code
    assert [(one.entity_type, one.entity_name) for one in answered.entity] == list(parts)


@pytest.mark.parametrize(
    ("part", "key", "value", "code"),
    [
        (user("a"), "foo", 1.0, INVALID),
        (user("a"), "", 1.0, INVALID),
        (user("a"), CONNECTIONS, 1.0, INVALID),
        (client("a"), CONNECTIONS, 1.0, INVALID),
        (ip("1.2.3.4"), BYTES, 1.0, INVALID),
        *((user("a"), key, value, INVALID) for key in (BYTES, PERCENTAGE) for value in (0.0, -1.0)),
        *((ip("1.2.3.4"), CONNECTIONS, value, INVALID) for value in (0.0, -1.0, 1.5, 2.0**31, 3e9)),
        (ip("1.2.3.4"), CONNECTIONS, 2.0**31 - 1, 0),
        *((user("a"), BYTES, value, INVALID) for value in (1.5, 1.0001, 1.9999999, 1e19, math.inf)),
        *((user("a"), BYTES, value, 0) for value in (1.0000001, 2.0**53 + 2, 1e18, LARGEST)),
        *((user("a"), key, 0.5, 0) for key in (PERCENTAGE, MUTATIONS)),
        (client("a"), PERCENTAGE, 300.0, 0),
        (user("a"), PERCENTAGE, 1e-9, 0),
        # Kafka takes it.
        *((user("a"), key, math.nan, INVALID) for key in (BYTES, PERCENTAGE)),
    ],
)
def test_which_quotas_there_can_be(
    caller: Caller, part: Part, key: str, value: float, code: int
) -> None:
    asked = entry(part)
    asked.ops = [AlterClientQuotasRequest.Entry.Op(key=key, value=value, remove=False)]

    (answered,) = alter(caller, asked, validate_only=True)

    assert answered.error_code == code


@pytest.mark.parametrize("version", VERSIONS)
def test_validating_changes_nothing(caller: Caller, topic: str, version: int) -> None:
    (answered,) = alter(
        caller, entry(user(topic), producer_byte_rate=1.0), validate_only=True, version=version
    )

    assert answered.error_code == 0
    assert frozenset({user(topic)}) not in quotas_in(describe(caller))


@pytest.mark.parametrize("key", [BYTES, CONNECTIONS, "foo"])
def test_what_is_not_there_can_be_taken_away(caller: Caller, key: str) -> None:
    (answered,) = alter(caller, entry(user("nobody"), **{key: None}))

    assert answered.error_code == 0


def test_an_entity_without_changes_is_answered(caller: Caller, topic: str) -> None:
    assert [one.error_code for one in alter(caller, entry(user(topic)))] == [0]
    assert alter(caller) == []


def test_all_of_an_entity_is_changed_or_nothing_and_its_neighbours_are(
    caller: Caller, topic: str
) -> None:
    good, bad, mixed = (user(f"{topic}-{kind}") for kind in ("good", "bad", "mixed"))

    answered = alter(
        caller,
        entry(mixed, producer_byte_rate=1.0, foo=1.0),
        entry(good, producer_byte_rate=1.0),
        entry(bad, producer_byte_rate=-1.0),
    )

    assert [one.error_code for one in answered] == [INVALID, 0, INVALID]
    found = quotas_in(describe(caller))
    assert [frozenset({who}) in found for who in (good, bad, mixed)] == [True, False, False]


# Kafka has the same code, but makes the first change of such an entity.
def test_an_entity_that_comes_twice_is_refused_and_answered_once(
    caller: Caller, topic: str
) -> None:
    alice, anna = user(topic), client(topic)

    answered = alter(
        caller,
        entry(alice, anna, producer_byte_rate=1.0),
        entry(user(f"{topic}-2"), producer_byte_rate=1.0),
        entry(anna, alice, consumer_byte_rate=2.0),
    )

    assert [one.error_code for one in answered] == [INVALID, 0]
    assert frozenset({alice, anna}) not in quotas_in(describe(caller))


def test_a_key_that_comes_twice_is_refused(caller: Caller, topic: str) -> None:
    asked = entry(user(topic), producer_byte_rate=1.0)
    asked.ops = [*asked.ops, *entry(user(topic), producer_byte_rate=None).ops]

    assert [one.error_code for one in alter(caller, asked)] == [INVALID]
    assert frozenset({user(topic)}) not in quotas_in(describe(caller))


def test_more_changes_than_one_batch_takes_are_refused_together(caller: Caller) -> None:
    many = [entry(user(f"many-{number}"), producer_byte_rate=1.0) for number in range(10_001)]

    refused = alter(caller, *many)

    assert {one.error_code for one in refused} == {ErrorCode.POLICY_VIOLATION}
    assert frozenset({user("many-0")}) not in quotas_in(describe(caller))
