"""A job whose driver is killed again and again, and what is there in the end.

The command is what a user types. Once it has finished a micro-batch of its own its whole family is
killed with SIGKILL, after a time of chance; it is started again with the same arguments, and at
last left alone.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc
import pyarrow.dataset as ds

from bench.servers import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PATIENCE_S = 120.0
"""How long a run may take until it has finished a micro-batch."""
LOOK_S = 0.05


class Run(NamedTuple):
    """The number of kills, and of the micro-batches finished in all by each."""

    kills: int
    batches: list[int]


def run_killed(
    arguments: Sequence[str], state: Path, *, kills: int, within_s: float, seed: int
) -> Run:
    """`state` is what the command keeps its state in. Raises RuntimeError if the last run fails, or
    one is over before it was killed."""
    rng = random.Random(seed)
    command = [sys.executable, "-m", "pipeline", *arguments]
    batches: list[int] = []
    while len(batches) < kills:
        before = _finished(state)
        running = subprocess.Popen(command, cwd=CHECKOUT, start_new_session=True)
        end = time.monotonic() + PATIENCE_S
        while _finished(state) == before and running.poll() is None and time.monotonic() < end:
            time.sleep(LOOK_S)
        time.sleep(rng.random() * within_s)
        if running.poll() is not None:
            raise RuntimeError(f"it was over after {len(batches)} kills: {running.returncode}")
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        batches.append(_finished(state))
    last = subprocess.run(command, cwd=CHECKOUT, check=False)
    if last.returncode:
        raise RuntimeError(f"the last run failed with exit code {last.returncode}")
    return Run(len(batches), batches)


def _finished(state: Path) -> int:
    """The micro-batches that Spark has noted as done."""
    folder = state / "checkpoint" / "commits"
    return sum(path.name.isdecimal() for path in folder.iterdir()) if folder.exists() else 0


def distinct_rows(folder: Path) -> tuple[int, int]:
    """The number of rows of an archive, and of different offsets in its partitions."""
    rows = distinct = 0
    table = ds.dataset(
        [str(path) for path in sorted(folder.glob("*.parquet"))], format="parquet"
    ).to_table(columns=["partition", "offset"])
    for partition in pc.unique(table["partition"]).to_pylist():
        offsets = table.filter(pc.equal(table["partition"], partition))["offset"]
        rows += len(offsets)
        distinct += len(pc.unique(offsets))
    return rows, distinct
