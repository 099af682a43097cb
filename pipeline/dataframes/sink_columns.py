"""The columns that a data frame needs to be written to topics, and their types as written.

records   value (required) and key, binary or string; topic, unless the option names one;
          partition, headers, timestamp where wanted
batches   batch (binary) and partition, and no value; topic, unless the option names one

Other columns are left alone, so that what was read in either shape can be written as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.errors import WrongUse
from pipeline.schemas import HEADERS, TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)


def _is_bytes(of: pa.DataType) -> bool:
    return any(bool(test(of)) for test in BYTES)


def _is_text(of: pa.DataType) -> bool:
    return bool(pa.types.is_string(of) or pa.types.is_large_string(of))


def _is_instant(of: pa.DataType) -> bool:
    """A timestamp_ntz has no zone: which instant it is, only the session knows."""
    return pa.types.is_timestamp(of) and of.tz is not None


def _is_headers(of: pa.DataType) -> bool:
    if not (pa.types.is_list(of) or pa.types.is_large_list(of)):
        return False
    item = of.value_type
    return (
        pa.types.is_struct(item)
        and [field.name for field in item] == ["key", "value"]
        and _is_text(item.field("key").type)
        and _is_bytes(item.field("value").type)
    )


COLUMNS: dict[str, tuple[str, Callable[[pa.DataType], bool], pa.DataType]] = {
    "key": ("binary or string", _is_bytes, pa.binary()),
    "value": ("binary or string", _is_bytes, pa.binary()),
    "batch": ("binary", _is_bytes, pa.binary()),
    "topic": ("string", _is_text, pa.string()),
    "partition": ("int", pa.types.is_int32, pa.int32()),
    "timestamp": ("timestamp_ltz", _is_instant, TIMESTAMP),
    "headers": ("array<struct<key: string, value: binary>>", _is_headers, HEADERS),
}
"""By name: what it may be, in Spark's words, whether a type is that, and as what it is written."""

OF_BATCHES = ("batch", "topic", "partition")
OF_RECORDS = ("key", "value", "topic", "partition", "timestamp", "headers")


def check_columns(schema: pa.Schema, topic: str | None) -> tuple[str, ...]:
    """The columns that are to be written. Raises WrongUse if one is missing or of a wrong type."""
    names = set(schema.names)
    # A column of records may be called so, too.
    shape = OF_BATCHES if "batch" in names and "value" not in names else OF_RECORDS
    if "value" not in names and shape is OF_RECORDS:
        found = ", ".join(schema.names) or "none"
        raise WrongUse(
            f"nothing to write: want a column 'value' (records) or 'batch' (stored batches), "
            f"found: {found}"
        )
    if topic is None and "topic" not in names:
        raise WrongUse("where to write to is missing: set option 'topic', or add a column 'topic'")
    if shape is OF_BATCHES and "partition" not in names:
        raise WrongUse("a batch has no key to choose a partition by: add a column 'partition'")
    wanted = tuple(name for name in shape if name in names and not (name == "topic" and topic))
    for name in wanted:
        if schema.names.count(name) > 1:
            raise WrongUse(f"there are two columns '{name}': leave one out, or rename it")
        words, test, _ = COLUMNS[name]
        found = schema.field(name).type
        if not test(found):
            raise WrongUse(f"column '{name}' has type {found}, not {words}: cast it")
    return wanted


def written_columns(rows: pa.RecordBatch, wanted: tuple[str, ...]) -> pa.RecordBatch:
    """These columns, each of the one type that it is written as."""
    columns = [rows.column(name).cast(COLUMNS[name][2]) for name in wanted]
    return pa.RecordBatch.from_arrays(columns, names=list(wanted))
