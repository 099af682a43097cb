"""Produce and fetch in a memory cgroup against without one: `python -m bench.small_memory`.

Two brokers run, one in a cgroup of 256 MB, which counts its page cache as well; rounds alternate
between them. `produce` replays a batch over four connections, acks=1; `follow` has two connections
fetch at the end of the log meanwhile, as fast as it grows. Needs cgroup v1 or v2 and root.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import frames, machine, raw
from bench.servers import Triglot
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT_BYTES = 256 << 20
TOPIC = "bench-small-memory"
BATCHES = {"900 KB batches": 900_000, "16 KB batches": 16_384}


class MemoryGroup:
    """A memory cgroup of its own, of version 1 where the controller is mounted, else of 2."""

    def __init__(self, name: str, limit_bytes: int) -> None:
        first = Path("/sys/fs/cgroup/memory")
        root, limit = (
            (first, "memory.limit_in_bytes")
            if first.exists()
            else (Path("/sys/fs/cgroup"), "memory.max")
        )
        self.path = root / name
        self.path.mkdir(exist_ok=True)
        (self.path / limit).write_text(str(limit_bytes))

    @property
    def events(self) -> Mapping[str, int]:
        """Pages that were dirty or being written back when last looked at, in bytes, and others."""
        lines = (self.path / "memory.stat").read_text().splitlines()
        return {name: int(value) for name, value in map(str.split, lines)}

    def remove(self) -> None:
        self.path.rmdir()


class Bounded(Triglot):
    """The broker in the cgroup."""

    name = "bounded"
    group: MemoryGroup

    def _command(self) -> Sequence[str]:
        enter = f'echo $$ > {self.group.path}/cgroup.procs; exec "$0" "$@"'
        return ["/bin/sh", "-c", enter, *super()._command()]


def follow(port: int, done: threading.Event, counted: list[int]) -> None:
    """Fetch what comes, from the end on, until told to stop."""
    with Caller("127.0.0.1", port, timeout_s=60) as caller:
        offset = 0
        while not done.is_set():
            entry = caller.fetch(TOPIC, offset, version=4, max_wait_ms=100, max_bytes=16 << 20)
            counted[0] += len(entry.records)
            offset = entry.high_watermark


def produce(server: Triglot, size: int, total: int, folder: Path, *, followed: bool) -> float:
    """MB/s at which so many bytes were taken."""
    batch = frames.record_batch(frames.records_in(size, 1000), 1000)
    server.create_topic(TOPIC)
    done, counted = threading.Event(), [0]
    follower = threading.Thread(target=follow, args=(server.port, done, counted))
    try:
        if followed:
            follower.start()
        request = frames.produce_frame(TOPIC, batch, acks=1)
        machine.warm_memory(total, folder)
        ran = raw.blast(
            *(server, [request], "-c", "4", "-w", "5", "-n", str(total // len(batch))),
            error_position=frames.produce_error_position(TOPIC),
        )
    finally:
        done.set()
        if followed:
            follower.join()
        server.delete_topic(TOPIC)
        time.sleep(1)
        os.sync()
    return ran.answers * len(batch) / ran.seconds / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.small_memory", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mb", type=int, default=1500, help="produced in each round")
    parser.add_argument("--only", default="", help="part of a load's name")
    arguments = parser.parse_args()
    Bounded.group = MemoryGroup("bench-small-memory", LIMIT_BYTES)
    with tempfile.TemporaryDirectory(prefix="small-memory-") as name:
        folder = Path(name)
        servers = [Triglot(folder / "free"), Bounded(folder / "bounded")]
        try:
            for server in servers:
                server.wait_until_ready()
            machine.pin_load()
            for label, size in BATCHES.items():
                for followed in (False, True):
                    load = f"{label}{', followed' if followed else ''}"
                    if arguments.only not in load:
                        continue
                    found: dict[str, list[float]] = {server.name: [] for server in servers}
                    for number in range(arguments.rounds):
                        for server in servers if number % 2 else reversed(servers):
                            rate = produce(
                                server, size, arguments.mb * 10**6, folder, followed=followed
                            )
                            found[server.name].append(rate)
                    free, bounded = (statistics.median(rates) for rates in found.values())
                    ratios = [b / f for f, b in zip(*found.values(), strict=True)]
                    print(
                        f"| {load} | {free:.0f} | {bounded:.0f} | {bounded / free:.2f} | "
                        f"{statistics.median(ratios):.2f} |",
                        flush=True,
                    )
        finally:
            for server in servers:
                server.stop()
            Bounded.group.remove()


if __name__ == "__main__":
    main()
