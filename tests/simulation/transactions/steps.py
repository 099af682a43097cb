"""Steps of producers, of the broker's periodic tasks, and of what befalls it, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.background.cleanable import plan_of, to_sync_first
from storage.cleaning.cleaning import Cleaning
from storage.replacing import cover_sealed, discard_all
from tests.simulation.transactions.checks import (
    check,
    check_all_ended,
    check_state_topic,
)
from tests.simulation.transactions.producers import OFFSETS_TOPIC, TIMEOUT_MS, TOPIC, Producer
from tests.simulation.transactions.world import IDS
from tests.support.replacement import replace_segments

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.transactions.world import World

    Step = Callable[[World, random.Random], None]

RETRY_MS = 1_500
"""More than the broker waits before it tries to write markers again."""
COMPACTED = ("__transaction_state", OFFSETS_TOPIC)


def client(world: World, rng: random.Random) -> None:
    world.step_producer(rng)


def turn(world: World, rng: random.Random) -> None:
    world.machine.turn()


def work(world: World, rng: random.Random) -> None:
    """Threads do some jobs, and tell the loop, which may not have heard it yet."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        world.machine.work(rng)
    if rng.random() < 0.7:
        world.machine.turn()


def settle(world: World, rng: random.Random) -> None:
    world.machine.settle()


def inspect(world: World, rng: random.Random) -> None:
    world.machine.turn()
    check(world)
    check_state_topic(world)


def flush(world: World, rng: random.Random) -> None:
    """The periodic task that syncs what nobody waits for."""
    world.machine.broker.flushing.look()


def pass_time(world: World, rng: random.Random) -> None:
    world.machine.pass_ms(rng.choice((10, 100, 1000, 1000, TIMEOUT_MS // 2)))


def abort_timed_out(world: World, rng: random.Random) -> None:
    world.machine.broker.transactions.look_for_timed_out()


def checkpoint(world: World, rng: random.Random) -> None:
    directory = world.machine.broker.directory
    for step in [*directory.checkpoints.everything(), *directory.checkpoints.synced()]:
        step.sync()


def compact(world: World, rng: random.Random) -> None:
    """What `broker.background.cleaner` does with one log, in one go."""
    broker = world.machine.broker
    topic = broker.topics.by_name.get(rng.choice(COMPACTED))
    if topic is None:
        return
    partition = rng.choice(topic.partitions)
    log = partition.log
    settings = broker.settings.current
    plan = plan_of(log, topic.settings, settings, now_ms=world.machine.now_ms)
    if plan is None:
        return
    if topic.name == OFFSETS_TOPIC:
        world.offsets_compacted = True
    cover_sealed(log)
    for one in to_sync_first(partition, broker.directory.logs.values()):
        one.sync()
    steps = broker.directory.checkpoints.gaps(log, plan.end)
    discard_all(log.files, log.folder)
    for step in steps:
        step.sync()
    cleaning = Cleaning(log.files, plan)
    for group in cleaning.groups():
        if not replace_segments(log, group):
            return
    log.cleaned_to = cleaning.cleaned_to
    for step in broker.directory.checkpoints.cleaned():
        step.sync()
    world.totals.cleanings += 1


def retain(world: World, rng: random.Random) -> None:
    """A round of retention; what it does with threads comes about later."""
    retention = world.machine.broker.retention
    retention.stop()  # what a round before this has left to be done later
    retention._begin()
    for partition in world.machine.broker.topics.by_name[TOPIC].partitions:
        start = partition.log.start_offset
        world.totals.retained += start > world.starts.get(partition.index, 0)
        world.starts[partition.index] = start


def drain(world: World, rng: random.Random) -> None:
    """New instances of all ids end whatever is open."""
    machine = world.machine
    machine.settle()
    world.producers.clear()
    for name in IDS:
        if not any(each.transactional_id == name for each in world.model.transactions.values()):
            continue
        new = Producer(world, name, world.version)
        for _ in range(50):
            world.count += 1
            if new.dead:
                new = Producer(world, name, world.version)
            new.step(rng)
            machine.settle()
            machine.pass_ms(20)
            if new.pending is not None:
                new.look_for_answer()
            if new.is_ready:
                break
        world.expect(new.is_ready, f"{name} cannot begin")
        world.producers.append(new)
    machine.settle()
    check(world)
    check_all_ended(world)
    check(world)
    check_state_topic(world)


def restart(world: World, rng: random.Random) -> None:
    """A stop in good order, and a start."""
    world.expect(world.machine.stop(), "a stop was not clean though nothing went wrong")
    world.totals.clean_stops += 1
    world.lose_connections()
    world.machine.crash(rng, power=rng.random() < 0.5)
    if not world.begin():
        world.broken("it does not start")
    check_start(world)


def go_on_at_once(world: World, rng: random.Random) -> None:
    """Producers may come before a start has loaded and settled all."""
    for _ in range(rng.choice((0, 0, 5, 20, 60))):
        rng.choice((client, client, client, turn, work))(world, rng)


def check_start(world: World) -> None:
    """Whatever came before. Markers for groups that were still being loaded are tried again."""
    world.machine.settle()
    world.machine.pass_ms(RETRY_MS)
    world.machine.settle()
    check(world)
    check_state_topic(world)


def plan_crash(world: World, rng: random.Random) -> None:
    """Soon: the call at which it happens is chosen now."""
    files = world.machine.files
    if files.cut_at is None:
        files.cut_at = files.count + rng.randrange(rng.choice((1, 4, 12, 40)))


WEIGHTS: dict[Step, float] = {
    client: 50, turn: 14, work: 22, settle: 4, inspect: 1, flush: 2, pass_time: 2,
    abort_timed_out: 1.5, checkpoint: 0.5, retain: 1.5, compact: 1.5, drain: 0.4, restart: 0.3,
    plan_crash: 6,
}  # fmt: skip
