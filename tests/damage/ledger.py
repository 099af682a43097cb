"""Records that a data directory must give its clients: all acknowledged ones, in their places.

A ledger is taken from the files of a directory that nothing has damaged, with the readers of the
tests and not with storage, and compared with what producers were told (`Ledger.require`).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from tests.damage.callers import entries_of
from tests.support.old_sets import Seen, seen

if TYPE_CHECKING:
    from pathlib import Path

Place = tuple[str, int]
"""Topic and partition."""


class Batch(NamedTuple):
    """A batch or top-level message in its file. `base` is its first offset, `last` its last."""

    file: str
    position: int
    raw: bytes
    base: int
    last: int
    records: tuple[Seen, ...]


class Ledger:
    """One partition. Its batches lie in the order of their offsets; `start` is the log start."""

    def __init__(self, batches: list[Batch], start: int = 0) -> None:
        self.batches = batches
        self.start = start

    @classmethod
    def of(cls, folder: Path, start: int = 0) -> Ledger:
        """All that a partition's folder holds."""
        batches: list[Batch] = []
        for path in sorted(folder.glob("*.log")):
            position = 0
            for entry in entries_of(path.read_bytes()):
                records = tuple(seen(entry.raw))
                base = entry.offset if entry.magic == 2 else records[0].offset
                last = base + int.from_bytes(entry.raw[23:27], "big")
                if entry.magic < 2:
                    last = entry.offset
                batches.append(Batch(path.name, position, entry.raw, base, last, records))
                position += len(entry.raw)
            assert position == path.stat().st_size, f"{path} is not whole"
        return cls(batches, start)

    @property
    def end(self) -> int:
        """One past the last offset."""
        return self.batches[-1].last + 1 if self.batches else self.start

    def first_at(self, offset: int) -> int:
        """The index of the batch that holds an offset, or of the first behind it."""
        index = bisect_right(self.batches, offset, key=lambda batch: batch.base) - 1
        if index < 0 or self.batches[index].last < offset:
            index += 1
        return index

    def at(self, file: str, position: int) -> int | None:
        """The index of the batch that a byte of a log file belongs to."""
        for index, batch in enumerate(self.batches):
            if batch.file == file and 0 <= position - batch.position < len(batch.raw):
                return index
        return None

    def cut(self, index: int) -> Ledger:
        """The same without the batches from this index on."""
        return Ledger(self.batches[:index], self.start)

    def records(self) -> list[Seen]:
        """From the log start on."""
        found = [record for batch in self.batches for record in batch.records]
        return [record for record in found if record.offset >= self.start]

    def first_since(self, timestamp_ms: int) -> Seen | None:
        """The first record that is not older; what ListOffsets is asked for."""
        for record in self.records():
            if record.timestamp_ms >= timestamp_ms:
                return record
        return None

    def require(self, acknowledged: dict[int, tuple[bytes | None, bytes | None]]) -> None:
        """See that these keys and values are there, by offset; where compaction was, that of all
        that is there it is what was sent."""
        stored = {record.offset: (record.key, record.value) for record in self.records()}
        for offset, row in stored.items():
            assert acknowledged.get(offset, row) == row, f"{row} at {offset}"
