"""Steps of clients and of the broker's background tasks, one at a time.

A step takes all its decisions from a source of its own, so that leaving out one of them leaves the
others as they were: that is how a failing run is made shorter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import (
    StorageError,
)
from storage.inspection.directory_check import check_directory
from storage.retention import RetentionRules, retained_from
from tests.simulation.checks import check_stable, check_start
from tests.simulation.clients import (
    append,
    expire,
    read,
    read_entries,
    read_held,
    search,
    send_again,
    some_log,
)
from tests.simulation.compaction import clean
from tests.simulation.records import (
    Sender,
    marker_of,
)
from tests.simulation.settings import some_settings
from tests.simulation.world import PATH, SimulatedTopic

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from storage.log import Log
    from tests.simulation.ledger import Ledger
    from tests.simulation.world import World

    Step = Callable[[World, random.Random], None]
    Place = tuple[SimulatedTopic, int, Log, Ledger]

INSPECTED = 0.5
"""Of the clean stops, how many `triglot check` looks at."""
PASSED_OVER: frozenset[str] = frozenset()
"""Torn snapshots that no start needed, and transactions that ended below the log start."""
TOPICS = ("a", "b", "c")
POLICIES = ("delete", "delete", "compact", "compact,delete")


# Duties


def sync(world: World, rng: random.Random) -> None:
    if len(world.syncs) > 3:
        return
    wanted = [(log, ledger) for _, _, log, ledger in world.all_logs() if rng.random() < 0.7]
    for log, ledger in wanted:
        if log.failed is None and rng.random() < 0.5:
            world.write(log, ledger)
    world.begin_sync(wanted)
    world.work(rng, rng.choice((0, 1, 3, 100)))


def work(world: World, rng: random.Random) -> None:
    world.work(rng, rng.choice((1, 2, 5, 20)))


def checkpoint(world: World, rng: random.Random) -> None:
    world.begin_checkpoint()
    world.work(rng, rng.choice((0, 1, 100)))


def roll(world: World, rng: random.Random) -> None:
    place = some_log(world, rng)
    if place is None or place[2].failed is not None:
        return
    _, _, log, ledger = place
    try:
        log.roll(now_ms=world.now_ms)
    except StorageError:
        world.expect(world.faulty, f"{log.name}: roll failed without a fault")
        world.follow(log, ledger)
        world.write(log, ledger)
    else:
        world.follow(log, ledger)


def give_back(world: World, rng: random.Random) -> None:
    """Memory is wanted for other indexes, or a page of them is wanted no more."""
    for _, _, log, _ in world.all_logs():
        if rng.random() < 0.5 and log.failed is None and log.active.loaded:
            before = log.active.offsets.in_memory
            if not log.active.give_back():
                is_queued = log.next_offset > log.written_offset
                world.expect(world.faulty or is_queued, f"{log.name} kept its index")
                kept = log.active.offsets.in_memory
                world.expect(kept == before, f"{log.name} kept {kept} of {before}")


def delete_records(world: World, rng: random.Random) -> None:
    place = some_log(world, rng)
    if place is None:
        return
    topic, number, _, ledger = place
    span = ledger.written - ledger.start
    offset = ledger.start + int(rng.random() ** 2 * (span + 1))
    if rng.random() < 0.05:
        offset = ledger.written
    world.begin_raise(topic, number, offset)
    world.work(rng, rng.choice((0, 2, 100)))


def retain(world: World, rng: random.Random) -> None:
    """The duty that drops old records, as broker.background.retention does it."""
    for topic, number, log, ledger in world.all_logs():
        if log.failed is not None:
            continue
        settings = topic.settings
        rules = RetentionRules(
            "delete" in settings.cleanup_policy,
            settings.retention_ms,
            settings.retention_bytes,
            settings.retention_min_timestamp,
        )
        start = retained_from(log, rules, now_ms=world.now_ms)
        inside = log.start_offset <= start <= log.written_offset
        world.expect(inside, f"{log.name} is to start at {start}")
        if rules.retention_bytes < 0:
            expect_old(world, log, ledger, start, rules)
        if start > log.start_offset:
            world.totals.retained += 1
            if start == log.next_offset and start > log.active.base_offset:
                seal(world, log, ledger)
            world.begin_raise(topic, number, start)
    world.work(rng, rng.choice((0, 5, 100)))


def seal(world: World, log: Log, ledger: Ledger) -> None:
    try:
        log.roll(now_ms=world.now_ms)
    except StorageError:
        world.expect(world.faulty, f"{log.name}: roll failed without a fault")
        world.follow(log, ledger)


def expect_old(world: World, log: Log, ledger: Ledger, start: int, rules: RetentionRules) -> None:
    """What goes by time is old by the producer's clock or by ours."""
    since_ms = rules.kept_since_ms(world.now_ms)
    for entry in ledger.entries[ledger.index_of(log.start_offset) :]:
        for record in entry.records:
            if log.start_offset <= record.offset < start:
                young = since_ms is None or (
                    entry.received_ms >= since_ms and record.timestamp_ms >= since_ms
                )
                world.expect(not young, f"{log.name}: {record} goes, and is not old")


def compact(world: World, rng: random.Random) -> None:
    """The duty that compacts begins with one log, or goes on."""
    if world.compacting:
        world.work(rng, 10)
        return
    wanted = [place for place in world.all_logs() if place[0].settings.compacted]
    if not wanted:
        return
    topic, number, log, ledger = rng.choice(wanted)
    if log.failed is not None:
        return
    world.write(log, ledger)
    if rng.random() < 0.5:
        seal(world, log, ledger)
    if log.failed is None:
        map_bytes = rng.choice((1 << 20, 1 << 20, 24 * 8))
        world.compacting.append(clean(world, topic, number, map_bytes))
        world.work(rng, rng.choice((0, 5, 200)))


def end_transaction(world: World, rng: random.Random) -> None:
    place = some_log(world, rng)
    if place is None or place[2].failed is not None:
        return
    _, _, log, ledger = place
    opened = [number for number, sent in sorted(ledger.senders.items()) if sent.opened >= 0]
    if not opened:
        return
    producer_id = rng.choice(opened)
    sent = ledger.senders[producer_id]
    commit = rng.random() < 0.6
    try:
        offset = log.append_marker(
            producer_id, sent.epoch, commit=commit, coordinator_epoch=1, now_ms=world.now_ms
        )
    except StorageError:
        world.expect(world.faulty, f"{log.name}: marker failed without a fault")
        world.follow(log, ledger)
        world.write(log, ledger)
        return
    marker = marker_of(
        offset,
        Sender(producer_id, sent.epoch, -1),
        commit=commit,
        leader_epoch=log.leader_epoch,
        now_ms=world.now_ms,
    )
    ledger.append([marker])
    world.follow(log, ledger)
    if rng.random() < 0.8:
        world.write(log, ledger)
    check_stable(world, log, ledger)


# Topics


def create_topic(world: World, rng: random.Random) -> None:
    name = rng.choice(TOPICS)
    if name in world.topics or name in world.doubtful:
        return
    partitions = rng.choice((1, 1, 2))
    settings = some_settings(rng, policy=rng.choice(POLICIES))
    topic = SimulatedTopic(name, world.new_uuid(), partitions, settings)
    world.doubtful[name] = topic
    try:
        world.directory.forget_deleted()
        stored = world.store.create(name, topic.topic_id, partitions, settings.configs())
        for number in range(partitions):
            world.directory.create_partition(stored, number, settings, now_ms=world.now_ms)
    except OSError:
        world.expect(world.faulty, f"topic {name} was not created without a fault")
        return
    del world.doubtful[name]
    world.topics[name] = topic


def delete_topic(world: World, rng: random.Random) -> None:
    if not world.topics:
        return
    name = rng.choice(sorted(world.topics))
    world.doubtful[name] = world.topics.pop(name)
    try:
        stored = world.store.remove(name)
        folders = world.directory.delete_topic(stored)
        world.store.forget_deleted(stored.topic_id)
    except OSError:
        world.expect(world.faulty, f"topic {name} was not deleted without a fault")
        return
    del world.doubtful[name]
    world.begin_removal(folders)


def grow_topic(world: World, rng: random.Random) -> None:
    if not world.topics:
        return
    name = rng.choice(sorted(world.topics))
    topic = world.topics[name]
    count = len(topic.ledgers) + 1
    if count > 3 or name in world.growing:
        return
    world.growing[name] = count
    try:
        world.directory.forget_deleted()
        stored = world.store.set_partition_count(name, count)
        world.directory.create_partition(stored, count - 1, topic.settings, now_ms=world.now_ms)
    except OSError:
        world.expect(world.faulty, f"topic {name} did not grow without a fault")
        return
    del world.growing[name]
    topic.grow(count)


def configure(world: World, rng: random.Random) -> None:
    if not world.topics:
        return
    name = rng.choice(sorted(world.topics))
    topic = world.topics[name]
    settings = some_settings(rng, policy=topic.settings.cleanup_policy)
    topic.intervals_changed = True
    try:
        world.store.set_configs(name, settings.configs())
    except OSError:
        world.expect(world.faulty, f"settings of {name} were not stored without a fault")
        return
    topic.configure(settings)
    for number in range(len(topic.ledgers)):
        world.log(topic, number).configure(settings)


# The machine


def restart(world: World, rng: random.Random) -> None:
    """A stop in good order, and a start."""
    clean = world.stop_cleanly()
    clean = clean and not world.doubtful and not world.growing
    if clean and rng.random() < INSPECTED:
        findings = [
            one
            for one in check_directory(world.files, PATH)
            if one.severity == "error" and one.kind not in PASSED_OVER
        ]
        world.expect(not findings, f"triglot check says: {[one.as_json() for one in findings]}")
    world.files.capacity = None
    power_failed = rng.random() < 0.3
    if power_failed:
        world.files = world.files.power_cut(rng)
    try:
        world.start()
    except OSError:
        world.expect(world.faulty, "the start failed without a fault")
        world.files.kill()
        world.start()
        clean = power_failed = False
    check_start(world, rng, clean=clean, power_failed=power_failed)


def pass_time(world: World, rng: random.Random) -> None:
    world.pass_ms(rng.choice((100, 5_000, 30_000, 300_000)))


def fault(world: World, rng: random.Random) -> None:
    world.inject(rng)


def full_disk(world: World, rng: random.Random) -> None:
    world.fill_disk(rng)


def crash(world: World, rng: random.Random) -> None:
    """Soon: the call at which it happens is chosen now."""
    world.plan_crash(rng, rng.choice((3, 40, 150)))


WEIGHTS: dict[Step, float] = {
    append: 40, send_again: 2, expire: 0.2,
    read: 12, read_held: 1, read_entries: 3, search: 4,
    sync: 12, work: 12, checkpoint: 1.5, roll: 1.5, give_back: 2, delete_records: 0.7,
    retain: 0.6, compact: 2.5, end_transaction: 4,
    create_topic: 0.6, delete_topic: 0.25, grow_topic: 0.15, configure: 0.3,
    restart: 0.4, pass_time: 1.5, fault: 0.35, full_disk: 0.15, crash: 1.4,
}  # fmt: skip

DISRUPTED: tuple[Step, ...] = (
    restart, delete_topic, create_topic, grow_topic, delete_records, retain, compact, roll,
    checkpoint,
)  # fmt: skip
"""Rare steps, during which the power fails more often than their share of the calls."""
