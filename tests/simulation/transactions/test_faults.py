"""A disk that fails or is full at any step of an end: the transaction ends later, never half. The
client is told to try again."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

import pytest

from broker.coordinator.transactions.transaction import TV1, TV2
from tests.simulation.transactions.checks import check, check_all_ended, check_state_topic
from tests.simulation.transactions.model import Status
from tests.simulation.transactions.producers import Producer
from tests.simulation.transactions.steps import drain
from tests.simulation.transactions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

CALLS, CALLS_MADE = 16, 6
"""Calls that are tried, which are more than an end makes, and those that it makes in any case: the
decision, its sync, the markers of four partitions."""
ROOM_BYTES = range(0, 1000, 70)


@pytest.fixture(params=[TV1, TV2], ids=["tv1", "tv2"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """With a transaction of four partitions that is about to end."""
    found = World(0, version=request.param)
    with found.machine.in_place():
        found.begin_first()
        yield found


def begun(world: World) -> Producer:
    producer = Producer(world, "a", world.version)
    world.producers.append(producer)
    rng = random.Random(0)
    while not producer.is_ready:
        step(world, producer, rng)
    producer.open = world.model.begin("a")
    producer.write([0, 1, 2])
    finish(world, producer, rng)
    producer.commit_offset()
    finish(world, producer, rng)
    return producer


def step(world: World, producer: Producer, rng: random.Random) -> None:
    producer.step(rng)
    world.machine.settle()
    world.machine.pass_ms(20)


def finish(world: World, producer: Producer, rng: random.Random) -> None:
    """Until its requests are answered."""
    for _ in range(50):
        world.machine.settle()
        if producer.pending is None:
            return
        assert not producer.dead, world.refusals
        step(world, producer, rng)
    raise AssertionError(f"no answer: {world.refusals}")


def ended(world: World, producer: Producer, *, commit: bool) -> None:
    """The disk is well again, and the time of another try has come."""
    machine = world.machine
    machine.files.faults.clear()
    machine.files.capacity = None
    machine.broker.reserve.look()
    machine.settle()
    machine.pass_ms(2_000)
    machine.settle()
    logs = [partition.log for topic in machine.broker.topics for partition in topic.partitions]
    if any(log.failed for log in logs):
        world.lose_connections()
        machine.crash(random.Random(0), power=False)
        assert world.begin()
        machine.settle()
    check(world)
    finish(world, producer, random.Random(0))
    assert producer.open is None
    check(world)
    check_state_topic(world)
    transaction = world.model.transactions[1]
    assert transaction.status is (Status.COMMITTED if commit else Status.ABORTED)
    check_all_ended(world)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("call", range(CALLS))
def test_a_call_that_fails_amid_an_end_delays_it(
    world: World, code: int, call: int, commit: bool
) -> None:
    producer = begun(world)
    files = world.machine.files
    failing = files.count + call
    files.faults[failing] = code

    producer.end(commit=commit)
    world.machine.settle()
    if producer.pending is not None:
        producer.look_for_answer()

    assert files.count > failing or call >= CALLS_MADE
    assert not producer.dead, world.refusals
    assert set(world.refusals) <= {"COORDINATOR_NOT_AVAILABLE", "CONCURRENT_TRANSACTIONS"}
    ended(world, producer, commit=commit)


@pytest.mark.parametrize("room", ROOM_BYTES)
def test_a_disk_that_becomes_full_amid_an_end_delays_it(world: World, room: int) -> None:
    producer = begun(world)
    files = world.machine.files
    files.capacity = files.used_bytes() + room

    producer.end(commit=True)
    world.machine.settle()
    if producer.pending is not None:
        producer.look_for_answer()

    assert not producer.dead, world.refusals
    ended(world, producer, commit=True)
    drain(world, random.Random(0))
