"""Storage keeps its promises in simulated worlds: crashes at any call, faults, every duty at work.

`make simulate` runs the whole figure; this is a share of it, other worlds than those begin with.
"""

from __future__ import annotations

import os
import random

import pytest

from storage.layout import LOG, file_name
from tests.simulation.checks import check_start
from tests.simulation.clients import append_batch
from tests.simulation.records import some_records
from tests.simulation.run import failure_of, replay, simulate, steps_of, text_of
from tests.simulation.settings import Settings
from tests.simulation.world import SimulatedTopic, World

FIRST = 1_000_000
WORLDS = int(os.environ.get("TEST_SIM_WORLDS", "12"))
CHOSEN = os.environ.get("TEST_SIM_SEED")
SEEDS = [int(CHOSEN)] if CHOSEN else range(FIRST, FIRST + WORLDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_nothing_appears_twice_and_no_file_needs_a_human(
    seed: int,
) -> None:
    failure = failure_of(seed, range(2500))

    assert failure is None, f"{failure[0]}\nreplay: {replay(seed)}"


def test_a_world_is_a_function_of_its_seed() -> None:
    one, other = simulate(FIRST, range(400)), simulate(FIRST, range(400))

    assert str(one) == str(other)
    assert one.crashes > 0


def test_what_a_start_did_not_find_may_be_there_after_a_power_cut() -> None:
    """It was written and cut off again, neither was synced, and the disk kept the first."""
    world, rng = World(0), random.Random(0)
    settings = Settings()
    topic = SimulatedTopic("a", world.new_uuid(), 1, settings)
    stored = world.store.create("a", topic.topic_id, 1, settings.configs())
    world.directory.create_partition(stored, 0, settings, now_ms=world.now_ms)
    world.topics["a"] = topic
    world.files.sync_all()

    def appended(now_ms: int) -> bytes:
        log, ledger = world.log(topic, 0), topic.ledgers[0]
        append_batch(world, log, ledger, some_records(rng, 0, 1, now_ms), rng)
        world.write(log, ledger)
        return ledger.entries[0].raw

    def start(content: bytes) -> None:
        path = f"/data/a-0/{file_name(0, LOG)}"
        world.files.write_bytes(path, content)
        world.files.kill()
        world.start()
        check_start(world, rng, clean=False, power_failed=False)

    first = appended(world.now_ms)
    start(b"")
    assert appended(world.now_ms + 1) != first
    start(first)
    assert [entry.raw for entry in topic.ledgers[0].entries] == [first]


def test_steps_are_named_in_few_words() -> None:
    steps = [0, 1, 2, 3, 7, 9, 10]

    assert text_of(steps) == "0-3,7,9-10"
    assert steps_of("0-3,7,9-10") == steps
