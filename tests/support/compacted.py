"""Keyed records to be compacted, and a look at what the cleaner of a broker is doing."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.records.builder import build_batch
from tests.storage.message_sets import records_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.broker_process import BrokerProcess
    from tests.support.caller import Caller

LEFT_OVERS = (".cleaned", ".swap", ".deleted", "replacement-checkpoint")

#: Settings of a broker whose cleaner looks all the time.
AT_ONCE = {"log.cleaner.backoff.ms": "50"}


def keyed(*rows: tuple[bytes, bytes | None], timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """A batch of these keys and values."""
    return build_batch([(timestamp_ms, key, value, ()) for key, value in rows])


class Table:
    """The expected content of a compacted topic: the newest value and offset of each key."""

    def __init__(self, caller: Caller, topic: str, seed: int = 1) -> None:
        self.topic = topic
        self.rows: list[tuple[bytes, bytes | None]] = []
        self._caller = caller
        self._rng = random.Random(seed)

    @property
    def newest(self) -> dict[bytes, int]:
        return {key: offset for offset, (key, _) in enumerate(self.rows)}

    def fill(self, count: int, *, keys: int = 20, size: int = 500, per_batch: int = 20) -> None:
        """Append so many records of random keys, acknowledged by a sync."""
        while count > 0:
            rows: list[tuple[bytes, bytes | None]] = [
                (b"k%d" % self._rng.randrange(keys), self._rng.randbytes(size))
                for _ in range(min(per_batch, count))
            ]
            self.append(*rows)
            count -= len(rows)

    def append(self, *rows: tuple[bytes, bytes | None]) -> None:
        entry = self._caller.produce(self.topic, keyed(*rows))
        assert (entry.error_code, entry.base_offset) == (0, len(self.rows))
        self.rows += rows

    def reconnect(self, caller: Caller) -> None:
        self._caller = caller

    def stored(self, *, first: int = 0) -> dict[int, tuple[bytes | None, bytes | None]]:
        """Key and value by offset, read from an offset on, in an order that is checked."""
        found: dict[int, tuple[bytes | None, bytes | None]] = {}
        offset, end = first, self._caller.end_offset(self.topic)
        while offset < end:
            fetched = self._caller.fetch(self.topic, offset)
            assert fetched.error_code == 0
            records = records_in(bytes(fetched.records or b""))
            new = [record for record in records if record.offset >= offset]
            if not new:
                break  # what is left are batches without records
            for record in new:
                assert record.offset >= offset
                found[record.offset] = record.key, record.value
                offset = record.offset + 1
        return found

    def faults(self) -> list[str]:
        """What is wrong with the topic: a lost newest record, or one that is not what was sent."""
        stored = self.stored()
        lost = [
            f"{key!r} at {offset}"
            for key, offset in self.newest.items()
            if offset not in stored and self.rows[offset][1] is not None
        ]
        changed = [
            f"offset {offset}"
            for offset, row in stored.items()
            if offset >= len(self.rows) or row != self.rows[offset]
        ]
        return [*lost, *changed]


def folder_of(broker: BrokerProcess, topic: str) -> Path:
    return broker.data / f"{topic}-0"


def left_overs(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(LEFT_OVERS))


def log_bytes(folder: Path) -> int:
    """Bytes of the .log files; of one that is renamed at this moment 0."""
    total = 0
    for path in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def wait_until(condition: Callable[[], bool], what: str, *, within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {within_s} s"
        time.sleep(0.005)


def cleaner_pid(broker_pid: int) -> int | None:
    """The process beside this broker; None while there is none."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == broker_pid and b"cleaner_process" in (path / "cmdline").read_bytes():
                return int(path.name)
    return None


def is_gone(pid: int) -> bool:
    """Whether this process has ended; its parent may not have noticed."""
    try:
        return (Path(f"/proc/{pid}") / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
