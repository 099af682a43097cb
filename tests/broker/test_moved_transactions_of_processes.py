"""Transactions whose coordinator's partition of `__transaction_state` moves from one process of a
directory to another."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, NamedTuple

import pytest

from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, Topic
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.test_moves_of_processes import moved, moves, rebalanced
from tests.broker.test_processes import TOPIC, Directory, directory, make_topic, until
from tests.support.caller import batch, produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.caller import Caller

__all__ = ["directory"]
pytestmark = pytest.mark.linux

ID, STATE_TOPIC = "copier", "__transaction_state"
LONG_MS = 600_000


@pytest.fixture
def callers(directory: Directory) -> Iterator[list[Caller]]:
    """A client of each process; the one partition of the state topic is led by the first."""
    directory.start(2, "--set", "transaction.state.log.num.partitions=1")
    make_topic(directory)
    both = [directory.connect(process) for process in (0, 1)]
    coordinator(both[0])  # the topic is made
    move(both, 0)
    yield both
    for caller in both:
        caller.close()


def coordinator(caller: Caller) -> int:
    """The id of the broker that coordinates all ids, as it is told by one."""
    found: int = caller.call(FindCoordinatorRequest(key=ID, key_type=1), 1).node_id
    return found


def move(callers: list[Caller], to: int) -> None:
    """Have this process coordinate all ids."""
    assert moved(callers[0], STATE_TOPIC, {0: [1 + to]}) == [ErrorCode.NONE]
    until(lambda: not moves(callers[0]))
    until(lambda: [coordinator(caller) for caller in callers] == [1 + to, 1 + to])


class Given(NamedTuple):
    """An instance of the producer."""

    producer_id: int
    epoch: int


def begin(caller: Caller, timeout_ms: int = LONG_MS) -> Given:
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=timeout_ms)
    answer = until(
        lambda: answered if not (answered := caller.call(request, 4)).error_code else None
    )
    return Given(answer.producer_id, answer.producer_epoch)


def add(caller: Caller, given: Given, *partitions: int) -> list[int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=given.producer_id,
        v3_and_below_producer_epoch=given.epoch,
        v3_and_below_topics=[Topic(name=TOPIC, partitions=list(partitions))],
    )
    (added,) = caller.call(request, 3).results_by_topic_v3_and_below
    return [one.partition_error_code for one in added.results_by_partition]


def send(callers: list[Caller], given: Given, partition: int, value: bytes, sequence: int) -> int:
    """To the leader of the partition: the topic's are led in turn."""
    records = batch(
        value,
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    request = produce_request((TOPIC, partition, records), transactional_id=ID)
    (answered,) = callers[partition % 2].call(request, 11).responses
    code: int = answered.partition_responses[0].error_code
    return code


def end(caller: Caller, given: Given, *, commit: bool = True) -> int:
    request = EndTxnRequest(
        transactional_id=ID,
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
        committed=commit,
    )
    code: int = caller.call(request, 3).error_code
    return code


def state(caller: Caller) -> str:
    request = DescribeTransactionsRequest(transactional_ids=[ID])
    (found,) = caller.call(request, 0).transaction_states
    described: str = found.transaction_state
    return described


def is_readable(callers: list[Caller], partition: int) -> bool:
    """Whether nothing is open in the partition: readers of committed records come to its end."""
    found = callers[partition % 2].fetch(TOPIC, partition=partition, isolation_level=1)
    return bool(found.last_stable_offset == found.high_watermark)


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_goes_on_with_the_next_coordinator(
    callers: list[Caller], commit: bool
) -> None:
    given = begin(callers[0])
    for number in range(1, 4):
        new, old = number % 2, 1 - number % 2
        assert add(callers[old], given, 0) == [ErrorCode.NONE]
        assert send(callers, given, 0, b"v", 2 * number - 2) == ErrorCode.NONE
        move(callers, new)
        assert end(callers[old], given) == ErrorCode.NOT_COORDINATOR
        assert state(callers[new]) == "Ongoing"
        assert add(callers[new], given, 1) == [ErrorCode.NONE]
        assert send(callers, given, 1, b"v", number - 1) == ErrorCode.NONE
        assert send(callers, given, 0, b"v", 2 * number - 1) == ErrorCode.NONE
        assert end(callers[new], given, commit=commit) == ErrorCode.NONE
        until(lambda: is_readable(callers, 0) and is_readable(callers, 1))
    assert begin(callers[1]) == (given.producer_id, given.epoch + 1)


def test_an_end_that_was_told_is_told_again_by_the_next_coordinator(
    callers: list[Caller],
) -> None:
    given = begin(callers[0])
    assert add(callers[0], given, 0, 1) == [ErrorCode.NONE] * 2
    assert end(callers[0], given) == ErrorCode.NONE
    move(callers, 1)
    until(lambda: end(callers[1], given) == ErrorCode.NONE)
    assert end(callers[1], given, commit=False) == ErrorCode.INVALID_TXN_STATE
    until(lambda: state(callers[1]) == "CompleteCommit")


def test_a_transaction_has_its_time_from_its_begin_wherever_it_has_moved(
    callers: list[Caller],
) -> None:
    given = begin(callers[0], timeout_ms=2000)
    assert add(callers[0], given, 0) == [ErrorCode.NONE]
    assert send(callers, given, 0, b"v", 0) == ErrorCode.NONE
    move(callers, 1)
    assert not is_readable(callers, 0)
    until(lambda: is_readable(callers, 0))
    until(lambda: state(callers[1]) == "CompleteAbort")
    assert end(callers[1], given) != ErrorCode.NONE


@pytest.mark.parametrize("victim", [0, 1])
def test_a_transaction_outlives_a_crash_that_follows_a_move(
    directory: Directory, callers: list[Caller], victim: int
) -> None:
    given = begin(callers[0])
    assert add(callers[0], given, 0, 1) == [ErrorCode.NONE] * 2
    move(callers, 1)
    os.kill(directory.children()[victim], signal.SIGKILL)
    directory.said("a process died")
    until(lambda: len(directory.children()) == 2)
    with directory.connect(0) as zero, directory.connect(1) as one:
        until(lambda: state(one) == "Ongoing")
        both = [zero, one]
        for partition in (0, 1):
            assert send(both, given, partition, b"v", 0) == ErrorCode.NONE
        until(lambda: end(one, given) == ErrorCode.NONE)
        until(lambda: is_readable(both, 0) and is_readable(both, 1))


def test_coordinators_of_transactions_are_spread_anew(directory: Directory) -> None:
    directory.start(2, "--set", "transaction.state.log.num.partitions=4")
    make_topic(directory)
    with directory.connect(0) as caller:
        coordinator(caller)
        assert moved(caller, STATE_TOPIC, {index: [1] for index in range(4)}) == [0] * 4
        until(lambda: not moves(caller))
        assert len(rebalanced(directory, "--execute")["moves"]) == 2
        leaders = [one.leader_id for one in caller.describe(STATE_TOPIC).partitions]
    assert sorted(leaders) == [1, 1, 2, 2]
