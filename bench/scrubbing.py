"""What reading old data again costs the processes that serve, and who waits for it.

Each process scrubs what it leads, on a thread (`broker.background.scrubber`). A directory with
sealed segments is served with scrubbing off, and with an interval so short that it never pauses,
while single records are written to another topic at fixed times.

    python -m bench.scrubbing [--rounds 3] [--megabytes 1000]

Estimate: 16 MB a second and process at most; at 1 CPU-s/GB for checksums and headers that is 2 % of
a core each, and 5 ms on the p99 of acks, for as long as the thread keeps the interpreter. A process
beside all of them would read the same bytes with the same CPU, and have to open the same logs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.processes import Served, blast

OLD, NEW = "old", "new"
OLD_BYTES, NEW_BYTES, SEGMENT_BYTES = 16_384, 100, 16 << 20
RATE, SECONDS = 1_000, 20
OFF, ALWAYS = "log.scrub.interval.ms=-1", "log.scrub.interval.ms=1"


class Found(NamedTuple):
    """CPU in % of a core, MB a second read from files, acks in us."""

    cpu: float
    read: float
    p50_us: float
    p99_us: float


def filled(data: str, megabytes: int) -> None:
    """Write what is old, in segments that take no more."""
    served = Served(1, data, OFF)
    served.create_topic(OLD, segment_bytes=str(SEGMENT_BYTES))
    served.create_topic(NEW)
    options = ["-s", "-w", "4", "-n", str(megabytes * 1_000_000 // OLD_BYTES)]
    blast(served, OLD, OLD_BYTES, 1, 1, options)
    served.stop()


def measured(data: str, processes: int, scrubbing: str) -> Found:
    served = Served(processes, data, scrubbing)
    cpu_s, read, began_s = served.cpu_s(), files_read(served), time.monotonic()
    options = ["-r", str(RATE // processes), "-t", str(SECONDS)]
    told = blast(served, NEW, NEW_BYTES, 1, processes, options)
    took_s = time.monotonic() - began_s
    cpu, read = served.cpu_s() - cpu_s, files_read(served) - read
    served.stop()
    p50_us, p99_us = (max(one[name] for one in told) for name in ("p50_us", "p99_us"))
    return Found(cpu / took_s * 100, read / took_s / 1e6, p50_us, p99_us)


def files_read(served: Served) -> int:
    """Bytes that its processes have read, from files and sockets."""
    total = 0
    for pid in (served.process.pid, *served.children()):
        found = Path(f"/proc/{pid}/io").read_text().splitlines()
        total += int(dict(line.split(": ") for line in found)["rchar"])
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=1_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        filled(data, arguments.megabytes)
        for processes in (1, 2):
            found: dict[str, list[Found]] = {OFF: [], ALWAYS: []}
            for _ in range(arguments.rounds):
                for scrubbing in found:
                    found[scrubbing].append(measured(data, processes, scrubbing))
            for scrubbing, rounds in found.items():
                cpu, read, p50_us, p99_us = map(statistics.median, zip(*rounds, strict=True))
                print(
                    f"{processes} processes, {scrubbing}: {cpu:.1f} % of a core, {read:.1f} MB/s "
                    f"read, acks p50 {p50_us:.0f} us, p99 {p99_us:.0f} us; "
                    f"load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
