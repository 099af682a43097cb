"""The rows that the plain readers of `protocol.records` make of entries: the oracle of decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.records.batch import Batch
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import CODEC_MASK, MESSAGE_ATTRIBUTES_POSITION
from protocol.records.legacy import Message, read_messages
from protocol.records.walk import last_offset, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from protocol.records.record import Record

    Row = tuple[Any, ...]
    """Offset, timestamp in ms (None: none), type, key, value, headers (None: none)."""

MAX_TIMESTAMP_MS = (2**63 - 1) // 1000


def plain_rows(entries: bytes, start: int = 0, end: int = 2**63 - 1) -> tuple[list[Row], list[int]]:
    """The rows of the good entries, and the positions of the bad ones. A position of -1 is for what
    is no entry at all."""
    rows: list[Row] = []
    bad: list[int] = []
    view = memoryview(entries)
    try:
        for position, size, magic in walk(view):
            entry = view[position : position + size]
            try:
                found = list(_rows_of(entry, magic, start, end))
            except (CorruptBatch, InvalidRecord):
                bad.append(position)
                continue
            rows += [row for row in found if start <= row[0] < end]
    except CorruptBatch:
        bad.append(-1)
    return rows, bad


def _rows_of(entry: memoryview, magic: int, start: int, end: int) -> Iterator[Row]:
    offset = int.from_bytes(entry[:8], "big", signed=True)
    if magic < 2:
        if not entry[MESSAGE_ATTRIBUTES_POSITION] & CODEC_MASK and not start <= offset < end:
            return
        stamped = Message(entry).timestamp_type if magic else -1
        for record in read_messages(entry):
            yield _row(record, stamped)
        return
    batch = Batch(entry)
    if offset >= end or _wrapped(last_offset(entry, 0, 2)) < start:
        return
    if not batch.is_intact():
        raise CorruptBatch("checksum")
    if batch.is_control:
        return
    for record in batch.records():
        yield _row(record, batch.timestamp_type)


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _row(record: Record, timestamp_type: int) -> Row:
    timestamp = record.timestamp_ms
    known = timestamp != -1 and -MAX_TIMESTAMP_MS <= timestamp <= MAX_TIMESTAMP_MS
    headers = [
        (name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value)
        for name, value in record.headers
    ]
    return (
        record.offset,
        timestamp if known else None,
        timestamp_type,
        record.key,
        record.value,
        headers or None,
    )


def arrow_rows(batch: pa.RecordBatch) -> list[Row]:
    """The rows of RECORDS_AND_HEADERS in the same form."""
    import pyarrow as pa

    batch.validate(full=True)
    microseconds = batch["timestamp"].view(pa.int64()).to_pylist()
    rows = []
    columns = [
        batch[name].to_pylist() for name in ("offset", "timestampType", "key", "value", "headers")
    ]
    for moment, offset, kind, key, value, headers in zip(microseconds, *columns, strict=True):
        pairs = headers and [(header["key"], header["value"]) for header in headers]
        rows.append((offset, None if moment is None else moment // 1000, kind, key, value, pairs))
    return rows
