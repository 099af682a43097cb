"""Record batches of every format into columns of Arrow, without an object per record.

Entries are opened (`opening`) and their payloads put behind one another, some megabytes at a time.
The start of each record is found, one after the other, in C where that is built. All fields of all
records are then read at once (`record_fields`), and the bytes of keys, values and headers are
copied into their columns (`rows`).

What the plain readers (`protocol.records.record`, `protocol.records.legacy`) refuse is refused.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from pipeline.columns.decode_batches import decode_batches as decode_batches
from pipeline.columns.decode_legacy import message_rows
from pipeline.columns.faults import Faults
from pipeline.columns.opening import Chunk
from pipeline.columns.record_fields import read_fields
from pipeline.columns.rows import Rows, merged, to_arrow
from protocol.records.errors import InvalidRecord
from protocol.records.layout import TIMESTAMP_TYPE_BIT
from protocol.records.record import INT64_MAX, INT64_MIN
from protocol.records.starts import record_starts
from protocol.records.transcode import scan_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pipeline.columns.entries import Structured
    from pipeline.columns.faults import LeftOut
    from pipeline.columns.opening import PayloadGroup
    from pipeline.columns.record_fields import Fields, Headers, Places
    from pipeline.columns.varints import Numbers

GROUP_BYTES = 16 << 20
"""Decompressed payloads that are decoded together; a single larger one is a group by itself."""
SLICE_BYTES = 4 << 20
"""Of a payload that is larger than a group, whose records are made rows at once."""
PIECE_ROWS = 1 << 17
"""Rows of a record batch that `decode_pieces` yields, at most."""


def decode_pieces(
    entries: bytes | memoryview,
    *,
    topic: str,
    partition: int,
    start: int,
    end: int,
    headers: bool = False,
    aborted: Sequence[tuple[int, int]] = (),
    left_out: LeftOut | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of `entries` with start <= offset < end, as RECORDS or RECORDS_AND_HEADERS.

    `entries` may mix all formats; one that is cut is the end of them. Control batches are left out,
    and so are batches of the transactions in `aborted`, (producer id, first offset) as a fetch
    answered them. A record batch has at most PIECE_ROWS rows. Memory is needed for the payloads of
    a group, and beside them, where records are tiny, some ten times as much; for a single payload
    that is larger than a group twice its bytes, which are MAX_DECOMPRESSED_BYTES at most, and what
    a slice of it needs.

    A bad entry raises CorruptData; with `left_out`, that is called with its first and last offset
    and the reason, and the others go on. Raises CodecMissing.
    """
    faults = Faults(topic, partition, start, end, left_out)
    chunk = Chunk(memoryview(entries), faults, aborted)
    for group in chunk.payload_groups(GROUP_BYTES):
        yield from _pieces(group, chunk, headers=headers)


def _pieces(group: PayloadGroup, chunk: Chunk, *, headers: bool) -> Iterator[pa.RecordBatch]:
    faults = chunk.faults
    data = b"".join(group.parts)
    # What is large is here once, and not while the next is opened.
    group.parts.clear()
    parts = (_whole if len(data) <= GROUP_BYTES else _sliced)(data, group, chunk)
    for rows, found in parts:
        faults.tell()
        wanted = (rows.offset >= faults.start) & (rows.offset < faults.end)
        if not wanted.all():
            rows = rows.take(wanted)
        for first in range(0, rows.offset.size, PIECE_ROWS):
            some = rows.take(slice(first, first + PIECE_ROWS))
            yield to_arrow(data, some, found if headers else None, faults.topic, faults.partition)
    faults.tell()


def _whole(data: bytes, group: PayloadGroup, chunk: Chunk) -> Iterator[tuple[Rows, Headers]]:
    rows, headers = _batch_rows(data, group, chunk)
    if group.sets:
        rows = merged(rows, message_rows(data, group.sets))
    yield rows, headers


def _sliced(data: bytes, group: PayloadGroup, chunk: Chunk) -> Iterator[tuple[Rows, Headers]]:
    """The records of a group that is one large payload, some at a time: where they are tiny, or
    have many headers, all at once would take many times its bytes. It is looked through first, for
    of a batch with a bad record nothing is given."""
    none = read_fields(b"\0", *(np.empty(0, dtype=np.int32) for _ in range(2))).headers
    for part in group.sets:
        for piece in part.pieces(data, SLICE_BYTES):
            yield message_rows(data, [piece]), none
    for number in group.batches:
        count = int(chunk.headers["record_count"][number])
        starts, followed = _starts(data, np.array([[0, len(data), count]], dtype=np.int32))
        ends = np.append(starts[1:], np.int32(len(data)))
        edges = np.searchsorted(starts, np.arange(0, len(data), SLICE_BYTES))
        slices = [slice(*pair) for pair in pairwise(np.unique(np.append(edges, starts.size)))]
        if not followed.all() or not all(
            read_fields(data, starts[one], ends[one]).good.all() for one in slices
        ):
            chunk.fault(number, _reason(data, count))
            continue
        for one in slices:
            fields = read_fields(data, starts[one], ends[one])
            counts = np.array([fields.good.size])
            yield _rows(starts[one], fields, chunk.headers[[number]], counts), fields.headers


def _batch_rows(data: bytes, group: PayloadGroup, chunk: Chunk) -> tuple[Rows, Headers]:
    """The records of the batches in a group; batches that are bad are told to the faults."""
    numbers = np.array(group.batches, dtype=np.int64)
    counts = chunk.headers["record_count"][numbers]
    spans = np.array((group.begins, group.ends, counts), dtype=np.int32).T.copy()
    while True:
        starts, followed = _starts(data, spans)
        counts = np.maximum(spans[:, 2], 0) * followed
        ends = np.append(starts[1:], np.int32(0))
        ends[(np.cumsum(counts) - 1)[counts > 0]] = spans[counts > 0, 1]
        fields = read_fields(data, starts, ends)
        if followed.all() and fields.good.all():
            break
        bad = ~followed
        bad[np.repeat(np.arange(counts.size), counts)[~fields.good]] = True
        for index in np.flatnonzero(bad).tolist():
            begin, end, count = spans[index].tolist()
            chunk.fault(int(numbers[index]), _reason(data[begin:end], count))
        spans, numbers = spans[~bad], numbers[~bad]
    return _rows(starts, fields, chunk.headers[numbers], counts), fields.headers


def _rows(starts: Places, fields: Fields, headers: Structured, counts: Numbers) -> Rows:
    """Of records that follow batch by batch, so many of each of these headers."""
    stamped = (headers["attributes"] & TIMESTAMP_TYPE_BIT) != 0
    base = np.where(stamped, headers["max_timestamp"], headers["base_timestamp"])
    delta = fields.timestamp_delta
    if stamped.any():
        delta[np.repeat(stamped, counts)] = 0
    return Rows(
        starts,
        np.repeat(headers["base_offset"].astype(np.int64), counts) + fields.offset_delta,
        np.repeat(base.astype(np.int64), counts) + delta,
        np.repeat(stamped.astype(np.int32), counts),
        *fields[2:8],
    )


def _starts(data: bytes, spans: Places) -> tuple[Places, NDArray[np.bool_]]:
    """The starts of all records, and for each span whether its lengths lead to its end; if they do
    not, it has no starts here."""
    followed = np.ones(len(spans), dtype=np.bool_)
    try:
        found = record_starts(data, spans.tobytes())
    except InvalidRecord:
        parts: list[bytes] = []
        for index, span in enumerate(spans):
            try:
                parts.append(record_starts(data, span.tobytes()))
            except InvalidRecord:
                followed[index] = False
        found = b"".join(parts)
    return np.frombuffer(found, dtype=np.int32), followed


def _reason(payload: bytes, count: int) -> str:
    """The plain reader's error for records that cannot be read."""
    try:
        scan_records(payload, count, 0, oldest_ms=INT64_MIN, newest_ms=INT64_MAX)
    except InvalidRecord as error:
        return str(error)
    raise AssertionError(f"two readers do not agree on {count} records in {len(payload)} bytes")
