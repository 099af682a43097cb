"""A broker whose time a test moves: timers, and all that depends on time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from broker.faults.clock import AHEAD_MAX_MS, STEPS_MAX, MovableClock, MovableLoop
from broker.faults.injection import FaultInjection
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.sync_group import SyncGroupRequest
from tests.support.caller import batch, produce_request
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker
from tests.support.manual_loop import ManualLoop

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from pathlib import Path

DAY_MS = 86_400_000


class World:
    """A movable loop over one that only the test moves, and what it has called."""

    def __init__(self) -> None:
        self.inner = ManualLoop()
        self.loop = MovableLoop(cast("asyncio.AbstractEventLoop", self.inner))
        self.called: list[str] = []

    def every(self, name: str, period_s: float) -> None:
        self.called.append(name)
        self.loop.call_later(period_s, self.every, name, period_s)


def test_a_move_runs_what_falls_due_at_its_time_and_in_order() -> None:
    world = World()
    began_s = world.loop.time()
    seen: list[tuple[str, float]] = []

    def see(name: str) -> None:
        seen.append((name, world.loop.time() - began_s))

    world.loop.call_later(30, see, "later")
    world.loop.call_later(10, see, "sooner")
    world.loop.call_later(100, see, "not yet")
    world.loop.call_later(20, see, "cancelled").cancel()
    world.loop.call_later(15, lambda: world.loop.call_later(20, see, "set up meanwhile"))

    assert world.loop.move(60) == 4
    assert seen == [("sooner", 10), ("later", 30), ("set up meanwhile", 35)]
    world.inner.pass_s(39)
    assert len(seen) == 3
    world.inner.pass_s(1)
    assert seen[3:] == [("not yet", 100)]


def test_what_repeats_itself_does_not_do_so_for_ever() -> None:
    world = World()
    world.loop.call_later(1, world.every, "periodic", 1)

    assert world.loop.move(25 * 3600) == len(world.called) == STEPS_MAX + 1
    world.inner.pass_s(3)
    assert len(world.called) == STEPS_MAX + 4


def test_time_goes_on_from_where_it_was_moved_to() -> None:
    world = World()
    began_s = world.loop.time()
    world.loop.move(3600)
    world.inner.pass_s(2)

    assert world.loop.time() - began_s == 3602
    timer = world.loop.call_later(1, world.called.append, "a second")
    assert timer.when() == world.loop.time() + 1
    world.inner.pass_s(1)
    assert world.called == ["a second"]
    timer.cancel()  # as of a timer that has run, which is no fault
    assert timer.cancelled()


def test_timers_that_are_over_are_not_kept() -> None:
    world = World()
    for _ in range(5_000):
        world.loop.call_later(1, world.called.append, "x").cancel()

    assert len(world.loop._timers) < 300


def test_the_wall_clock_alone_can_jump() -> None:
    loop = cast("asyncio.AbstractEventLoop", ManualLoop())
    moved = MovableClock(
        loop, now_ms=lambda: 1000, monotonic_s=lambda: 1.0, elapsed_ms=lambda: 1000
    )

    moved.advance(500)
    moved.jump(-200)

    assert moved.now_ms() == 1300
    assert moved.monotonic_s() == 1.5
    assert moved.elapsed_ms() == 1500


@pytest.fixture
def testing() -> FaultInjection:
    return FaultInjection()


@pytest.fixture
def broker(tmp_path: Path, testing: FaultInjection) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data", testing) as found:
        yield found


def create(broker: InProcessBroker, name: str, **configs: str) -> None:
    topic = CreateTopicsRequest.Topic
    pairs = [topic.Config(name=key.replace("_", "."), value=configs[key]) for key in configs]
    made = topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=pairs)
    answered = Asker(broker).call(CreateTopicsRequest(topics=[made], timeout_ms=10_000), 5)
    assert answered.topics[0].error_code == 0


def produced(broker: InProcessBroker, topic: str, testing: FaultInjection) -> ProduceRequest:
    now_ms = testing.clock.now_ms()
    return produce_request((topic, 0, batch(b"a", timestamp_ms=now_ms)))


def log_of(broker: InProcessBroker, topic: str) -> Any:
    return broker.running.broker.topics.by_name[topic].partitions[0].log


def move(testing: FaultInjection, ms: int) -> Any:
    status, answer = testing.interface.call("POST", "/clock", b'{"advance_ms": %d}' % ms)
    assert status == 201, answer
    return answer


def test_records_age(broker: InProcessBroker, testing: FaultInjection) -> None:
    create(broker, "day", retention_ms=str(DAY_MS))
    create(broker, "week", retention_ms=str(7 * DAY_MS))
    asker = Asker(broker)
    for topic in ("day", "week"):
        asker.call(produced(broker, topic, testing), 12)

    move(testing, 25 * 3_600_000)

    broker.turn_until(lambda: log_of(broker, "day").start_offset == 1)
    assert log_of(broker, "week").start_offset == 0


def test_a_jump_of_the_wall_clock_alone_deletes_nothing(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    create(broker, "day", retention_ms=str(DAY_MS))
    Asker(broker).call(produced(broker, "day", testing), 12)

    testing.clock.jump(30 * DAY_MS)
    move(testing, 3_600_000)
    broker.turn_until(lambda: not broker.running.broker.retention._slicer.is_running)

    assert broker.running.broker.deletion_clock.jump_ms > 29 * DAY_MS
    assert log_of(broker, "day").start_offset == 0


def test_segments_roll_by_age(broker: InProcessBroker, testing: FaultInjection) -> None:
    create(broker, "rolled", segment_ms="3600000")
    asker = Asker(broker)
    asker.call(produced(broker, "rolled", testing), 12)
    move(testing, 2 * 3_600_000)
    asker.call(produced(broker, "rolled", testing), 12)

    assert [segment.base_offset for segment in log_of(broker, "rolled").segments] == [0, 1]


def test_a_member_that_is_silent_meanwhile_is_gone(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    asker.call(FindCoordinatorRequest(key="g", key_type=0), 3)
    protocols = [JoinGroupRequest.Protocol(name="range", metadata=b"")]
    joined = asker.call(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=45_000,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        ),
        3,
    )
    assert joined.error_code == 0
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"x")],
    )
    assert asker.call(sync, 3).error_code == 0
    describe = DescribeGroupsRequest(groups=["g"])
    assert len(asker.call(describe, 4).groups[0].members) == 1

    move(testing, 30_000)
    assert len(asker.call(describe, 4).groups[0].members) == 1
    move(testing, 30_000)
    assert asker.call(describe, 4).groups[0].members == []


def test_a_transaction_that_nobody_ends_is_aborted(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    create(broker, "kept")
    asker = Asker(broker)
    asker.call(FindCoordinatorRequest(key="t", key_type=1), 1)
    begin = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    producer = asker.call(begin, 4)
    sent = batch(
        b"a",
        timestamp_ms=testing.clock.now_ms(),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    answered = asker.call(produce_request(("kept", 0, sent), transactional_id="t"), 12)
    assert answered.responses[0].partition_responses[0].error_code == 0

    move(testing, 120_000)

    broker.turn_until(lambda: log_of(broker, "kept").next_offset == 2)


def test_a_producer_that_is_silent_meanwhile_is_forgotten(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    create(broker, "kept")
    asker = Asker(broker)
    sent = batch(
        b"a", timestamp_ms=testing.clock.now_ms(), producer_id=7, producer_epoch=0, base_sequence=0
    )
    asker.call(produce_request(("kept", 0, sent)), 12)

    def remembered() -> list[int]:
        asked = DescribeProducersRequest.Topic(name="kept", partition_indexes=[0])
        answered = asker.call(DescribeProducersRequest(topics=[asked]), 0)
        return [one.producer_id for one in answered.topics[0].partitions[0].active_producers]

    move(testing, 23 * 3_600_000)
    assert remembered() == [7]
    move(testing, 2 * 3_600_000)
    broker.turn_until(lambda: remembered() == [])


def test_what_counts_for_a_quota_is_over_when_its_windows_are(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    create(broker, "slow")
    asker = Asker(broker)
    broker.running.broker.quotas.configure({(("user", "ANONYMOUS"),): {"producer_byte_rate": 10.0}})
    throttled_ms = asker.call(produced(broker, "slow", testing), 12).throttle_time_ms
    assert throttled_ms > 0

    move(testing, throttled_ms + 60_000)

    again_ms = asker.call(produced(broker, "slow", testing), 12).throttle_time_ms
    assert 0 < again_ms < 1.5 * throttled_ms, "the first request would count as much again"


def test_a_delayed_answer_comes_when_its_time_has_passed(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    create(broker, "late")
    asker = Asker(broker)
    testing.engine.add({"api": "Produce", "delay_ms": 3_600_000})
    asker.send(produced(broker, "late", testing), 12)
    broker.turn_until(lambda: testing.engine.unfired() == [])

    broker.turn_until(lambda: bool(move(testing, 3_600_000)) and len(asker.answers()) == 1)


def test_a_throttled_connection_is_read_again_when_its_time_has_passed(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    create(broker, "slow")
    asker = Asker(broker)
    testing.engine.add({"api": "Produce", "throttle_ms": 3_600_000})
    assert asker.call(produced(broker, "slow", testing), 12).throttle_time_ms == 3_600_000
    asker.send(produced(broker, "slow", testing), 12)
    broker.turn(3)
    assert len(asker.answers()) == 1

    move(testing, 3_600_000)

    broker.turn_until(lambda: len(asker.answers()) == 2)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"advance_ms": -1}', "at least 0"),
        (b'{"advance_ms": 1.5}', "a whole number"),
        (b'{"hours": 1}', 'a move is {"advance_ms": N}'),
        (b"", 'a move is {"advance_ms": N}'),
        (b'{"advance_ms": %d}' % (AHEAD_MAX_MS + 1), "ten years"),
    ],
)
def test_a_move_that_makes_no_sense_is_told_why(
    broker: InProcessBroker, testing: FaultInjection, body: bytes, told: str
) -> None:
    status, answer = testing.interface.call("POST", "/clock", body)

    assert status == 400
    assert told in answer["error"]
    assert testing.clock.ahead_ms == 0
