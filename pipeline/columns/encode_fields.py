"""The records of format 2 that rows are, all of them at once.

The layout is in `protocol.records.record`. Of each record the fields up to the key, the size of the
value and the headers are written as columns of bytes; joined with the keys and values, row by row,
these are the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.encode_columns import sizes_of
from pipeline.columns.varints import VARLONG_BYTES, varint_sizes, write_varints

if TYPE_CHECKING:
    from pipeline.columns.encode_columns import Columns, Headers
    from pipeline.columns.varints import Numbers

INT64_MAX = 2**63 - 1
NO_HEADERS = b"\0"


def largest_sizes(columns: Columns, max_records: int) -> Numbers:
    """The most bytes that each row's record can take, whichever batch of so many it is put into."""
    timestamps = columns.timestamp_ms
    span = int(timestamps.max()) - int(timestamps.min())
    time_bytes = VARLONG_BYTES if span > INT64_MAX else _size_of(span)
    place_bytes = _size_of(min(timestamps.size, max_records))
    return _with_length(1 + time_bytes + place_bytes + _content_sizes(columns))


def _size_of(number: int) -> int:
    return int(varint_sizes(np.array([number], dtype=np.int64))[0])


def _with_length(sizes: Numbers) -> Numbers:
    return sizes + varint_sizes(sizes)


def _content_sizes(columns: Columns) -> Numbers:
    """The bytes of the key, the value and the headers of each row, with their sizes."""
    sizes = field_sizes(columns.key_size) + field_sizes(columns.value_size)
    if columns.headers is None:
        return sizes + len(NO_HEADERS)
    counts = np.diff(columns.headers.first)
    return sizes + varint_sizes(counts) + _header_sizes(columns.headers)


def field_sizes(sizes: Numbers) -> Numbers:
    """The bytes of fields together with the varints of their sizes."""
    return varint_sizes(sizes) + np.maximum(sizes, 0)


def _header_sizes(headers: Headers) -> Numbers:
    """The bytes of all the headers of each row, without their count."""
    sizes = field_sizes(sizes_of(headers.name)) + field_sizes(sizes_of(headers.value))
    ends = np.zeros(sizes.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=ends[1:])
    return np.diff(ends[headers.first])


def records_of(columns: Columns, firsts: Numbers) -> tuple[pa.Buffer, Numbers]:
    """The records of these rows one behind the other, and where each begins, with the end of the
    last. `firsts` are the rows that begin a batch, the first of them 0. At most 2 GiB in all."""
    count = columns.timestamp_ms.size
    lengths = np.diff(np.append(firsts, count))
    place = np.arange(count) - np.repeat(firsts, lengths)
    delta = columns.timestamp_ms - np.repeat(columns.timestamp_ms[firsts], lengths)
    size = 1 + varint_sizes(delta) + varint_sizes(place) + _content_sizes(columns)
    no_bytes = np.zeros(0, dtype=np.int64)
    joined = pc.binary_join_element_wise(
        _varint_columns((size, no_bytes, delta, place, columns.key_size)),
        columns.key,
        _varint_columns((columns.value_size,)),
        columns.value,
        _tails(columns.headers),
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
    _, offsets, data = joined.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32)[: count + 1]
    return data, starts.astype(np.int64)


def _varint_columns(columns: tuple[Numbers, ...]) -> pa.Array:
    """For each row the varints of these numbers, one behind the other; of no numbers, a zero."""
    sizes = [varint_sizes(numbers) if numbers.size else None for numbers in columns]
    count = columns[0].size
    total = np.zeros(count, dtype=np.int64)
    for size in sizes:
        total += 1 if size is None else size
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(total, out=offsets[1:])
    out = np.zeros(int(offsets[-1]), dtype=np.uint8)
    at = offsets[:-1].astype(np.int64)
    for numbers, size in zip(columns, sizes, strict=True):
        if size is None:
            at = at + 1
        else:
            write_varints(out, at, numbers, size)
            at = at + size
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(out)], 0
    )


def _tails(headers: Headers | None) -> pa.Array | pa.Scalar:
    """The count of each row's headers, and these."""
    if headers is None:
        return pa.scalar(NO_HEADERS)
    each = pc.binary_join_element_wise(
        _varint_columns((sizes_of(headers.name),)),
        headers.name,
        _varint_columns((sizes_of(headers.value),)),
        headers.value,
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
    _, offsets, data = each.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[headers.first]
    count = ends.size - 1
    of_row = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), data], 0)
    return pc.binary_join_element_wise(
        _varint_columns((np.diff(headers.first),)),
        of_row,
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
