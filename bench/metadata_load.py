"""The metadata of 100,000 partitions: how long it takes to load, and what it takes in memory.

A fresh process for each round makes a metadata log of 1,000 topics of 100 partitions, each with one
setting, as CreateTopics does, and has all of them led in a new epoch, as the next start does. Other
processes then load it: from the log alone, and from a snapshot with nothing after it. Memory is the
growth of VmRSS over the load. What is promised: 2 s from a snapshot, at most three times that
without, and 1 KB of memory for a partition.

Estimate, on paper. A record of a partition takes 2.7 us to read (measured in its batch), 1.5 us to
replay, and 1 us for checks and the loop around: 0.55 s from a snapshot; the log has another 100,000
changes: 1.0 s. Memory: a tuple of 11 fields (144 B), its place in a dict (100 B), epochs and ids
shared: 250 B.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench import machine
from bench.case import Case, Figure
from bench.servers import CHECKOUT
from storage.data_dir import DataDirectory
from storage.disk import DiskFilesystem
from storage.metadata.loading import load
from storage.metadata.opening import open_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

PARTITIONS_OF_A_TOPIC = 100
LOG, SNAPSHOT, WRITE = "load from the log s", "load from a snapshot s", "write the snapshot s"
TIMES, MEMORY, FILE = "log / snapshot", "B/partition, RSS", "B/partition, snapshot file"


class MetadataLoad(Case):
    group = "Metadata of many partitions"
    name = "1,000 topics x 100 partitions"
    figures = (
        *(Figure(LOG, 2, 1.0), Figure(SNAPSHOT, 2, 0.55), Figure(TIMES, 1, 1.8)),
        *(Figure(MEMORY, 0, 250), Figure(WRITE, 2, 0.6), Figure(FILE, 0, 76)),
    )

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if server.name != "triglot":
            return {}
        topics = max(1, scale.partitions * 10 // PARTITIONS_OF_A_TOPIC)
        made = in_a_process("make", str(folder), str(topics))
        from_log = in_a_process("load", str(folder))
        written = in_a_process("snapshot", str(folder))
        from_snapshot = in_a_process("load", str(folder))
        partitions = made["partitions"]
        assert from_log["partitions"] == from_snapshot["partitions"] == partitions
        return {
            LOG: from_log["s"],
            SNAPSHOT: from_snapshot["s"],
            TIMES: from_log["s"] / from_snapshot["s"],
            MEMORY: from_snapshot["bytes"] / partitions,
            WRITE: written["s"],
            FILE: written["bytes"] / partitions,
        }


def in_a_process(*arguments: str) -> dict[str, float]:
    """Run a step of this module: what it is called, the data directory, and more."""
    command = [sys.executable, "-m", "bench.metadata_load", *arguments]
    ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{arguments[0]}: {ran.stderr.strip()}")
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def make(path: str, topics: int) -> dict[str, float]:
    """A directory with this metadata, led a second time."""
    files = DiskFilesystem()
    directory = DataDirectory.take(files, path, node_id=1, new_uuid=lambda: os.urandom(16))
    store, _ = open_metadata(files, path, directory.identity, now_ms=_now_ms)
    for number in range(topics):
        settings = {"retention.ms": "86400000"}
        store.create(f"topic-{number:04d}", os.urandom(16), PARTITIONS_OF_A_TOPIC, settings)
    store.begin_epoch()
    store.log.close()
    return {"partitions": topics * PARTITIONS_OF_A_TOPIC}


def measured_load(path: str) -> dict[str, float]:
    """Load it in this process, which should be a fresh one."""
    before_mib, start_s = machine.resident_mib(os.getpid()), time.perf_counter()
    loaded = load(DiskFilesystem(), path)
    taken_s = time.perf_counter() - start_s
    grown = (machine.resident_mib(os.getpid()) - before_mib) * 2**20
    partitions = sum(len(topic.partitions) for topic in loaded.image.topics.values())
    return {"s": taken_s, "bytes": grown, "partitions": partitions}


def write_snapshot(path: str) -> dict[str, float]:
    """Write a snapshot of it and drop the log before."""
    files = DiskFilesystem()
    directory = DataDirectory.take(files, path, node_id=1, new_uuid=lambda: os.urandom(16))
    store, _ = open_metadata(files, path, directory.identity, now_ms=_now_ms)
    start_s = time.perf_counter()
    work = store.log.begin_snapshot("bench", now_ms=_now_ms())
    work.run()
    taken_s = time.perf_counter() - start_s
    store.log.snapshots.add(work.snapshot_id)
    removal = store.log.raise_start(work.snapshot_id.end_offset)
    if removal is not None:
        removal.set_aside()
        removal.remove()
    store.log.close()
    return {"s": taken_s, "bytes": store.log.snapshots.size(work.snapshot_id)}


def _now_ms() -> int:
    return int(time.time() * 1000)


CASES = (MetadataLoad(),)

if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "make":
        print(json.dumps(make(where, int(rest[0]))))
    else:
        print(json.dumps((measured_load if what == "load" else write_snapshot)(where)))
