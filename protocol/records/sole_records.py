"""Batches of one record, as a log of state has nearly always: made, and read many at once.

The start of a broker may read hundreds of thousands of them, and a transaction writes three in one
partition or another. `_loops.c` has twins, which need a tenth of the time.
"""

from __future__ import annotations

from contextlib import suppress

from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TIMESTAMP_TYPE_BIT
from protocol.records.transcode import first_of
from protocol.records.walk import walk

SoleRecord = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Base offset of the batch, and key, value and headers of its record."""

Headers = tuple[tuple[bytes, bytes | None], ...]
"""Names and contents, to be written."""

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


def interpreted_sole_batch(
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_marker: bool = False,
    /,
) -> bytearray:
    """A batch of one record, writable, so that a log can give it its offset. The attributes of
    `is_marker` are those of a control batch in a transaction."""
    batch = build_batch(
        [(timestamp_ms, key, value, headers)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=is_marker,
        control=is_marker,
    )
    return bytearray(batch)


sole_records = interpreted_sole_records
sole_batch = interpreted_sole_batch
try:
    from protocol.records._loops import sole_batch as _compiled_batch
    from protocol.records._loops import sole_records as _compiled_records
except ImportError:
    pass  # built where there was no C compiler
else:
    sole_records = first_of(_compiled_records, interpreted_sole_records)
    sole_batch = first_of(_compiled_batch, interpreted_sole_batch)
