"""Storage keeps its promises in simulated worlds: crashes at any call, faults, every duty at work.

`make simulate` runs the whole figure; this is a share of it, other worlds than those begin with.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.run import failure_of, replay, simulate, steps_of, text_of

FIRST = 1_000_000
WORLDS = int(os.environ.get("TEST_SIM_WORLDS", "40"))
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


def test_steps_are_named_in_few_words() -> None:
    steps = [0, 1, 2, 3, 7, 9, 10]

    assert text_of(steps) == "0-3,7,9-10"
    assert steps_of("0-3,7,9-10") == steps
