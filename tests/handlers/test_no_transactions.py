"""A transactional id in InitProducerId, ListTransactions, DescribeTransactions: there are none."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_transactions import ListTransactionsRequest
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller


def begun(caller: Caller, transactional_id: str, version: int = 4) -> int:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    answer = caller.call(request, version)
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    code: int = answer.error_code
    return code


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_is_refused_as_not_supported(caller: Caller, version: int) -> None:
    assert begun(caller, "bank", version) == ErrorCode.UNSUPPORTED_VERSION


def test_who_asks_again_is_told_what_librdkafka_takes_as_final(caller: Caller) -> None:
    codes = [begun(caller, "bank") for _ in range(3)]

    final = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert codes == [ErrorCode.UNSUPPORTED_VERSION, final, final]


@pytest.mark.parametrize("version", range(6))
def test_an_empty_transactional_id_is_an_invalid_request(caller: Caller, version: int) -> None:
    assert begun(caller, "", version) == ErrorCode.INVALID_REQUEST


def test_the_log_says_once_per_client_and_id_that_there_are_no_transactions_yet(
    own_broker: BrokerProcess,
) -> None:
    own_broker.start()
    for client_id, transactional_id in (("till", "bank"), ("till", "shop"), ("vault", "bank")):
        address = own_broker.host, own_broker.port
        with Caller(*address, client_id=client_id) as caller:
            for _ in range(3):
                begun(caller, transactional_id)

    said = [line for line in own_broker.output().splitlines() if "no transactions yet" in line]

    assert len(said) == 3
    assert all("till" in line or "vault" in line for line in said)


@pytest.mark.parametrize("version", range(3))
def test_there_are_no_transactions_to_list(caller: Caller, version: int) -> None:
    answer = caller.call(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), version)

    assert (answer.error_code, answer.transaction_states) == (0, [])
    assert answer.unknown_state_filters == []


@pytest.mark.parametrize("version", range(3))
def test_states_that_there_are_not_are_told(caller: Caller, version: int) -> None:
    states = ["Ongoing", "ongoing", "PrepareEpochFence", "Lost"]

    answer = caller.call(
        ListTransactionsRequest(state_filters=states, producer_id_filters=[7]), version
    )

    # As Kafka 3.9 and 4.3 answer.
    assert (answer.error_code, answer.unknown_state_filters) == (0, ["ongoing", "Lost"])


@pytest.mark.parametrize(
    ("pattern", "code"), [("bank.*", 0), ("(", ErrorCode.INVALID_REGULAR_EXPRESSION)]
)
def test_a_pattern_that_is_none_is_refused(caller: Caller, pattern: str, code: int) -> None:
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
    )

    assert caller.call(request, 2).error_code == code


def test_no_transactional_id_is_known(caller: Caller) -> None:
    answer = caller.call(DescribeTransactionsRequest(transactional_ids=["bank", ""]), 0)

    assert [(one.transactional_id, one.error_code) for one in answer.transaction_states] == [
        ("bank", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
    ]
