"""What partitions of one process know of transactions that another coordinates: they ask, once, and
believe no answer that a marker has overtaken."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker.coordinator.transactions.shared import SharedTransactions
from broker.neighbours import GroupsElsewhere, Neighbours
from broker.network.dispatch import answer
from broker.partitions.internal_topics import TRANSACTION_TOPIC
from broker.pending import AskedFirst, Durable
from broker.producing.markers import NOT_NEEDED
from protocol.connection import Request
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse, TopicResult
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.support.fake_connection import InProcessBroker
from tests.support.transactions import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC, PLACE, OTHER = "t", ("t", 0), ("t", 1)
PRODUCER, EPOCH = 7, 3


class Coordinator:
    """The connection to it: it answers when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.asked: list[tuple[list[int], bool]] = []
        """Partitions of each question, and whether they were to be added."""
        self._answers: list[asyncio.Future[int]] = []

    async def ask(self, process: int, request: Any, kind: type[Any]) -> Any:
        assert (process, kind) == (0, AddPartitionsToTxnResponse)
        (transaction,) = request.transactions
        (topic,) = transaction.topics
        self.asked.append((topic.partitions, not transaction.verify_only))
        answer = self._loop.create_future()
        self._answers.append(answer)
        code = await answer
        results = [
            TopicResult.PartitionResult(partition_index=index, partition_error_code=code)
            for index in topic.partitions
        ]
        result = AddPartitionsToTxnResponse.TransactionResult(
            transactional_id=transaction.transactional_id,
            topic_results=[TopicResult(name=topic.name, results_by_partition=results)],
        )
        return AddPartitionsToTxnResponse(results_by_transaction=[result])

    def answer(self, code: int = ErrorCode.NONE) -> None:
        """To the oldest question."""
        self._answers.pop(0).set_result(code)

    def go(self) -> None:
        """It dies."""
        self._answers.pop(0).set_exception(ConnectionError("it has gone"))


class Partitions:
    """Those of a process that ask a coordinator, and requests that wait for it."""

    def __init__(self, broker: InProcessBroker) -> None:
        parts = broker.running.broker
        self.coordinator = Coordinator(parts.loop)
        groups = cast("GroupsElsewhere", None)
        neighbours = Neighbours(1, {"PLAINTEXT": [1, 2]}, 1, groups, self.coordinator)
        self.known = SharedTransactions(
            parts.topics, lambda _: pytest.fail("it coordinates none"), parts.loop, neighbours
        )
        self._broker = broker
        self.told: list[str] = []

    def ask(
        self, name: str, *places: tuple[str, int], add: bool = False, epoch: int = EPOCH
    ) -> bool:
        """A request of this name comes; whether it has to wait."""
        try:
            self.known.ask_first("x", PRODUCER, epoch, places, add=add)
        except AskedFirst as first:
            first.ask(lambda: self.told.append(name))
            self._broker.turn(3)
            return True
        return False

    def turn(self) -> None:
        self._broker.turn(3)

    def verify(self, place: tuple[str, int] = PLACE, epoch: int = EPOCH) -> ErrorCode:
        try:
            self.known.verify("x", PRODUCER, epoch, [place], add=False)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def includes(self, epoch: int = EPOCH) -> bool:
        return self.known.includes("x", PRODUCER, epoch, PLACE)


def test_markers_that_come_before_the_logs_are_open_are_asked_for_again(tmp_path: Path) -> None:
    """The controller serves its log before that, on the same socket."""
    with InProcessBroker(tmp_path / "data") as broker:
        create_topic(broker, TOPIC)
        parts = broker.running.broker
        route = parts.listener_routes.internal.find(27, 1)
        marker = WriteTxnMarkersRequest.Marker
        asked = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=PRODUCER,
                    producer_epoch=EPOCH,
                    transaction_result=True,
                    topics=[marker.Topic(name=TOPIC, partition_indexes=[0])],
                    coordinator_epoch=0,
                )
            ]
        )
        ctx = broker.connect().connection.context

        def code() -> int:
            found = answer(Request(route, 1, None, asked), ctx)
            response = found.response if isinstance(found, Durable) else found
            (entry,) = response.markers[0].topics[0].partitions
            told: int = entry.error_code
            return told

        parts.topics.are_open = False
        assert code() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert code() not in NOT_NEEDED
        parts.topics.are_open = True
        assert code() == ErrorCode.NONE


@pytest.fixture
def partitions(tmp_path: Path) -> Iterator[Partitions]:
    with InProcessBroker(tmp_path / "data") as broker:
        create_topic(broker, TOPIC, 2)
        create_topic(broker, TRANSACTION_TOPIC, 1)
        found = Partitions(broker)
        yield found
        found.known.stop()
        found.turn()


def test_what_the_coordinator_has_confirmed_is_known_until_the_marker_comes(
    partitions: Partitions,
) -> None:
    assert partitions.ask("first", PLACE)
    assert not partitions.includes()
    partitions.coordinator.answer()
    partitions.turn()

    assert partitions.told == ["first"]
    assert not partitions.ask("second", PLACE)
    assert (partitions.verify(), partitions.includes()) == (ErrorCode.NONE, True)
    assert not partitions.includes(EPOCH + 1)
    partitions.known.ended(PRODUCER, [PLACE])
    assert not partitions.includes()
    assert partitions.ask("third", PLACE)
    assert partitions.coordinator.asked == [([0], False)] * 2


def test_who_comes_while_the_coordinator_is_asked_waits_for_the_same_answer(
    partitions: Partitions,
) -> None:
    assert partitions.ask("first", PLACE, add=True)
    assert partitions.ask("second", PLACE, OTHER, add=True)
    assert partitions.coordinator.asked == [([0], True), ([1], True)]

    partitions.coordinator.answer()
    partitions.turn()
    assert partitions.told == ["first"]
    partitions.coordinator.answer()
    partitions.turn()
    assert partitions.told == ["first", "second"]
    assert not partitions.ask("third", PLACE, OTHER)


def test_an_answer_that_a_marker_has_overtaken_is_not_believed(partitions: Partitions) -> None:
    partitions.ask("first", PLACE)
    partitions.known.ended(PRODUCER, [PLACE])
    partitions.coordinator.answer()
    partitions.turn()

    assert partitions.told == ["first"]
    assert not partitions.includes()
    assert partitions.ask("first again", PLACE), "it is asked anew"


def test_a_partition_that_leaves_takes_what_was_heard_of_it_along(partitions: Partitions) -> None:
    """It may come back when its transactions have ended elsewhere."""
    partitions.ask("first", PLACE, OTHER)
    partitions.coordinator.answer()
    partitions.turn()
    partitions.known.left([PLACE])

    assert not partitions.includes()
    assert not partitions.ask("second", OTHER)
    assert partitions.ask("third", PLACE), "it is asked anew"
    partitions.known.left([PLACE])
    partitions.coordinator.answer()
    partitions.turn()
    assert partitions.told == ["first", "third"]
    assert not partitions.includes(), "it left before the answer came"


def test_a_refusal_is_told_and_then_asked_for_anew(partitions: Partitions) -> None:
    partitions.ask("first", PLACE)
    partitions.coordinator.answer(ErrorCode.TRANSACTION_ABORTABLE)
    partitions.turn()

    assert not partitions.ask("first again", PLACE)
    assert partitions.verify() is ErrorCode.TRANSACTION_ABORTABLE
    assert partitions.ask("second", PLACE)


def test_two_instances_of_a_producer_that_come_at_once_are_both_answered(
    partitions: Partitions,
) -> None:
    """One goes on after a pause, when the next has begun: neither has the other asked anew."""
    partitions.ask("new", PLACE, epoch=EPOCH)
    partitions.ask("old", PLACE, epoch=EPOCH - 1)
    partitions.coordinator.answer()
    partitions.coordinator.answer(ErrorCode.PRODUCER_FENCED)
    partitions.turn()

    assert partitions.told == ["new", "old"]
    assert not partitions.ask("new again", PLACE, epoch=EPOCH)
    assert not partitions.ask("old again", PLACE, epoch=EPOCH - 1)
    assert partitions.verify(epoch=EPOCH - 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partitions.includes()


def test_a_coordinator_that_has_gone_is_not_available(partitions: Partitions) -> None:
    partitions.ask("first", PLACE)
    partitions.coordinator.go()
    partitions.turn()

    assert partitions.told == ["first"]
    assert not partitions.ask("first again", PLACE)
    assert partitions.verify() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert partitions.ask("second", PLACE)
