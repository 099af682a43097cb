"""The machine: which core runs what, the CPU time of another process, what to say about it."""

from __future__ import annotations

import datetime
import os
import platform
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CORES = sorted(os.sched_getaffinity(0))

#: The broker runs on the first core this process was given, the load on the last.
BROKER_CORE = _CORES[0]
LOAD_CORE = _CORES[-1]


def pin_load() -> None:
    """Puts this process, and what it starts from now on, on the core of the load."""
    os.sched_setaffinity(0, {LOAD_CORE})


@contextmanager
def on_broker_core() -> Iterator[None]:
    """Processes started inside run on the broker's core, from their first instruction on."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {BROKER_CORE})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, user and kernel, over all its threads, living and ended.

    Linux gives every process a CPU clock; the number of the clock is made from the process id as
    in `clock_getcpuclockid`. Unlike the ticks of /proc it counts nanoseconds.
    """
    return time.clock_gettime((~pid << 3) | 2)


def resident_mib(pid: int) -> float:
    """Memory of a process that is in RAM (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no VmRSS")


def warm_memory(size: int, folder: Path) -> None:
    """Has the machine take so many bytes of page cache into use, and gives them back to it.

    A virtual machine hands free memory back to its host after a second or two, and a page that
    must be fetched again costs ten times what writing it does: more than any server. Whatever is
    about to fill the page cache calls this first, with room to spare.
    """
    path = folder / "memory"
    chunk = bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(chunk) + 1):
            file.write(chunk)
    path.unlink()


def described() -> dict[str, str]:
    """The machine, as far as it matters to figures. No names of hosts, people or folders."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu,
        "cores": f"{os.cpu_count()}; broker on {BROKER_CORE}, load on {LOAD_CORE}",
        "memory": f"{memory_gib:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load average at start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }
