"""Flips bits in data directories: `python -m tests.damage.run` is `make flips`.

    TEST_FLIPS=5000       how many (200)
    TEST_FLIP_SEED=7      which (one that is told)
    TEST_FLIP_ONLY=12,40  only these of them
    TEST_FLIP_JOBS=2      processes beside each other (1)
    TEST_FLIP_MOMENT="not running"  all of them before a start; or one of the other `MOMENTS`

Every finding has a line that runs its case again. A case is a function of the seed and its number,
but for what a broker's clock and new ids put into the files.
"""

from __future__ import annotations

import collections
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.damage.cases import Case, Outcome
from tests.damage.directories import ENDS, build
from tests.damage.forked_broker import warm_up

FLIPS = 200
SHOWN_MAX = 5
"""Cases of one class that the summary names."""
GROUP = 100
"""Cases that share the directories they are copied from."""


class Group(NamedTuple):
    """Some cases of a run."""

    seed: int
    numbers: list[int]


def run_group(group: Group) -> list[Outcome]:
    """Build the directories of a group, and run its cases."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="flips-", dir=memory if memory.is_dir() else None))
    try:
        of_group = group.numbers[0] // GROUP
        directories = [
            build(folder / end, end, random.Random(f"{group.seed}/{of_group}/{end}"))
            for end in ENDS
        ]
        warm_up(directories[0].path)
        outcomes = []
        for number in group.numbers:
            rng = random.Random(f"{group.seed}/{number}")
            case = Case(number, rng.choice(directories), folder / "case", rng)
            outcomes.append(case.run())
        return outcomes
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replay(seed: int, number: int) -> str:
    return f"TEST_FLIP_SEED={seed} TEST_FLIP_ONLY={number} make flips"


def run(seed: int, numbers: list[int], jobs: int) -> list[Outcome]:
    """All these cases, in any order; findings are printed as they come."""
    by_group: dict[int, list[int]] = {}
    for number in numbers:
        by_group.setdefault(number // GROUP, []).append(number)
    outcomes: list[Outcome] = []
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        groups = [Group(seed, found) for found in by_group.values()]
        for found in pool.imap_unordered(run_group, groups):
            outcomes += found
            for outcome in found:
                for finding in outcome.findings:
                    print(f"{finding}\n    {outcome}\n    {replay(seed, outcome.number)}")
            sys.stdout.flush()
    return outcomes


def summary(outcomes: list[Outcome]) -> str:
    """How many flips of each kind of file there were, and what was found by file and field."""
    flips = collections.Counter(outcome.flip.kind for outcome in outcomes)
    faulty = [outcome for outcome in outcomes if outcome.findings]
    by_class: dict[str, list[int]] = {}
    for outcome in faulty:
        where = outcome.flip.kind + (f", {outcome.flip.field}" if outcome.flip.field else "")
        by_class.setdefault(f"{outcome.worst} <- {where}", []).append(outcome.number)
    notes = collections.Counter(
        note.partition(":")[0] for outcome in outcomes for note in set(outcome.notes)
    )
    lines = [f"{count} flips: {kind}" for kind, count in flips.most_common()]
    lines += [f"{count} noted: {note}" for note, count in notes.most_common()]
    for name, numbers in sorted(by_class.items(), key=lambda one: -len(one[1])):
        shown = ",".join(map(str, sorted(numbers)[:SHOWN_MAX]))
        lines.append(f"{len(numbers)} found: {name} (TEST_FLIP_ONLY={shown})")
    return "\n".join(lines)


def main() -> int:
    seed = int(os.environ.get("TEST_FLIP_SEED") or random.randrange(1_000_000))
    only = os.environ.get("TEST_FLIP_ONLY")
    count = int(os.environ.get("TEST_FLIPS") or FLIPS)
    numbers = [int(part) for part in only.split(",")] if only else list(range(count))
    began_s = time.monotonic()
    outcomes = run(seed, numbers, int(os.environ.get("TEST_FLIP_JOBS") or 1))
    print(summary(outcomes))
    faulty = sum(bool(outcome.findings) for outcome in outcomes)
    took_s = time.monotonic() - began_s
    print(f"seed {seed}: {len(outcomes)} flips in {took_s:.0f} s, {faulty} with findings")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
