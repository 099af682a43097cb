"""Batches of one record, as a log of state has nearly always, many at once.

The start of a broker may read hundreds of thousands of them. `_loops.c` has the twin of this loop,
which needs a tenth of its time.
"""

from __future__ import annotations

from contextlib import suppress

from protocol.records.batch import Batch
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import TIMESTAMP_TYPE_BIT
from protocol.records.transcode import first_of
from protocol.records.walk import walk

SoleRecord = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Base offset of the batch, and key, value and headers of its record."""

_FORMAT_2 = 2


def interpreted_sole_records(data: bytes, position: int) -> tuple[int, int, list[SoleRecord]]:
    """Read batches that have one record, from the one at `position` up to whatever is none: one of
    more records, compressed, of a transaction, a marker, a wrong checksum, the end of the data.

    Gives the position of that, the position of the last batch that was read (-1 for none), and the
    records.
    """
    view = memoryview(data)
    rows: list[SoleRecord] = []
    last = -1
    with suppress(CorruptBatch, InvalidRecord):
        for start, size, magic in walk(data, position):
            batch = Batch(view[start : start + size])
            if magic != _FORMAT_2 or batch.attributes & ~TIMESTAMP_TYPE_BIT:
                break
            if batch.record_count != 1 or not batch.is_intact():
                break
            (record,) = batch.records()
            rows.append((batch.base_offset, record.key, record.value, record.headers))
            last, position = start, start + size
    return position, last, rows


sole_records = interpreted_sole_records
try:
    from protocol.records import _loops
except ImportError:
    pass  # built where there was no C compiler
else:
    sole_records = first_of(_loops.sole_records, interpreted_sole_records)
