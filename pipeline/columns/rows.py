"""Records that were found in a buffer, as rows of Arrow: bytes are copied once, without an object
for any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.columns.arrays import array, booleans, repeated_text, validity
from pipeline.schemas import RECORDS, RECORDS_AND_HEADERS, TIMESTAMP
from protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.columns.record_fields import Headers, Places
    from pipeline.columns.varints import Numbers

HEADER = RECORDS_AND_HEADERS.field("headers").type.value_type
MICROSECONDS = 1000
"""Of a millisecond."""
MAX_TIMESTAMP_MS = (2**63 - 1) // MICROSECONDS
"""What has microseconds in 64 bits; the other end of the range is as far from 0."""


class Rows(NamedTuple):
    """Records inside `data`, in their order there. Sizes and header numbers are as in
    `record_fields.Fields`; `position` is where the record lies."""

    position: Places
    offset: Numbers
    timestamp_ms: Numbers
    timestamp_type: Places
    key_at: Places
    key_size: Places
    value_at: Places
    value_size: Places
    header_count: Places
    first_header: Places

    def take(self, chosen: NDArray[np.bool_] | Numbers | slice) -> Rows:
        """The rows that a mask, indexes or a slice choose."""
        columns: list[Any] = [column[chosen] for column in self]
        return Rows(*columns)


def merged(first: Rows, second: Rows) -> Rows:
    """Both, in the order of their positions. Only one of them may have headers."""
    if not second.position.size:
        return first
    if not first.position.size:
        return second
    pairs: list[Any] = list(zip(first, second, strict=True))
    both = Rows(*(np.concatenate(pair) for pair in pairs))
    return both.take(np.argsort(both.position, kind="stable"))


def to_arrow(
    data: bytes, rows: Rows, headers: Headers | None, topic: str, partition: int
) -> pa.RecordBatch:
    """The rows with the columns of RECORDS, or with `headers` of RECORDS_AND_HEADERS."""
    count = rows.position.size
    columns = [
        cut_out(data, rows.key_at, rows.key_size),
        cut_out(data, rows.value_at, rows.value_size),
        repeated_text(topic, count),
        array(np.full(count, partition), pa.int32()),
        array(rows.offset, pa.int64()),
        timestamps(rows.timestamp_ms),
        array(rows.timestamp_type, pa.int32()),
    ]
    if headers is None:
        return pa.RecordBatch.from_arrays(columns, schema=RECORDS)
    columns.append(header_lists(data, rows, headers))
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS_AND_HEADERS)


def timestamps(milliseconds: Numbers) -> pa.Array:
    """As microseconds. Null for -1, and for what does not fit: years before -290308 or after
    294247, which only a broken clock has."""
    absent = milliseconds == NO_TIMESTAMP
    absent |= milliseconds > MAX_TIMESTAMP_MS
    absent |= milliseconds < -MAX_TIMESTAMP_MS
    return array(milliseconds * MICROSECONDS, pa.int64(), absent).view(TIMESTAMP)


def cut_out(data: bytes | memoryview, at: Places, size: Places) -> pa.Array:
    """The bytes from each position on; null where the size is negative. Positions must ascend."""
    count = at.size
    null = size < 0
    nulls = int(np.count_nonzero(null))
    if nulls == count:
        return pa.nulls(count, pa.binary())
    # As an array whose elements are, in turn, a field and what lies between it and the next.
    bounds = np.empty(2 * count, dtype=np.int32)
    bounds[::2] = at
    np.add(at, np.maximum(size, 0), out=bounds[1::2])
    around = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    fields = around.take(array(np.arange(0, 2 * count, 2), pa.int64()))
    return _with_nulls(fields, null, nulls)


def _with_nulls(fields: pa.Array, null: NDArray[np.bool_], nulls: int) -> pa.Array:
    """A new array of binary without nulls, with nulls where they are asked for."""
    if not nulls:
        return fields
    buffers = [validity(null), *fields.buffers()[1:]]
    return pa.Array.from_buffers(fields.type, len(fields), buffers, nulls)


def header_lists(data: bytes, rows: Rows, headers: Headers) -> pa.Array:
    """The headers of each row; null for a row that has none."""
    counts = rows.header_count
    none = counts == 0
    nulls = int(np.count_nonzero(none))
    list_type = RECORDS_AND_HEADERS.field("headers").type
    if nulls == counts.size:
        return pa.nulls(counts.size, list_type)
    offsets = np.zeros(counts.size + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    total = int(offsets[-1])
    chosen = np.repeat(rows.first_header - offsets[:-1], counts) + np.arange(total)
    name_at, name_size, value_at, value_size = (column[chosen] for column in headers)
    names = text(cut_out(data, name_at, name_size))
    pairs = pa.StructArray.from_arrays(
        [names, cut_out(data, value_at, value_size)], fields=list(HEADER)
    )
    return pa.ListArray.from_arrays(
        array(offsets, pa.int32()),
        pairs,
        type=list_type,
        mask=booleans(none) if nulls else None,
    )


def text(names: pa.Array) -> pa.Array:
    """Header names as strings; bytes that are not UTF-8 become U+FFFD, as in Spark's connector."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    distinct = names.dictionary_encode()
    decoded = [name.decode("utf-8", "replace") for name in distinct.dictionary.to_pylist()]
    return pa.array(decoded, pa.string()).take(distinct.indices)
