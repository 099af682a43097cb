"""The newest record of each key, out of records that come in the order of their offsets.

Compaction keeps the same ones (KIP-58): keys are compared byte for byte, within one partition, and
the greater offset wins. A record without a value, a tombstone, is the newest of its key like any
other; what is made of it is the caller's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipeline.errors import CorruptData
from pipeline.schemas import RECORDS_AND_HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipeline.left_out import LeftOut
    from pipeline.reading.plan import Range

REDUCE_ROWS = 262_144
"""So many rows are gathered, at least, before the older ones of their keys are dropped again."""
REDUCE_BYTES = 256 << 20
"""Or so many bytes, which large values reach first."""


class Counted:
    """Passes record batches on, and counts their rows."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for some in self._batches:
            self.rows += some.num_rows
            yield some


def newest_of(records: Iterable[pa.RecordBatch]) -> pa.Table:
    """The newest record of each key, in the order of offsets.

    `records` are of one partition, in order, each with a key. Memory is that of the result and as
    much again, or REDUCE_BYTES if that is more.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    rows_max, bytes_max = REDUCE_ROWS, REDUCE_BYTES
    for some in records:
        waiting.append(some)
        rows += some.num_rows
        size += some.nbytes
        if rows >= rows_max or size >= bytes_max:
            kept = _reduced(waiting)
            waiting, rows, size = kept.to_batches(), kept.num_rows, kept.nbytes
            # Doubled, so that keys which are all different are not looked at again and again.
            rows_max, bytes_max = max(REDUCE_ROWS, 2 * rows), max(REDUCE_BYTES, 2 * size)
    return _reduced(waiting)


def with_keys(
    records: Iterable[pa.RecordBatch], range_: Range, left_out: LeftOut | None
) -> Iterator[pa.RecordBatch]:
    """The records that have a key. Others are counted in `left_out`.

    Raises CorruptData for one without a key if there is no `left_out`: Kafka's compaction takes
    none either.
    """
    for rows in records:
        keys = rows["key"]
        if not keys.null_count:
            yield rows
            continue
        missing = rows["offset"].filter(keys.is_null()).to_pylist()
        if left_out is None:
            raise CorruptData(
                f"{range_.topic_partition} offset {missing[0]}: a record without a key, which a "
                "table of newest values has no row for; leave such records out with onCorrupt=skip "
                "(--on-corrupt skip), or archive the topic with --mode append"
            )
        for offset in missing:
            left_out.corrupt(range_, offset, offset, "a record without a key")
        yield rows.filter(keys.is_valid())


def _reduced(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches, RECORDS_AND_HEADERS)
    if not table.num_rows:
        return table
    codes = np.concatenate(
        [chunk.indices.to_numpy() for chunk in table["key"].dictionary_encode().chunks]
    )
    last = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    # Where an index comes several times, its last value stays.
    last[codes] = np.arange(len(codes))
    newest = np.zeros(len(codes), dtype=np.bool_)
    newest[last] = True
    return table.filter(pa.array(newest))
