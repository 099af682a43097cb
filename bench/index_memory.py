"""The memory of the indexes of active segments, and what appends and look-ups cost with it.

No server: a fresh process for each case. An active segment is full when it has 262,144 entries, as
1 GiB has at index.interval.bytes=4096: 2 MB of offset index and 3 MB of time index. Here a batch of
some 100 bytes brings an entry each (index.interval.bytes=0), with timestamps that rise.

`filled`: logs are appended to in turn until all are full. `opened`: one log is filled and stopped
cleanly, its files are linked into many folders, and all of these logs are opened, read from at
random and appended to, as after a restart (`killed`: as after kill -9 of a broker that had a
checkpoint at the end). RSS is what the process grew by (VmRSS).

Estimate, on paper. Before, 20 bytes an entry and what `array` has to spare: 5.4 MB a full segment,
540 MB for 100, 18,900 MB for 3,500. After: 32 MiB, and 2 KB of entries that are not counted a
segment: 32 and 40 MiB; the objects of a log (6 KB) are in both. A look-up in what was let go of:
open, ten reads, a page: 40 us; where it is read in sequence, 2 us. An append: as before.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench import frames, machine
from bench.case import Case, Figure
from bench.servers import CHECKOUT
from protocol.records.crc import crc32c
from protocol.records.layout import HEADER
from storage.disk import DiskFilesystem
from storage.recovery import LastKnown, open_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.case import Scale
    from bench.servers import Server
    from storage.clean_state import CleanState
    from storage.log import Log

FULL = 262_144
NOW_MS = 1_700_000_000_000
MAX_TIMESTAMP = 35
"""Position of the max timestamp in a batch."""
CHECKED = 21
"""Position from which on a batch is in its checksum, which stands before."""
BURST = 64
"""Batches that are appended before one write."""
LOOK_UPS = 4_000
FETCHED_BYTES = 4_000
RSS, APPEND, OPEN = "RSS MiB", "CPU us/append", "CPU ms/log to open, read and append"
LOOK_UP, NEXT = "CPU us/look-up", "CPU us/look-up of the next"


class Settings(NamedTuple):
    """Settings of a log in which each batch has an index entry."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 0
    record_format: int = 2


class IndexMemory(Case):
    group = "Indexes of active segments in memory"

    def __init__(self, how: str, logs: int, entries: int, estimates: Sequence[float]) -> None:
        self.name = f"{logs:,} logs {how}, {entries:,} entries each"
        names = (RSS, APPEND, LOOK_UP, NEXT) if how == "filled" else (RSS, OPEN, LOOK_UP, NEXT)
        digits = (0, 2, 1, 1)
        self.figures = tuple(map(Figure, names, digits, estimates))
        self._how, self._logs, self._entries = how, logs, entries

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if server.name != "triglot":
            return {}
        share = scale.entries / 1_000_000
        logs = max(2, int(self._logs * share))
        command = [sys.executable, "-m", "bench.index_memory", self._how]
        command += [str(logs), str(self._entries), str(folder)]
        ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RuntimeError(f"{self.name}: {ran.stderr.strip()}")
        found: dict[str, float] = json.loads(ran.stdout)
        return found


class Source:
    """Batches of one record, each later than the one before."""

    def __init__(self) -> None:
        self._batch = bytearray(frames.record_batch(1, 30, now_ms=NOW_MS))

    def append(self, log: Log, count: int) -> float:
        """Append so many, in bursts. Returns the CPU seconds of appends and writes."""
        batch, spent_s = self._batch, 0.0
        for done in range(0, count, BURST):
            burst = []
            for number in range(min(BURST, count - done)):
                time_ms = NOW_MS + log.next_offset + number
                batch[MAX_TIMESTAMP : MAX_TIMESTAMP + 8] = time_ms.to_bytes(8, "big")
                batch[CHECKED - 4 : CHECKED] = crc32c(batch[CHECKED:]).to_bytes(4, "big")
                burst.append((memoryview(bytearray(batch)), HEADER.unpack_from(batch)))
            begun_s = time.process_time()
            for view, header in burst:
                log.append(view, header, now_ms=NOW_MS)
            log.write()
            spent_s += time.process_time() - begun_s
        return spent_s


def _opened(folder: Path, known: LastKnown | None = None) -> Log:
    folder.mkdir(exist_ok=True)
    log, _ = open_log(DiskFilesystem(), str(folder), Settings(), known=known, now_ms=NOW_MS)
    return log


def filled(logs: int, entries: int, folder: Path) -> dict[str, float]:
    """Fill logs in turn."""
    source = Source()
    source.append(_opened(folder / "warm-0"), 10 * BURST)
    before_mib = machine.resident_mib(os.getpid())
    all_logs = [_opened(folder / f"bench-{number}") for number in range(logs)]
    spent_s = 0.0
    for done in range(0, entries, BURST):
        for log in all_logs:
            spent_s += source.append(log, min(BURST, entries - done))
    return {
        RSS: machine.resident_mib(os.getpid()) - before_mib,
        APPEND: spent_s / (logs * entries) * 1e6,
        **_look_ups(all_logs),
    }


def opened(logs: int, entries: int, folder: Path, *, killed: bool) -> dict[str, float]:
    """Open logs that are full."""
    template = folder / "bench-full"
    log = _opened(template)
    Source().append(log, entries)
    state = log.close(clean=True)
    assert state is not None
    known = LastKnown(recovery_point=entries, synced=entries, clean=None if killed else state)
    folders = [folder / f"bench-{number}" for number in range(logs)]
    _link(template, folders, state)
    del log
    source, chance = Source(), random.Random(1)
    before_mib = machine.resident_mib(os.getpid())
    begun_s = time.process_time()
    all_logs = [_opened(each, known) for each in folders]
    for log in all_logs:
        assert log.read(chance.randrange(entries), FETCHED_BYTES) is not None
        source.append(log, 1)
    spent_s = time.process_time() - begun_s
    return {
        RSS: machine.resident_mib(os.getpid()) - before_mib,
        OPEN: spent_s / logs * 1e3,
        **_look_ups(all_logs),
    }


def _link(template: Path, folders: list[Path], state: CleanState) -> None:
    """The same files in many folders. Appends to one are seen in all, and are the same in all."""
    assert state.log_size == (template / f"{0:020}.log").stat().st_size
    for each in folders:
        each.mkdir()
        for file in template.iterdir():
            (each / file.name).hardlink_to(file)


def _look_ups(logs: list[Log]) -> dict[str, float]:
    """In the indexes of all logs in turn: far from the one before, and just behind it."""
    chance = random.Random(2)
    far_s = next_s = 0.0
    for number in range(LOOK_UPS):
        index = logs[number % len(logs)].active.offsets
        relative = chance.randrange(len(index))
        begun_s = time.process_time()
        position = index.floor(relative)
        between_s = time.process_time()
        index.boundary(position + FETCHED_BYTES)
        next_s += time.process_time() - between_s
        far_s += between_s - begun_s
    return {LOOK_UP: far_s / LOOK_UPS * 1e6, NEXT: next_s / LOOK_UPS * 1e6}


CASES: tuple[Case, ...] = (
    IndexMemory("filled", 100, FULL, (32, 4, 40, 2)),
    IndexMemory("filled", 3_500, 2_000, (60, 4, 40, 2)),
    IndexMemory("opened", 100, FULL, (5, 1, 40, 2)),
    IndexMemory("opened", 3_500, FULL, (40, 1, 40, 2)),
    IndexMemory("killed", 3_500, FULL, (40, 1, 40, 2)),
)


def main(how: str, logs: int, entries: int, folder: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        if how == "filled":
            return filled(logs, entries, Path(name))
        return opened(logs, entries, Path(name), killed=how == "killed")


if __name__ == "__main__":
    json.dump(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])), sys.stdout)
