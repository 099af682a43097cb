"""Seeded logs of every format and codec, with producers and transactions, for compaction."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages
from storage.transaction_index import AbortedTransaction
from tests.storage.cleaning.partition import Partition, marker

if TYPE_CHECKING:
    from protocol.records.builder import RecordFields
    from protocol.records.record import Record

KEYS = [b"", *(b"%d" % number for number in range(9)), b"long" * 40]
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (10, 11, 12)
FIRST_MS = 1_700_000_000_000


class History:
    """A partition, and what is known of it without looking inside."""

    def __init__(self, seed: int, *, entries: int = 60) -> None:
        self.partition = Partition()
        self.aborted_offsets: set[int] = set()
        self.producers: dict[int, tuple[int, int]] = {}
        self._rng = random.Random(seed)
        self._offset = 0
        self._segment: list[bytes] = []
        self._base = 0
        self._aborted: list[AbortedTransaction] = []
        self._open: dict[int, list[int]] = {}
        for _ in range(entries):
            self._step()
        for producer_id in list(self._open):
            self._end(producer_id, commit=False)
        self._roll()

    @property
    def records(self) -> dict[int, Record]:
        """Those that are there now, by offset."""
        return {record.offset: record for record in self.partition.records()}

    def _roll(self) -> None:
        if self._segment:
            self.partition.segment(*self._segment, base=self._base, aborted=self._aborted)
            self._segment, self._aborted, self._base = [], [], self._offset

    def _step(self) -> None:
        rng = self._rng
        if rng.random() < 0.08:
            self._roll()
        kind = rng.choice(("batch", "batch", "producer", "messages", "wrapper", "transaction"))
        if kind == "transaction":
            producer_id = rng.choice(TRANSACTIONAL)
            if producer_id in self._open and rng.random() < 0.5:
                self._end(producer_id, commit=rng.random() < 0.5)
                return
            self._open.setdefault(producer_id, [])
            rows = self._rows()
            self._open[producer_id] += range(self._offset, self._offset + len(rows))
            self._batch(rows, producer_id, transactional=True)
        elif kind in ("messages", "wrapper"):
            rows = self._rows()
            self._add(
                build_messages(
                    rows,
                    magic=rng.randrange(2),
                    codec=rng.randrange(1, 4) if kind == "wrapper" else 0,
                    base_offset=self._offset,
                    append_time_ms=FIRST_MS + 5 if rng.random() < 0.2 else None,
                ),
                len(rows),
            )
        else:
            self._batch(self._rows(), rng.choice(IDEMPOTENT) if kind == "producer" else -1)

    def _rows(self) -> list[RecordFields]:
        rng = self._rng
        return [
            (
                FIRST_MS + rng.randrange(-9000, 9000) * rng.choice((1, 1, 1 << 20)),
                None if rng.random() < 0.1 else rng.choice(KEYS),
                None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 3, 90))),
                (),
            )
            for _ in range(rng.randrange(1, 6))
        ]

    def _batch(
        self, rows: list[RecordFields], producer_id: int, *, transactional: bool = False
    ) -> None:
        rng = self._rng
        plain = producer_id < 0
        if not transactional and rng.random() < 0.3:
            rows = [(*row[:3], [("h", b"x" * 70), ("", None)]) for row in rows]
        self._add(
            build_batch(
                rows,
                base_offset=self._offset,
                codec=rng.choice((0, 0, 1, 2, 3, 4)),
                producer_id=producer_id,
                producer_epoch=-1 if plain else 0,
                base_sequence=-1 if plain else self._offset,
                leader_epoch=self._offset // 100,
                transactional=transactional,
                log_append_time_ms=FIRST_MS + 7 if rng.random() < 0.2 else None,
            ),
            len(rows),
        )
        if producer_id >= 0:
            self.producers[producer_id] = (0, self._offset - 1)

    def _end(self, producer_id: int, *, commit: bool) -> None:
        offsets = self._open.pop(producer_id)
        at = self._offset
        self._add(marker(at, producer_id, commit=commit, leader_epoch=at // 100), 1)
        if not commit:
            self.aborted_offsets.update(offsets)
            oldest = min((first for first, *_ in self._open.values()), default=at + 1)
            self._aborted.append(AbortedTransaction(producer_id, offsets[0], at, oldest))

    def _add(self, entry: bytes, count: int) -> None:
        self._segment.append(entry)
        self._offset += count


def survivors(
    records: dict[int, Record], aborted: set[int], *, first_dirty: int, end: int
) -> set[int]:
    """Offsets of the records that a first cleaning has to leave, by the naive rule: below the end
    those with a key that no later one has, above it all; and no aborted ones."""
    newest = {
        record.key: offset
        for offset, record in sorted(records.items())
        if first_dirty <= offset < end and offset not in aborted
    }
    return {
        offset
        for offset, record in records.items()
        if offset not in aborted
        and (offset >= end or (record.key is not None and offset >= newest.get(record.key, offset)))
    }
