"""The columns that rows to be written may have, checked and brought into one form."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import WrongUse
from protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from pipeline.columns.varints import Numbers

TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Headers(NamedTuple):
    """The headers of all rows, one behind the other."""

    first: Numbers
    """For each row the number of its first header, and at the end how many there are."""
    name: pa.Array
    value: pa.Array

    def part(self, start: int, end: int) -> Headers:
        """The headers of the rows from `start` up to, and without, `end`."""
        begin, stop = int(self.first[start]), int(self.first[end])
        first = self.first[start : end + 1] - begin
        return Headers(first, self.name[begin:stop], self.value[begin:stop])


class Columns(NamedTuple):
    """The fields of records, as columns. Sizes are in bytes, -1 for null."""

    key: pa.Array
    key_size: Numbers
    value: pa.Array
    value_size: Numbers
    timestamp_ms: Numbers
    headers: Headers | None
    """None where no row has any."""

    def part(self, start: int, end: int) -> Columns:
        """The rows from `start` up to, and without, `end`."""
        headers = self.headers and self.headers.part(start, end)
        if headers is not None and not headers.first[-1]:
            headers = None
        rows = slice(start, end)
        return Columns(
            self.key[rows],
            self.key_size[rows],
            self.value[rows],
            self.value_size[rows],
            self.timestamp_ms[rows],
            headers,
        )


def columns_of(rows: pa.RecordBatch) -> Columns:
    """The columns `key`, `value`, `timestamp` and `headers`, of which each may be missing but the
    value. Raises WrongUse for other types than those of schemas.RECORDS_AND_HEADERS, or strings for
    bytes, and for a header without a name."""
    names = rows.schema.names
    if "value" not in names:
        raise WrongUse(f"no column 'value' among {', '.join(names) or 'no columns'}")
    count = rows.num_rows
    key = _bytes("key", rows["key"]) if "key" in names else pa.nulls(count, pa.binary())
    value = _bytes("value", rows["value"])
    return Columns(
        key,
        sizes_of(key),
        value,
        sizes_of(value),
        _milliseconds(rows["timestamp"]) if "timestamp" in names else _undated(count),
        _headers(rows["headers"]) if "headers" in names else None,
    )


def sizes_of(column: pa.Array) -> Numbers:
    """The size of each element of a binary column; -1 for null."""
    sizes = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(sizes, dtype=np.int64)


def _bytes(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    known = (
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_string_view(kind)
    )
    if not known:
        raise WrongUse(f"column '{name}' has type {kind}, wanted binary or string")
    return column if pa.types.is_binary(kind) else column.cast(pa.binary())


def _undated(count: int) -> Numbers:
    return np.full(count, NO_TIMESTAMP, dtype=np.int64)


def _milliseconds(column: pa.Array) -> Numbers:
    """Null is -1, no timestamp. What is below a millisecond is dropped, as Spark's connector does:
    towards the past, also before 1970."""
    kind = column.type
    if pa.types.is_null(kind):
        return _undated(len(column))
    if not pa.types.is_timestamp(kind):
        raise WrongUse(f"column 'timestamp' has type {kind}, wanted a timestamp")
    null = column.is_null().to_numpy(zero_copy_only=False)
    ticks = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    per_second = TICKS_PER_SECOND[kind.unit]
    found = ticks * max(1, 1_000 // per_second) // max(1, per_second // 1_000)
    return np.where(null, NO_TIMESTAMP, found)


def _headers(column: pa.Array) -> Headers | None:
    kind = column.type
    if pa.types.is_null(kind):
        return None
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or (
        not pa.types.is_struct(kind.value_type)
        or {field.name for field in kind.value_type} != {"key", "value"}
    ):
        raise WrongUse(f"column 'headers' has type {kind}, wanted a list of structs (key, value)")
    counts = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    first = np.zeros(len(column) + 1, dtype=np.int64)
    np.cumsum(counts, out=first[1:])
    if not first[-1]:
        return None
    pairs = column.flatten()
    names = _bytes("headers.key", pairs.field("key"))
    values = _bytes("headers.value", pairs.field("value"))
    if pairs.null_count or names.null_count:
        bad = pc.or_(pairs.is_null(), names.is_null()).to_numpy(zero_copy_only=False)
        row = int(np.searchsorted(first, np.flatnonzero(bad)[0], side="right")) - 1
        raise WrongUse(f"row {row} of {len(column)} has a header without a key")
    return Headers(first, names, values)
