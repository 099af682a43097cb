"""InitProducerId 6: producers that take part in two-phase commits (KIP-939).

What Apache Kafka 4.3 does of it, which keeps no transaction, `tests/clients/transactions` compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.list_transactions import ListTransactionsRequest
from tests.clients.transactions.telling import set_transaction_version
from tests.handlers.test_transactions import add, end, state
from tests.support.caller import Caller, batch, produce_request

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

NO_TIMEOUT_MS = 2**31 - 1
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}


@pytest.fixture
def two_phase(own_broker: BrokerProcess) -> BrokerProcess:
    """A broker that takes part in two-phase commits, with a topic."""
    own_broker.settings = TWO_PHASE
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        set_transaction_version(caller, 2)
        caller.create_topic("t")
    return own_broker


def begin(caller: Caller, *, enable2_pc: bool = True, keep: bool = False) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id="x",
        transaction_timeout_ms=60_000,
        enable2_pc=enable2_pc,
        keep_prepared_txn=keep,
    )
    answer: InitProducerIdResponse = caller.call(request, 6)
    return answer


def ids(answer: InitProducerIdResponse) -> tuple[int, int, int, int]:
    assert answer.error_code == 0
    ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
    return answer.producer_id, answer.producer_epoch, *ongoing


def prepare(broker: BrokerProcess) -> InitProducerIdResponse:
    """A producer writes a record in a transaction, and is gone."""
    with Caller(broker.host, broker.port) as caller:
        begun = begin(caller)
        add(caller, "x", begun, "t")
        records = batch(
            b"prepared",
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        request = produce_request(("t", 0, records))
        request.transactional_id = "x"
        ((entry,),) = [one.partition_responses for one in caller.call(request, 8).responses]
        assert entry.error_code == 0
    return begun


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_prepared_is_ended_by_the_next_instance_after_a_kill(
    two_phase: BrokerProcess, commit: bool
) -> None:
    first = prepare(two_phase)
    two_phase.kill()
    two_phase.start()

    with Caller(two_phase.host, two_phase.port) as caller:
        second = begin(caller, keep=True)
        third = begin(caller, keep=True)
        ongoing = (first.producer_id, first.producer_epoch)
        assert ids(second) == (first.producer_id, first.producer_epoch + 1, *ongoing)
        assert ids(third) == (first.producer_id, first.producer_epoch + 2, *ongoing)
        for gone in (first, second):
            zombie = EndTxnRequest(
                transactional_id="x",
                producer_id=gone.producer_id,
                producer_epoch=gone.producer_epoch,
                committed=True,
            )
            assert caller.call(zombie, 5).error_code == ErrorCode.PRODUCER_FENCED

        after = end(caller, "x", third, commit=commit)

        assert after == (third.producer_id, third.producer_epoch + 1)
        assert state(caller, "x") == ("CompleteCommit" if commit else "CompleteAbort")
        ended = caller.fetch("t", isolation_level=1)
        assert len(ended.aborted_transactions or []) == (not commit)
        assert ended.last_stable_offset == 2
        assert ids(begin(caller, keep=True)) == (third.producer_id, after[1] + 1, -1, -1)


def test_tools_see_the_transaction_with_the_id_and_epoch_of_its_batches(
    two_phase: BrokerProcess,
) -> None:
    first = prepare(two_phase)
    with Caller(two_phase.host, two_phase.port) as caller:
        begin(caller, keep=True)

        request = DescribeTransactionsRequest(transactional_ids=["x"])
        (told,) = caller.call(request, 0).transaction_states
        listed = caller.call(
            ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[]), 2
        ).transaction_states

    assert told.transaction_state == "Ongoing"
    assert (told.producer_id, told.producer_epoch) == (first.producer_id, first.producer_epoch)
    assert told.transaction_timeout_ms == NO_TIMEOUT_MS
    assert [(one.topic, one.partitions) for one in told.topics] == [("t", [0])]
    assert [(one.transactional_id, one.producer_id) for one in listed] == [("x", first.producer_id)]


def test_an_instance_that_does_not_keep_it_has_it_aborted(two_phase: BrokerProcess) -> None:
    first = prepare(two_phase)
    with Caller(two_phase.host, two_phase.port) as caller:
        kept = begin(caller, keep=True)
        while (answer := begin(caller)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            caller.see_nothing_come(0.02)

        assert state(caller, "x") == "Empty"
        assert answer.producer_id == first.producer_id
        assert answer.producer_epoch > kept.producer_epoch
        assert answer.ongoing_txn_producer_id == -1
        assert len(caller.fetch("t", isolation_level=1).aborted_transactions or []) == 1


def test_nobody_takes_part_unless_that_is_configured_and_the_level_of_the_feature_is_reached(
    own_broker: BrokerProcess,
) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert [begin(caller, keep=keep).error_code for keep in (False, True)] == [refused] * 2
        without = begin(caller, enable2_pc=False, keep=True)
        assert without.error_code == ErrorCode.UNSUPPORTED_VERSION
        set_transaction_version(caller, 2)
        assert begin(caller, enable2_pc=False, keep=True).error_code == 0
