"""Messages of formats 0 and 1, wrappers opened, into the same columns as records of format 2.

Each message, or wrapper and what is inside, is checked as `protocol.records.legacy` does, by the
loops in `transcode`. Fields have fixed widths, so that those of all messages are read at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.columns.entries import MESSAGE_0, read_at
from pipeline.columns.payloads import expand
from pipeline.columns.rows import Rows
from protocol.records.entry_rows import ROW, ROW_FIELDS, entry_rows
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    KEY_POSITIONS,
    LOG_APPEND_TIME,
    MESSAGE_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
)
from protocol.records.legacy import Message
from protocol.records.record import INT64_MAX, INT64_MIN, wrap_timestamp
from protocol.records.transcode import MessageScan, scan_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipeline.columns.varints import Bytes, Numbers

NO_TIMESTAMP_TYPE = -1
"""What Spark's connector gives for format 0."""
UNKNOWN = -2
"""In place of a timestamp type, where the message says it."""
_INT32 = np.dtype(">i4")
_INT64 = np.dtype(">i8")


class Set(NamedTuple):
    """Plain messages of one format that lie behind one another."""

    begin: int
    end: int
    magic: int
    base_offset: int
    """What is added to each offset."""
    timestamp_type: int
    """As in RECORDS, or UNKNOWN: where each message has its own."""
    timestamp_ms: int | None
    """That of the wrapper, if it is that of each message."""

    def moved(self, distance: int) -> Set:
        """The same set so many bytes further on."""
        return self._replace(begin=self.begin + distance, end=self.end + distance)

    def pieces(self, data: bytes, size: int) -> Iterator[Set]:
        """The same messages in sets of `size` bytes, or of one larger message."""
        view, begin = memoryview(data), self.begin
        while begin < self.end:
            rows = entry_rows(view[begin : min(begin + size, self.end)])
            if rows:
                at, length, *_ = ROW.unpack_from(rows, len(rows) - ROW.size)
                end = begin + at + length
            else:
                end = begin + Message(view[begin:]).size
            yield self._replace(begin=begin, end=end)
            begin = end


def plain_set(run: memoryview, magic: int) -> Set:
    """The set that consecutive plain messages are. Raises CorruptBatch."""
    _scan(run, magic)
    own = UNKNOWN if magic else NO_TIMESTAMP_TYPE
    return Set(0, len(run), magic, 0, own, None)


def _scan(data: bytes | memoryview, magic: int) -> MessageScan:
    """Check a run of messages. Raises CorruptBatch or InvalidRecord as `scan_messages`."""
    return scan_messages(
        data, magic, max_entry_bytes=len(data), oldest_ms=INT64_MIN, newest_ms=INT64_MAX
    )


def open_wrapper(entry: memoryview) -> tuple[bytes, Set]:
    """The bytes inside a wrapper, and the set that they begin with; what may follow it is the
    piece of a message. Raises CorruptBatch, InvalidRecord, CodecMissing."""
    wrapper = Message(entry)
    magic = wrapper.magic
    if not wrapper.is_intact():
        raise CorruptBatch(checksum_fault(wrapper.crc, wrapper.checksum()))
    value = wrapper.value
    if value is None:
        raise InvalidRecord(f"wrapper with codec {wrapper.codec} has a null value, wanted a set")
    payload = expand(wrapper.codec, value, magic=magic)
    found = _scan(payload, magic)
    if not found.count:
        raise InvalidRecord(f"wrapper holds no whole message in {len(payload)} bytes")
    if found.codecs != 1:
        raise InvalidRecord("wrapper holds another")
    base_offset = 0
    # Several clients leave the offset of a wrapper at 0. Then what is inside counts from 0.
    if magic and wrapper.offset:
        base_offset = wrapper.offset - found.last_offset
        if base_offset < 0:
            raise InvalidRecord(
                f"wrapper has offset {wrapper.offset}, its last message {found.last_offset}"
            )
    stamped = wrapper.timestamp_type == LOG_APPEND_TIME
    return payload, Set(
        0,
        found.end,
        magic,
        wrap_timestamp(base_offset),
        int(stamped) if magic else NO_TIMESTAMP_TYPE,
        wrapper.timestamp_ms if stamped else None,
    )


def checksum_fault(stated: int, found: int) -> str:
    """The reason that a checksum gives."""
    return f"checksum is {stated:#010x}, the bytes have {found:#010x}"


def message_rows(data: bytes, sets: list[Set]) -> Rows:
    """The messages of these sets, which have been checked, as rows."""
    view = memoryview(data)
    found = [entry_rows(view[part.begin : part.end]) for part in sets]
    counts = [len(rows) // ROW.size for rows in found]

    def of_set(values: Iterable[int]) -> Numbers:
        return np.repeat(np.array(list(values), dtype=np.int64), counts)

    raw = np.frombuffer(data, dtype=np.uint8)
    position_of = np.frombuffer(b"".join(found), dtype=np.int64)[::ROW_FIELDS]
    position_of = position_of + of_set(part.begin for part in sets)
    head = read_at(raw, position_of, MESSAGE_0)
    magic = of_set(part.magic for part in sets)
    dated = np.flatnonzero(magic)
    own = np.full(position_of.size, NO_TIMESTAMP, dtype=np.int64)
    own[dated] = read_at(raw, position_of[dated] + MESSAGE_TIMESTAMP_POSITION, _INT64)
    own_type = np.where(head["attributes"] & TIMESTAMP_TYPE_BIT, LOG_APPEND_TIME, 0)
    stamped = of_set(part.timestamp_ms is not None for part in sets) > 0
    types = of_set(part.timestamp_type for part in sets)
    key_at, key_size = _field(raw, position_of + np.where(magic, *reversed(KEY_POSITIONS)))
    value_at, value_size = _field(raw, key_at + np.maximum(key_size, 0))
    none = np.zeros(position_of.size, dtype=np.int32)
    return Rows(
        position_of.astype(np.int32),
        head["offset"] + of_set(part.base_offset for part in sets),
        np.where(stamped, of_set(part.timestamp_ms or 0 for part in sets), own),
        np.where(types == UNKNOWN, own_type, types).astype(np.int32),
        key_at.astype(np.int32),
        key_size.astype(np.int32),
        value_at.astype(np.int32),
        value_size.astype(np.int32),
        none,
        none,
    )


def _field(raw: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """The position and the length of the bytes whose length is at `at`."""
    return at + _INT32.itemsize, read_at(raw, at, _INT32).astype(np.int64)
