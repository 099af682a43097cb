"""Hostile requests about transactions are answered, or their connection is closed, without a fault
of ours, in bounded memory; and those who behave go on.

`TEST_FUZZ_FACTOR` multiplies the count, `FUZZ_SEED` gives other requests.
"""

from __future__ import annotations

import os
import resource
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from broker.coordinator.transactions.transaction import TV1, TV2
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, Topic
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_transactions import ListTransactionsRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from protocol.records.builder import build_batch
from protocol.registry import APIS
from tests.fuzz.frames import Mutator
from tests.simulation.transactions.checks import check_state_topic
from tests.simulation.transactions.machine import frame_of
from tests.simulation.transactions.model import Status
from tests.simulation.transactions.producers import Producer
from tests.simulation.transactions.world import World
from tests.support.caller import produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.schema import Message
    from tests.simulation.transactions.machine import Asked

SEED = int(os.environ.get("FUZZ_SEED", "20261123"))
FACTOR = int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
REQUESTS = 1500 * FACTOR
FRAMES = 1500 * FACTOR
MAX_GROWTH_BYTES = 100 << 20
ANSWER_MAX_BYTES = 4096

IDS = ("a", "b", "c", "", "\0", "ü" * 300, "x" * 32_000)
GROUPS = ("g", "h", "", "\0", "g" * 32_000)
TOPICS = ("t", "s", "none", "", "..", "/", "t" * 300, "\0",
          "__consumer_offsets", "__transaction_state", "__cluster_metadata")  # fmt: skip
INDEXES = (0, 1, 2, 3, -1, 2**31 - 1, -(2**31))
PRODUCER_IDS = (-1, 0, 1, 2, 1000, 2**63 - 1, -(2**63))
EPOCHS = (-1, 0, 1, 2, 2**15 - 1, 2**15 - 2, -(2**15))
INT32S = (0, 1, 60_000, -1, 2**31 - 1, -(2**31))
PATTERNS = (
    None, "", ".*", "a", "(a+)+$", "(a|a)*b", "(x+x+)+y", "(.*a){20}", "a{1000}", "(a{1000}){1000}",
    "(", "[", "\\", "(?=a)", "(a)\\1", "\ud800", "x" * 9000, ".{0,999}" * 20, "^(([a-z])+.)+[A-Z]$",
)  # fmt: skip


class Hostile:
    """Makes requests of anybody about anything, of every version."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self._makers = (
            self.init, self.add, self.add, self.add_offsets, self.end, self.end, self.commit_offset,
            self.markers, self.describe, self.list_ids, self.producers, self.produce,
        )  # fmt: skip

    def request(self) -> tuple[Message, int]:
        """A request that can be encoded, and its version."""
        while True:
            request = self.chance.choice(self._makers)()
            api = APIS[type(request).key]
            lowest = 3 if isinstance(request, type(self.produce())) else api.min_version
            version = self.chance.randint(lowest, api.max_version)
            try:
                request.encode(version)
            except (ValueError, OverflowError):
                continue  # no such string, or no such field in this version
            return request, version

    def init(self) -> Message:
        choose = self.chance.choice
        return InitProducerIdRequest(
            transactional_id=choose((None, *IDS)),
            transaction_timeout_ms=choose(INT32S),
            producer_id=choose((-1, *PRODUCER_IDS)),
            producer_epoch=choose((-1, *EPOCHS)),
        )

    def add(self) -> Message:
        choose, some = self.chance.choice, self.some
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=choose(IDS),
            v3_and_below_producer_id=choose(PRODUCER_IDS),
            v3_and_below_producer_epoch=choose(EPOCHS),
            v3_and_below_topics=some(self.topic),
            transactions=some(
                lambda: AddPartitionsToTxnRequest.Transaction(
                    transactional_id=choose(IDS),
                    producer_id=choose(PRODUCER_IDS),
                    producer_epoch=choose(EPOCHS),
                    verify_only=choose((True, False)),
                    topics=some(self.topic),
                )
            ),
        )

    def topic(self) -> Topic:
        return Topic(name=self.chance.choice(TOPICS), partitions=self.some(self.index))

    def index(self) -> int:
        return self.chance.choice(INDEXES)

    def add_offsets(self) -> Message:
        choose = self.chance.choice
        return AddOffsetsToTxnRequest(
            transactional_id=choose(IDS),
            producer_id=choose(PRODUCER_IDS),
            producer_epoch=choose(EPOCHS),
            group_id=choose(GROUPS),
        )

    def end(self) -> Message:
        choose = self.chance.choice
        return EndTxnRequest(
            transactional_id=choose(IDS),
            producer_id=choose(PRODUCER_IDS),
            producer_epoch=choose(EPOCHS),
            committed=choose((True, False)),
        )

    def commit_offset(self) -> Message:
        choose, topic = self.chance.choice, TxnOffsetCommitRequest.Topic
        return TxnOffsetCommitRequest(
            transactional_id=choose(IDS),
            group_id=choose(GROUPS),
            producer_id=choose(PRODUCER_IDS),
            producer_epoch=choose(EPOCHS),
            generation_id_or_member_epoch=choose((-1, 0, 1, -2)),
            member_id=choose(("", "m")),
            group_instance_id=choose((None, "", "i")),
            topics=self.some(
                lambda: topic(
                    name=choose(TOPICS),
                    topic_id=choose((bytes(16), b"\xff" * 16)),
                    partitions=self.some(
                        lambda: topic.Partition(
                            partition_index=self.index(),
                            committed_offset=choose((0, 5, -1, 2**63 - 1, -(2**63))),
                            committed_leader_epoch=choose(INT32S),
                            committed_metadata=choose((None, "", "m" * 5000)),
                        )
                    ),
                )
            ),
        )

    def markers(self) -> Message:
        choose, marker = self.chance.choice, WriteTxnMarkersRequest.Marker
        return WriteTxnMarkersRequest(
            markers=self.some(
                lambda: marker(
                    producer_id=choose(PRODUCER_IDS[4:]),  # not of those who behave
                    producer_epoch=choose(EPOCHS),
                    transaction_result=choose((True, False)),
                    coordinator_epoch=choose(INT32S),
                    transaction_version=choose((0, 1, 2, -1, 127)),
                    topics=self.some(
                        lambda: marker.Topic(
                            name=choose(TOPICS), partition_indexes=self.some(self.index)
                        )
                    ),
                )
            )
        )

    def describe(self) -> Message:
        return DescribeTransactionsRequest(
            transactional_ids=self.some(lambda: self.chance.choice(IDS))
        )

    def list_ids(self) -> Message:
        choose = self.chance.choice
        return ListTransactionsRequest(
            state_filters=self.some(lambda: choose(("Ongoing", "Empty", "", "\0", "ongoing"))),
            producer_id_filters=self.some(lambda: choose(PRODUCER_IDS)),
            duration_filter=choose((-1, 0, 1, 2**63 - 1, -(2**63))),
            transactional_id_pattern=choose(PATTERNS),
        )

    def producers(self) -> Message:
        topic = DescribeProducersRequest.Topic
        return DescribeProducersRequest(
            topics=self.some(
                lambda: topic(
                    name=self.chance.choice(TOPICS), partition_indexes=self.some(self.index)
                )
            )
        )

    def produce(self) -> Message:
        choose = self.chance.choice
        data = build_batch(
            [(1_700_000_000_000, None, b"0:0", ())],
            producer_id=choose(PRODUCER_IDS),
            producer_epoch=choose(EPOCHS),
            base_sequence=choose((0, 1, -1, 2**31 - 1)),
            transactional=choose((True, True, False)),
        )
        sent = (choose(TOPICS[:3]), self.index(), data)
        return produce_request(sent, transactional_id=choose((None, *IDS)), acks=choose((-1, 1)))

    def some(self, make: Any) -> list[Any]:
        return [make() for _ in range(self.chance.choice((0, 1, 1, 2, 5)))]


@pytest.fixture(params=[TV1, TV2], ids=["tv1", "tv2"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    found = World(SEED, version=request.param)
    with found.machine.in_place():
        found.begin_first()
        yield found


def transact(world: World) -> None:
    """Somebody who behaves commits a transaction."""
    producer = Producer(world, "good", world.version)
    for _ in range(50):
        if producer.is_ready:
            break
        producer.step(Random(0))
        world.machine.settle()
    producer.open = world.model.begin("good")
    producer.write([0, 1, 2])
    for request in (producer.commit_offset, lambda: producer.end(commit=True), None):
        for _ in range(20):
            world.machine.settle()
            if producer.pending is None:
                break
            producer.step(Random(0))
        assert (producer.pending, producer.dead) == (None, False), world.refusals
        if request is not None:
            request()
    assert world.model.transactions[len(world.model.transactions)].status is Status.COMMITTED


def is_settled(asked: Asked) -> bool:
    return asked.answer is not None or asked.is_closed


def test_whatever_is_asked_is_answered_or_closes_its_connection(world: World) -> None:
    hostile = Hostile(SEED)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(REQUESTS):
        request, version = hostile.request()
        asked = world.machine.ask(request, version)
        world.machine.settle()
        assert is_settled(asked), (number, request, version)
        if number % 100 == 0:
            transact(world)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert growth < MAX_GROWTH_BYTES

    check_state_topic(world)
    world.machine.crash(Random(0), power=False)
    assert world.begin()
    world.machine.settle()
    check_state_topic(world)
    transact(world)


def test_spoiled_frames_do_no_harm(world: World) -> None:
    hostile, mutator = Hostile(SEED + 1), Mutator(SEED)
    requests = [hostile.request() for _ in range(200)]
    mutator.seeds = [frame_of(*one) for one in requests if len(frame_of(*one)) < 2000]
    by_kind = {(type(one).key, version): (one, version) for one, version in requests}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(FRAMES):
        frame = mutator.frame()
        key, version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")
        request = by_kind.get((key, version), requests[0])
        world.machine.send(*request, frame).hang_up_when_done(world.machine)
        if number % 100 == 0:
            transact(world)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert growth < MAX_GROWTH_BYTES
    transact(world)
    check_state_topic(world)


@pytest.mark.parametrize("kind", ["producers", "transactions", "markers"])
def test_what_is_named_ten_thousand_times_is_told_of_once(world: World, kind: str) -> None:
    """Else a request of some kilobytes has an answer of gigabytes."""
    transact(world)
    again = 10_000
    topic = WriteTxnMarkersRequest.Marker.Topic(name="t", partition_indexes=[0] * again)
    marker = WriteTxnMarkersRequest.Marker(
        producer_id=77, producer_epoch=0, transaction_result=True, topics=[topic],
        coordinator_epoch=0,
    )  # fmt: skip
    asked_topic = DescribeProducersRequest.Topic(name="t", partition_indexes=[0] * again)
    requests: dict[str, tuple[Message, int]] = {
        "producers": (DescribeProducersRequest(topics=[asked_topic] * 3), 0),
        "transactions": (DescribeTransactionsRequest(transactional_ids=["good"] * again), 0),
        "markers": (WriteTxnMarkersRequest(markers=[marker]), 1),
    }

    asked = world.machine.ask(*requests[kind])
    world.machine.settle()

    assert asked.answer is not None
    assert asked.answer_size < ANSWER_MAX_BYTES


def test_patterns_that_take_other_engines_years_are_matched_or_refused(world: World) -> None:
    for number in range(200):
        init = InitProducerIdRequest(
            transactional_id="a" * 100 + f"!{number}", transaction_timeout_ms=1000
        )
        world.machine.ask(init, 4)
    world.machine.settle()
    codes = set()
    for pattern in PATTERNS:
        if pattern == "\ud800":
            continue  # no UTF-8
        codes.add(listed(world, pattern))
    assert codes == {ErrorCode.NONE, ErrorCode.INVALID_REGULAR_EXPRESSION}


def test_a_pattern_that_is_too_much_work_for_long_ids_is_refused(world: World) -> None:
    """Where the automaton has no state twice, an id of 30 KB takes it seconds."""
    chance = Random(SEED)
    for _ in range(50):
        transactional_id = "".join(chance.choice("ab") for _ in range(1_000))
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
        world.machine.ask(init, 4)
    world.machine.settle()

    assert listed(world, ".*a.{900}") is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert listed(world, "a.*") is ErrorCode.NONE


def listed(world: World, pattern: str | None) -> ErrorCode:
    """The outcome of ListTransactions."""
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
    )
    asked = world.machine.ask(request, 2)
    world.machine.settle()
    return ErrorCode(asked.answer.error_code)
