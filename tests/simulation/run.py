"""Runs simulated worlds: `python -m tests.simulation.run` is `make simulate`.

    TEST_SIM_SEED=7                          one world, and what it amounts to
    TEST_SIM_SEED=7 TEST_SIM_STEPS=0-90,120  only these of its steps
    TEST_SIM_SEED=7 TEST_SIM_SHRINK=1        leave out steps as long as it still fails

A world is a function of its seed and the numbers of its steps alone.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import sys
import time
import traceback
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from storage import closing, index_columns, log, open_segments, scan, segment, segments
from tests.simulation.checks import check_start
from tests.simulation.steps import DISRUPTED, WEIGHTS
from tests.simulation.world import Totals, Violation, World
from tests.support.memory_filesystem import PowerCut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

STEPS = 2500
OPEN_FILES = 3
OPERATIONS, CRASH_POINTS = 1_000_000, 10_000


@contextmanager
def small_limits() -> Iterator[None]:
    """Bounds at which things happen in logs of a few kilobytes."""
    fresh: open_segments.OpenSegments[segment.Segment] = open_segments.OpenSegments()
    fresh.files_max = OPEN_FILES
    with (
        patch.object(closing, "INDEX_LAG_ENTRIES", 1),
        patch.object(open_segments, "OPEN_MAX", 6),
        patch.object(open_segments, "INDEX_BYTES_MAX", 400),
        patch.object(segment, "COUNTED_ENTRIES", 4),
        patch.object(index_columns, "PAGE_ENTRIES", 3),
        patch.object(index_columns, "PAGES_MAX", 4),
        patch.object(index_columns, "KEPT_ENTRIES", 2),
        patch.object(segments, "PLACES_MAX", 3),
        patch.object(segments, "PIECE_BYTES", 300),
        patch.object(segments, "OPEN", fresh),
        patch.object(segment, "OPEN", fresh),
        patch.object(scan, "PIECE_BYTES", 700),
        patch.object(scan, "LARGE_ENTRY_BYTES", 150),
        patch.object(log, "QUEUE_BATCHES_MAX", 6),
    ):
        yield


def simulate(seed: int, steps: Iterable[int] = range(STEPS)) -> Totals:
    """One world. Raises Violation."""
    with small_limits():
        world = World(seed)
        choices, weights = tuple(WEIGHTS), tuple(WEIGHTS.values())
        for number in steps:
            world.step = number
            rng = random.Random(f"{seed}/{number}")
            step = rng.choices(choices, weights)[0]
            world.pass_ms(rng.randrange(30))
            world.totals.operations += 1
            try:
                if step in DISRUPTED and rng.random() < 0.25:
                    world.plan_crash(rng, 30)
                step(world, rng)
            except PowerCut:
                power_failed = world.crash(rng)
                check_start(world, rng, clean=False, power_failed=power_failed)
        return world.totals


class Simulation(NamedTuple):
    """A kind of worlds: the module that runs them, the count of steps in a world, what simulates
    one, an empty sum of what worlds amount to, and whether such a sum is enough."""

    module: str
    steps: int
    simulate: Callable[..., Any]
    totals: Callable[[], Any]
    is_enough: Callable[[Any], bool]


def is_enough(totals: Totals) -> bool:
    return totals.operations >= OPERATIONS and totals.crashes >= CRASH_POINTS


STORAGE = Simulation("tests.simulation.run", STEPS, simulate, Totals, is_enough)


def steps_of(text: str) -> list[int]:
    """`0-3,7` is 0, 1, 2, 3, 7."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def text_of(steps: list[int]) -> str:
    parts: list[list[int]] = []
    for number in steps:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def failure_of(
    seed: int, steps: Iterable[int], simulation: Simulation = STORAGE
) -> tuple[str, int] | None:
    """What goes wrong in a world and at which step; None if nothing does."""
    last = -1

    def watched() -> Iterator[int]:
        nonlocal last
        for number in steps:
            last = number
            yield number

    try:
        simulation.simulate(seed, watched())
    except Violation as error:
        return str(error), last
    except Exception:
        return traceback.format_exc(), last
    return None


def kind_of(failure: str) -> str:
    """What is the same about two failures of one kind."""
    text = failure.rstrip().rpartition("\n")[2]
    return re.sub(r"[abc]-[0-9]|[0-9]+", "#", text)[:90]


def shrink(seed: int, steps: list[int], kind: str, simulation: Simulation) -> list[int]:
    """Leave out as many steps as can be, in ever smaller pieces, and keep the kind of failure."""
    piece = max(len(steps) // 2, 1)
    while True:
        position = 0
        while position < len(steps):
            fewer = steps[:position] + steps[position + piece :]
            failure = failure_of(seed, fewer, simulation)
            if failure is None or kind_of(failure[0]) != kind:
                position += piece
            else:
                steps = fewer[: fewer.index(failure[1]) + 1]
        if piece == 1:
            return steps
        piece = max(piece // 2, 1)


def replay(seed: int, steps: list[int] | None = None, simulation: Simulation = STORAGE) -> str:
    chosen = "" if steps is None else f" TEST_SIM_STEPS={text_of(steps)}"
    return f"TEST_SIM_SEED={seed}{chosen} .venv/bin/python -m {simulation.module}"


def outcome(simulation: Simulation, seed: int) -> tuple[int, Any, str | None]:
    try:
        return seed, simulation.simulate(seed), None
    except Violation as error:
        return seed, simulation.totals(), str(error)
    except Exception:
        return seed, simulation.totals(), traceback.format_exc()


def run_one(simulation: Simulation, seed: int) -> int:
    chosen = os.environ.get("TEST_SIM_STEPS")
    steps = steps_of(chosen) if chosen else list(range(simulation.steps))
    if os.environ.get("TEST_SIM_SHRINK"):
        failure = failure_of(seed, steps, simulation)
        if failure is not None:
            kind = kind_of(failure[0])
            steps = shrink(seed, steps[: steps.index(failure[1]) + 1], kind, simulation)
            print(replay(seed, steps, simulation))
    print(simulation.simulate(seed, steps))
    return 0


def run_all(simulation: Simulation, first: int, processes: int) -> int:
    """Worlds until the figures are reached."""
    began_s = time.monotonic()
    totals, failures, worlds = simulation.totals(), [], 0
    with multiprocessing.Pool(processes) as pool:
        seeds = range(first, first + 100_000)
        for seed, found, failure in pool.imap_unordered(partial(outcome, simulation), seeds):
            worlds += 1
            totals.add(found)
            if failure is not None:
                failures.append(seed)
                print(f"{failure}\n    {replay(seed, None, simulation)}", flush=True)
            if worlds % 50 == 0:
                print(f"{time.monotonic() - began_s:6.0f} s  {totals}", flush=True)
            if simulation.is_enough(totals) or len(failures) >= 10:
                pool.terminate()
                break
    print(f"{worlds} worlds in {time.monotonic() - began_s:.0f} s: {totals}")
    print(f"{len(failures)} violations: {failures}" if failures else "no violation")
    return 1 if failures else 0


def main(simulation: Simulation = STORAGE) -> int:
    seed = os.environ.get("TEST_SIM_SEED")
    if seed:
        return run_one(simulation, int(seed))
    first = int(os.environ.get("TEST_SIM_FIRST", "0"))
    return run_all(
        simulation, first, int(os.environ.get("TEST_SIM_PROCESSES", str(os.cpu_count() or 1)))
    )


if __name__ == "__main__":
    sys.exit(main())
