"""The records of a batch of format 2 as tuples, all at once, for who reads millions of them.

`_loops.c` has the twin of this loop, which needs a tenth of its time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    RECORD_COUNT,
    TIMESTAMP_TYPE_BIT,
)
from protocol.records.record import read_fields, wrap_timestamp
from protocol.records.transcode import first_of

if TYPE_CHECKING:
    from protocol.records.layout import Header
    from protocol.records.record import RecordHeaders

    Row = tuple[int, int, bytes | None, bytes | None, RecordHeaders]
    """Offset, timestamp in ms, key, value, headers."""

# The places in a row.
OFFSET: Final = 0
TIMESTAMP_MS: Final = 1
KEY: Final = 2
VALUE: Final = 3
HEADERS: Final = 4


def interpreted_record_rows(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time_ms: int | None, /
) -> list[Row]:
    """With an append time it is that of all. Raises InvalidRecord as `read_fields`."""
    rows: list[Row] = []
    for fields in read_fields(data, count):
        timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, headers = fields
        rows.append((
            base_offset + offset_delta,
            wrap_timestamp(base_timestamp + timestamp_delta)
            if append_time_ms is None
            else append_time_ms,
            None if key_size < 0 else data[key_at : key_at + key_size],
            None if value_size < 0 else data[value_at : value_at + value_size],
            headers,
        ))  # fmt: skip
    return rows


def rows_of(data: bytes, header: Header) -> list[Row]:
    """The records of `data`, the decompressed payload of the batch with this header; of a faulty
    one none. Raises InvalidRecord."""
    append_time_ms = header[MAX_TIMESTAMP] if header[ATTRIBUTES] & TIMESTAMP_TYPE_BIT else None
    return record_rows(
        data, header[RECORD_COUNT], header[BASE_OFFSET], header[BASE_TIMESTAMP], append_time_ms
    )


record_rows = interpreted_record_rows
try:
    from protocol.records._loops import record_rows as compiled_record_rows
except ImportError:
    pass  # built where there was no C compiler
else:
    record_rows = first_of(compiled_record_rows, interpreted_record_rows)
