"""Columns of Arrow into record batches of every format, without an object per record.

Rows are cut into batches by what they may take at most. The fields between the bytes of keys and
values (lengths, deltas, counts) are written for all rows at once, and joined with these bytes in
one go. Messages of formats 0 and 1 are made of that by the loops of `protocol.records.transcode`.

The same rows, options and package versions give the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.columns.encode_columns import columns_of
from pipeline.columns.encode_fields import largest_sizes, records_of
from pipeline.columns.payloads import codec_missing, shrink
from pipeline.errors import WrongUse
from protocol.records.compression import NAMES, ZSTD
from protocol.records.crc import crc32c
from protocol.records.layout import (
    CHECKED_POSITION,
    CRC_POSITION,
    ENTRY_OVERHEAD,
    HEADER,
    HEADER_SIZE,
    MESSAGE_OVERHEADS,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    UINT32,
)
from protocol.records.legacy import wrap_messages
from protocol.records.record import INT64_MIN
from protocol.records.transcode import messages_from_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pipeline.columns.encode_columns import Columns
    from pipeline.columns.varints import Numbers

DEFAULT_MAX_BYTES = 1 << 20
"""Just below max.message.bytes of a broker that has no setting."""
DEFAULT_MAX_RECORDS = 1 << 17
GROUP_BYTES = 8 << 20
"""Batches that are put together at a time; a single larger one by itself."""
RECORD_BYTES = (1 << 31) - (1 << 16)
"""No length field, and no column, holds more than 2 GiB."""


def encode_records(
    rows: pa.RecordBatch,
    *,
    magic: int = 2,
    codec: int = 0,
    level: int | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    max_records: int = DEFAULT_MAX_RECORDS,
) -> list[bytes]:
    """The rows as entries of format `magic` that are ready to be produced, in order.

    Columns are as `encode_columns.columns_of` takes them; others are ignored. Each element is a
    batch, or of formats 0 and 1 a wrapper or, without a codec, a run of messages. It has offsets
    from 0 and no producer, at most `max_records` records, and at most `max_bytes` bytes, before
    and after compression, unless a single record has more. What does not become smaller is not
    compressed. Formats 0 and 1 have no headers, and format 0 no timestamps: they are dropped, as
    a broker does that converts for an old consumer.

    `level` is as in `compression.compress`. Raises WrongUse, CodecMissing.
    """
    if magic not in (0, 1, 2):
        raise WrongUse(f"message format {magic}, known are 0, 1 and 2")
    if not 0 <= codec < len(NAMES):
        raise WrongUse(f"codec {codec}, known are 0 to {len(NAMES) - 1}")
    if codec == ZSTD and magic < 2:
        raise WrongUse(f"zstd in message format {magic}, it needs format 2")
    if max_bytes < 1 or max_records < 1:
        raise WrongUse(f"batches of {max_bytes} bytes and {max_records} records, wanted 1 or more")
    if not rows.num_rows:
        return []
    columns = columns_of(rows)
    if magic < 2:
        columns = columns._replace(headers=None)
    entries: list[bytes] = []
    firsts, bounds = _cuts(columns, magic, min(max_bytes, RECORD_BYTES), max_records)
    for start, end, within in _groups(firsts, bounds):
        part = columns.part(start, end)
        data, begins = records_of(part, within)
        view = memoryview(data)
        stops = np.append(within[1:], end - start)
        latest = np.maximum(np.maximum.reduceat(part.timestamp_ms, within), NO_TIMESTAMP)
        for first, stop, base, newest in zip(
            within.tolist(),
            stops.tolist(),
            part.timestamp_ms[within].tolist(),
            latest.tolist(),
            strict=True,
        ):
            records = view[begins[first] : begins[stop]]
            made = _Records(records, stop - first, base, newest)
            if magic == 2:
                entries.append(_batch(made, codec, level))
            else:
                entries.append(_messages(made, magic, codec, level))
    return entries


def _cuts(
    columns: Columns, magic: int, max_bytes: int, max_records: int
) -> tuple[Numbers, Numbers]:
    """The first row of each batch, and before each row, and at the end, what all rows before it
    may take in bytes."""
    if magic == 2:
        sizes, overhead = largest_sizes(columns, max_records), HEADER_SIZE
    else:
        overhead = MESSAGE_OVERHEADS[magic]  # of each message, and of a wrapper
        sizes = overhead + np.maximum(columns.key_size, 0) + np.maximum(columns.value_size, 0)
    row = int(sizes.argmax())
    if sizes[row] > RECORD_BYTES:
        raise WrongUse(f"row {row} has {sizes[row]} bytes, a record has at most {RECORD_BYTES}")
    ends = np.cumsum(sizes)
    firsts = []
    first, before = 0, 0
    while first < sizes.size:
        firsts.append(first)
        fits = int(ends.searchsorted(before + max_bytes - overhead, side="right"))
        first = max(first + 1, min(fits, first + max_records))
        before = int(ends[first - 1])
    return np.array(firsts), np.append(0, ends)


def _groups(firsts: Numbers, before: Numbers) -> Iterator[tuple[int, int, Numbers]]:
    """Consecutive batches of GROUP_BYTES together: first row, end, and their own first rows,
    counted from there."""
    ends = np.append(firsts[1:], before.size - 1)
    batch = 0
    while batch < firsts.size:
        start = int(firsts[batch])
        fits = int(np.searchsorted(before[ends], before[start] + GROUP_BYTES, side="right"))
        stop = max(batch + 1, fits)
        yield start, int(ends[stop - 1]), firsts[batch:stop] - start
        batch = stop


class _Records(NamedTuple):
    """The content of a batch. Timestamps are in ms."""

    payload: memoryview
    record_count: int
    base_timestamp: int
    max_timestamp: int


def _batch(records: _Records, codec: int, level: int | None) -> bytes:
    payload: bytes | memoryview = records.payload
    if codec:
        smaller = shrink(codec, payload, magic=2, level=level)
        if len(smaller) < len(payload):
            payload = smaller
        else:
            codec = 0
    header = bytearray(
        HEADER.pack(
            0,
            HEADER_SIZE + len(payload) - ENTRY_OVERHEAD,
            NO_LEADER_EPOCH,
            2,
            0,
            codec,
            records.record_count - 1,
            records.base_timestamp,
            records.max_timestamp,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            records.record_count,
        )
    )
    crc = crc32c(payload, crc32c(memoryview(header)[CHECKED_POSITION:]))
    UINT32.pack_into(header, CRC_POSITION, crc)
    return b"".join((header, payload))


def _messages(records: _Records, magic: int, codec: int, level: int | None) -> bytes:
    """A run of messages with offsets 0, 1, 2, ..., or a wrapper with the last one's."""
    run, _ = messages_from_records(
        records.payload,
        records.record_count,
        base_offset=0,
        base_timestamp=records.base_timestamp,
        magic=magic,
        append_time_ms=None,
        min_offset=INT64_MIN,
    )
    if not codec:
        return run
    try:
        wrapper = wrap_messages(
            run,
            magic=magic,
            codec=codec,
            offset=records.record_count - 1,
            timestamp_ms=records.max_timestamp,
            level=level,
        )
    except ImportError as error:
        raise codec_missing(codec, error) from None
    return wrapper if len(wrapper) < len(run) else run
