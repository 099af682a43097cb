"""Simulated worlds of transactions: `python -m tests.simulation.transactions.run`.

    TEST_SIM_SEED=7                          one world, and what it amounts to
    TEST_SIM_SEED=7 TEST_SIM_STEPS=0-90,120  only these of its steps
    TEST_SIM_SEED=7 TEST_SIM_SHRINK=1        leave out steps as long as it still fails

A world is a function of its seed and the numbers of its steps alone.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

from tests.simulation.run import Simulation, main
from tests.simulation.transactions.checks import check_state_topic
from tests.simulation.transactions.steps import WEIGHTS, check_start, drain, go_on_at_once
from tests.simulation.transactions.world import Totals, World
from tests.support.memory_filesystem import PowerCut

if TYPE_CHECKING:
    from collections.abc import Iterable

STEPS = 1200
CRASH_POINTS = 10_000


def simulate(seed: int, steps: Iterable[int] = range(STEPS)) -> Totals:
    """One world. Raises Violation."""
    world = World(seed)
    choices, weights = tuple(WEIGHTS), tuple(WEIGHTS.values())
    with world.machine.in_place():
        world.begin_first()
        for number in steps:
            world.step = number
            rng = random.Random(f"{seed}/{number}")
            step = rng.choices(choices, weights)[0]
            world.totals.operations += 1
            try:
                world.machine.pass_ms(rng.randrange(5))
                step(world, rng)
            except PowerCut as cut:
                world.note_crash(str(cut))
                world.crash(rng)
                go_on_at_once(world, rng)
                check_start(world)
        world.machine.files.cut_at = None
        drain(world, random.Random(f"{seed}/end"))
        check_state_topic(world)
    return world.totals


def is_enough(totals: Totals) -> bool:
    return totals.crashes >= CRASH_POINTS


SIMULATION = Simulation("tests.simulation.transactions.run", STEPS, simulate, Totals, is_enough)

if __name__ == "__main__":
    sys.exit(main(SIMULATION))
