"""A million committed offsets in memory: bytes an entry, and what a commit and a look-up cost.

A fresh process for each shape fills a `CommittedOffsets`, or 50 of them as the broker does, by one
call for each entry. What it grew by (VmRSS, after a warm-up of the same code) is divided by the
entries, and so are the sizes of all objects that hold them. Group ids, of 22 characters, are named
apart: 22 bytes for a group of few entries, whose id is bytes in its record, and a str of 71 for one
of many. What is promised: 64 bytes beside the ids.

Estimate, on paper. One entry a group: a record of 2 + 22 + 24 bytes, a slot of 8, half a page for
16 pages and a sixteenth of spare room in the slots: 60 by size, 66 with what the allocator keeps.
100 a group: 24 an entry in columns, a sixteenth spare, and 600 bytes for the objects: 31.
Commit again: 1.4 us for a record, 0.7 for columns. Fetch of 1,000 partitions: 0.25 ms.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench import machine
from bench.case import Case, Figure
from bench.servers import CHECKOUT
from broker.coordinator.offsets.committed import CommittedOffsets, TopicNumbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-memory"
NOW_MS = 1_700_000_000_000
SHARDS = 50
GROUP_ID = "bench-group-{:010d}"
"""22 characters, as those of the promise."""
RSS, RSS_BESIDE = "B/entry, RSS", "B/entry, RSS beside group ids"
SIZES, IDS = "B/entry, sizes beside group ids", "B/entry, group ids"
COMMIT, RUN, FETCH = "commit again us", "commit 100 again us", "fetch of 1,000 ms"
SLOWEST = "slowest commit while filling ms"
FETCHED = 1_000
REPETITIONS = 200


class Memory(Case):
    group = "Committed offsets in memory"

    def __init__(self, partitions: int, tables: int, estimates: Sequence[float]) -> None:
        self.name = f"{1_000_000 // partitions:,} groups x {partitions}, tables: {tables}"
        rss, sizes, commit = estimates
        ids = 0.71 if partitions > 1 else 22
        self.figures = (
            *(Figure(RSS, 1, rss), Figure(RSS_BESIDE, 1, rss - ids), Figure(SIZES, 1, sizes)),
            *(Figure(IDS, 1, ids), Figure(COMMIT, 2, commit), Figure(RUN, 1, 17)),
            *(Figure(FETCH, 2, 0.25), Figure(SLOWEST, 1, 1.5)),
        )
        self._partitions = partitions
        self._tables = tables

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if server.name != "triglot":
            return {}
        groups = max(1, scale.entries // self._partitions)
        numbers = map(str, (groups, self._partitions, self._tables))
        command = [sys.executable, "-m", "bench.offset_memory", *numbers]
        ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RuntimeError(f"{self.name}: {ran.stderr.strip()}")
        found: dict[str, float] = json.loads(ran.stdout)
        return found


def measured(groups: int, partitions: int, tables: int) -> dict[str, float]:
    """In this process, which should be a fresh one."""
    _filled(CommittedOffsets, 50, partitions, 1)
    topics = TopicNumbers()
    before_mib = machine.resident_mib(os.getpid())
    shards, slowest_s = _filled(lambda: CommittedOffsets(topics), groups, partitions, tables)
    grown = (machine.resident_mib(os.getpid()) - before_mib) * 2**20
    entries = sum(map(len, shards))
    assert entries == groups * partitions, f"{entries} entries"
    sizes = [shard.sizes() for shard in shards]
    ids = sum(each["group ids"] for each in sizes)
    return {
        RSS: grown / entries,
        RSS_BESIDE: (grown - ids) / entries,
        SIZES: (sum(sum(each.values()) for each in sizes) - ids) / entries,
        IDS: ids / entries,
        SLOWEST: slowest_s * 1000,
        **_speeds(shards, groups, partitions),
    }


def _filled(
    new: Callable[[], CommittedOffsets], groups: int, partitions: int, tables: int
) -> tuple[list[CommittedOffsets], float]:
    shards = [new() for _ in range(tables)]
    slowest_s = 0.0
    for number in range(groups):
        commit = shards[number % tables].commit
        for partition in range(partitions):
            group = GROUP_ID.format(number)
            start_s = time.perf_counter()
            commit(group, TOPIC, partition, number, -1, "", NOW_MS)
            slowest_s = max(slowest_s, time.perf_counter() - start_s)
    return shards, slowest_s


def _speeds(shards: list[CommittedOffsets], groups: int, partitions: int) -> dict[str, float]:
    """The fastest of many repetitions: a neighbour can only add to it."""
    chance = random.Random(1)
    drawn = [chance.randrange(groups) for _ in range(100)]
    chosen = [(shards[each % len(shards)], GROUP_ID.format(each)) for each in drawn]

    def commits() -> None:
        for shard, group in chosen:
            shard.commit(group, TOPIC, 0, 7, -1, "", NOW_MS)

    wide = shards[0]
    run = (range(100), range(100), [-1] * 100, NOW_MS)
    every = range(FETCHED)
    wide.commit_run("wide", TOPIC, every, every, [-1] * FETCHED, NOW_MS)
    asked = list(every)
    return {
        COMMIT: _fastest_s(commits) / len(chosen) * 1e6,
        RUN: _fastest_s(lambda: wide.commit_run("wide", TOPIC, *run)) * 1e6,
        FETCH: _fastest_s(lambda: wide.fetch("wide", TOPIC, asked)) * 1e3,
    }


def _fastest_s(work: Callable[[], object]) -> float:
    fastest_s = float("inf")
    for _ in range(REPETITIONS):
        start_s = time.perf_counter()
        work()
        fastest_s = min(fastest_s, time.perf_counter() - start_s)
    return fastest_s


CASES: tuple[Case, ...] = (
    Memory(100, 1, (31.7, 30, 0.7)),
    Memory(100, SHARDS, (32.5, 30, 0.7)),
    Memory(1, 1, (66, 38, 1.4)),
    Memory(1, SHARDS, (66, 37, 1.4)),
)

if __name__ == "__main__":
    json.dump(measured(*map(int, sys.argv[1:])), sys.stdout)
