"""DescribeClientQuotas, versions 0 and 1.

What passes a filter, and the codes, are as Apache Kafka 3.9 has them for the same quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from tests.handlers.quota_calls import (
    ANY,
    DEFAULT,
    EXACT,
    Part,
    Quotas,
    alter,
    client,
    component,
    describe,
    entry,
    ip,
    quotas_in,
    user,
)
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
    from tests.support.broker_process import BrokerProcess

    Component = DescribeClientQuotasRequest.Component

VERSIONS = range(2)

AL, CL = user("al"), client("cl")
HOME = ip("10.0.0.1")
KEPT: Mapping[tuple[Part, ...], dict[str, float]] = {
    (AL,): {"producer_byte_rate": 1000.0},
    (AL, CL): {"consumer_byte_rate": 2000.0},
    (user(None),): {"request_percentage": 50.0},
    (client(None),): {"controller_mutation_rate": 2.5},
    (ip(None),): {"connection_creation_rate": 7.0},
    (HOME,): {"connection_creation_rate": 5.0},
    (CL,): {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0},
    (AL, client(None)): {"producer_byte_rate": 11.0},
    (user(None), CL): {"producer_byte_rate": 12.0},
    (user(None), client(None)): {"producer_byte_rate": 13.0},
}


@pytest.fixture(scope="module", autouse=True)
def _kept(broker: BrokerProcess) -> None:
    with Caller(broker.host, broker.port) as caller:
        alter(caller, *(entry(*parts, **quotas) for parts, quotas in KEPT.items()))


def those(*entities: tuple[Part, ...]) -> Quotas:
    return {frozenset(parts): KEPT[parts] for parts in entities}


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_filter_all_quotas_are_told(caller: Caller, version: int) -> None:
    assert quotas_in(describe(caller, version=version)) == those(*KEPT)


BOTH = ((AL, CL), (AL, client(None)), (user(None), CL), (user(None), client(None)))


@pytest.mark.parametrize(
    ("components", "strict", "passing"),
    [
        ([], True, []),
        ([component("user", EXACT, "al")], False, [(AL,), (AL, CL), (AL, client(None))]),
        ([component("user", EXACT, "al")], True, [(AL,)]),
        (
            [component("user", DEFAULT)],
            False,
            [(user(None),), (user(None), CL), (user(None), client(None))],
        ),
        ([component("user", DEFAULT)], True, [(user(None),)]),
        ([component("user", ANY)], False, [(AL,), (user(None),), *BOTH]),
        ([component("user", ANY)], True, [(AL,), (user(None),)]),
        ([component("client-id", ANY)], True, [(CL,), (client(None),)]),
        ([component("user", ANY), component("client-id", ANY)], False, list(BOTH)),
        ([component("client-id", ANY), component("user", ANY)], True, list(BOTH)),
        ([component("user", EXACT, "al"), component("client-id", EXACT, "cl")], False, [(AL, CL)]),
        (
            [component("user", DEFAULT), component("client-id", DEFAULT)],
            False,
            [(user(None), client(None))],
        ),
        ([component("ip", ANY)], False, [(ip(None),), (HOME,)]),
        ([component("ip", EXACT, "10.0.0.1")], True, [(HOME,)]),
        ([component("ip", EXACT, "hello world")], False, []),
        ([component("user", EXACT, "nobody")], False, []),
        ([component("user", EXACT, "")], False, []),
    ],
)
def test_a_filter_lets_through_what_it_matches(
    caller: Caller, components: list[Component], strict: bool, passing: list[tuple[Part, ...]]
) -> None:
    assert quotas_in(describe(caller, *components, strict=strict)) == those(*passing)


INVALID, UNSUPPORTED = ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([component("group", ANY)], UNSUPPORTED),
        ([component("group", EXACT)], UNSUPPORTED),
        ([component("", ANY)], INVALID),
        ([component("user", ANY), component("user", ANY)], INVALID),
        ([component("user", 3)], INVALID),
        ([component("user", -1)], INVALID),
        ([component("user", EXACT)], INVALID),
        ([component("user", DEFAULT, "x")], INVALID),
        ([component("user", ANY, "x")], INVALID),
        ([component("ip", ANY), component("user", ANY)], INVALID),
        ([component("client-id", ANY), component("ip", ANY)], INVALID),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    caller: Caller, version: int, components: list[Component], code: int
) -> None:
    answer = describe(caller, *components, version=version)

    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message
