"""Transactions as clients ask for them, but for what `tests/coordinator/transactions` compares with
Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, Topic
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.list_transactions import ListTransactionsRequest
from tests.support.caller import Caller

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

STATE_TOPIC = "__transaction_state"
TOPIC_RESOURCE = 2
TRANSACTION = 1


def begin(caller: Caller, transactional_id: str, version: int = 5) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    answer: InitProducerIdResponse = caller.call(request, version)
    assert answer.error_code == 0
    return answer


def add(caller: Caller, name: str, begun: InitProducerIdResponse, topic: str) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=[Topic(name=topic, partitions=[0])],
    )
    (told,) = caller.call(request, 3).results_by_topic_v3_and_below
    assert [one.partition_error_code for one in told.results_by_partition] == [0]


def end(
    caller: Caller, name: str, begun: InitProducerIdResponse, *, commit: bool = True
) -> tuple[int, int]:
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        committed=commit,
    )
    answer = caller.call(request, 5)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def state(caller: Caller, name: str) -> str:
    (told,) = caller.call(
        DescribeTransactionsRequest(transactional_ids=[name]), 0
    ).transaction_states
    text: str = told.transaction_state
    return text


def overrides(caller: Caller) -> list[tuple[str, str]]:
    """What was set for the topic itself."""
    resource = DescribeConfigsRequest.Resource(
        resource_type=TOPIC_RESOURCE, resource_name=STATE_TOPIC, configuration_keys=None
    )
    (result,) = caller.call(DescribeConfigsRequest(resources=[resource]), 4).results
    return sorted((one.name, one.value) for one in result.configs if one.config_source == 1)


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_who_looks_for_the_coordinator_of_a_transactional_id_has_the_topic_made(
    own_broker: BrokerProcess, version: int
) -> None:
    own_broker.settings = {"transaction.state.log.num.partitions": "7"}
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        assert caller.describe(STATE_TOPIC).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        asked = FindCoordinatorRequest(key="x", coordinator_keys=["x"], key_type=TRANSACTION)

        answer = caller.call(asked, version)

        told = answer if version < 4 else answer.coordinators[0]
        assert (told.error_code, told.port) == (0, own_broker.port)
        made = caller.describe(STATE_TOPIC)
        assert (made.error_code, made.is_internal, len(made.partitions)) == (0, True, 7)
        # Those that Apache Kafka gives it.
        assert overrides(caller) == [
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", "1"),
            ("segment.bytes", "104857600"),
            ("unclean.leader.election.enable", "false"),
        ]


def test_the_topic_is_made_for_who_does_not_look_and_is_neither_deleted_nor_grown(
    caller: Caller,
) -> None:
    begin(caller, "made")
    request = DeleteTopicsRequest(topic_names=[STATE_TOPIC], timeout_ms=1000)
    (deleted,) = caller.call(request, 5).responses
    grown = CreatePartitionsRequest.Topic(name=STATE_TOPIC, count=100, assignments=None)
    asked = CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False)
    (refused,) = caller.call(asked, 3).results

    assert deleted.error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert begin(caller, "made").producer_epoch == 1


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_an_id_and_an_epoch(caller: Caller, version: int) -> None:
    first, second = (begin(caller, f"of-{version}", version) for _ in range(2))

    assert first.producer_id == second.producer_id
    assert (first.producer_epoch, second.producer_epoch) == (0, 1)
    assert begin(caller, f"other-{version}", version).producer_id != first.producer_id


def test_the_longest_time_of_a_transaction_can_be_configured(own_broker: BrokerProcess) -> None:
    own_broker.settings = {"transaction.max.timeout.ms": "1000"}
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        codes = [
            caller.call(
                InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=timeout_ms), 5
            ).error_code
            for timeout_ms in (-1, 0, 1000, 1001)
        ]
    refused = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert codes == [refused, refused, 0, refused]


def test_a_transaction_whose_time_is_up_is_aborted_in_the_interval_that_is_configured(
    own_broker: BrokerProcess,
) -> None:
    own_broker.settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic("t")
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=100)
        begun = caller.call(request, 5)
        add(caller, "x", begun, "t")
        while state(caller, "x") == "Ongoing":
            caller.see_nothing_come(0.02)
        assert state(caller, "x") == "CompleteAbort"


def test_everything_is_as_it_was_after_a_kill(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic("t")
        ended, open_ = begin(caller, "ended"), begin(caller, "open")
        for name, begun in (("ended", ended), ("open", open_)):
            add(caller, name, begun, "t")
        assert end(caller, "ended", ended) == (ended.producer_id, 1)
    own_broker.kill()

    own_broker.start()

    with Caller(own_broker.host, own_broker.port) as caller:
        assert (state(caller, "ended"), state(caller, "open")) == ("CompleteCommit", "Ongoing")
        assert end(caller, "ended", ended) == (ended.producer_id, 1)
        assert end(caller, "open", open_, commit=False) == (open_.producer_id, 1)


def test_the_partition_of_a_groups_offsets_becomes_part_of_the_transaction(caller: Caller) -> None:
    begun = begin(caller, "offsets")
    request = AddOffsetsToTxnRequest(
        transactional_id="offsets",
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        group_id="g",
    )

    assert caller.call(request, 4).error_code == 0

    (told,) = caller.call(
        DescribeTransactionsRequest(transactional_ids=["offsets"]), 0
    ).transaction_states
    # "g" is 103, of 50 partitions.
    assert [(one.topic, one.partitions) for one in told.topics] == [("__consumer_offsets", [3])]


@pytest.mark.parametrize(
    ("pattern", "names"), [("bank.*", ["bank-1", "bank-2"]), ("bank", []), (".*nk-1", ["bank-1"])]
)
def test_ids_are_listed_whose_whole_name_a_pattern_matches(
    caller: Caller, pattern: str, names: list[str]
) -> None:
    for name in ("bank-1", "bank-2", "shop"):
        begin(caller, name)
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
    )

    found = caller.call(request, 2)

    assert found.error_code == 0
    assert sorted(one.transactional_id for one in found.transaction_states) == names


def test_a_pattern_that_is_none_is_refused(caller: Caller) -> None:
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern="("
    )

    assert caller.call(request, 2).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("version", range(3))
def test_states_that_there_are_not_are_told(caller: Caller, version: int) -> None:
    states = ["Ongoing", "ongoing", "PrepareEpochFence", "Lost"]
    request = ListTransactionsRequest(state_filters=states, producer_id_filters=[7])

    answer = caller.call(request, version)

    # As Kafka 3.9 and 4.3 answer.
    assert (answer.error_code, answer.unknown_state_filters) == (0, ["ongoing", "Lost"])


def test_before_anybody_has_looked_for_a_coordinator_there_is_none(
    own_broker: BrokerProcess,
) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        request = EndTxnRequest(
            transactional_id="x", producer_id=1, producer_epoch=0, committed=True
        )
        listed = ListTransactionsRequest(state_filters=[], producer_id_filters=[])

        assert caller.call(request, 4).error_code == ErrorCode.NOT_COORDINATOR
        assert caller.call(listed, 2).transaction_states == []
        assert caller.describe(STATE_TOPIC).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
