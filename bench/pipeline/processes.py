"""The CPU time of a process with all that it has started: Spark's JVM and its Python workers."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name, which may have spaces in it.
_PARENT, _TIMES = 1, slice(11, 15)


def cpu_seconds(root: int) -> float:
    """Of `root` and its descendants, with what ended ones had used, in seconds.

    A child that has ended is counted with the parent that waited for it.
    """
    found: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                text = (path / "stat").read_text()
            except OSError:  # it has just ended
                continue
            fields = text.rpartition(")")[2].split()
            found[int(path.name)] = int(fields[_PARENT]), sum(map(int, fields[_TIMES]))
    family = {root}
    grown = True
    while grown:
        more = {pid for pid, (parent, _) in found.items() if parent in family} - family
        family |= more
        grown = bool(more)
    return sum(found[pid][1] for pid in family if pid in found) / _TICKS_PER_S
