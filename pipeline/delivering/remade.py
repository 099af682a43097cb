"""Batches that are made anew, of any stored format: dense, with their times, in their codec.

A broker takes neither holes in a batch nor a producer's LogAppendTime, and Kafka 4 no messages of
formats 0 and 1. The same input always gives the same bytes. Records without headers pass through
the compiled loops of `protocol.records`, those with headers through the plain ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pipeline.columns.payloads import ANY_RATIO
from protocol.records.batch import Batch
from protocol.records.builder import BatchBuilder, wrap_records
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import CODEC_MASK, HEADER, NO_TIMESTAMP
from protocol.records.legacy import Message, wrap_messages
from protocol.records.record import INT64_MAX, INT64_MIN
from protocol.records.transcode import (
    messages_from_messages,
    messages_from_records,
    records_from_messages,
    scan_messages,
    scan_records,
)
from protocol.records.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from protocol.records.record import Record

RUN_OFFSETS = 1_024
"""A run of plain messages ends before every offset that is a multiple of this ..."""
RUN_BYTES = 256 * 1024
"""... and before this many bytes, or what the destination takes if that is less."""

ANY_BYTES = 2**31 - 1


@dataclass(frozen=True)
class Selection:
    """The records wanted: offsets from `first` up to and without `end`, times (ms) from `since_ms`
    up to and without `until_ms`. A record without a time is in no stretch of time."""

    first: int = 0
    end: int = INT64_MAX
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def timed(self) -> bool:
        return self.since_ms is not None or self.until_ms is not None

    def has(self, offset: int, timestamp_ms: int) -> bool:
        if not self.first <= offset < self.end:
            return False
        if not self.timed:
            return True
        return (
            timestamp_ms != NO_TIMESTAMP
            and (self.since_ms is None or timestamp_ms >= self.since_ms)
            and (self.until_ms is None or timestamp_ms < self.until_ms)
        )

    def may_have(self, earliest_ms: int | None, latest_ms: int | None) -> bool:
        """Whether a file with these bounds of its timestamps, as far as they are known, need be
        opened."""
        early = self.since_ms is not None and latest_ms is not None and latest_ms < self.since_ms
        late = (
            self.until_ms is not None and earliest_ms is not None and earliest_ms >= self.until_ms
        )
        return not early and not late

    def has_all(self, first: int, last: int) -> bool:
        """Whether an entry with these offsets need not be opened."""
        return self.first <= first and last < self.end and not self.timed


EVERYTHING = Selection()


class MessageRun:
    """Plain messages of one format, one after the other, that are to be sent together."""

    def __init__(self, message: Message, largest: int) -> None:
        self.magic = message.magic
        # A record in a batch is never larger than the message that it was; the header comes on top.
        self._limit = min(RUN_BYTES, largest - HEADER.size)
        self.data = bytearray()
        self.keys: list[tuple[int, int]] = []
        self.last = -1
        self._first = message.offset
        self.max_timestamp = NO_TIMESTAMP
        self.add(message)

    @property
    def records(self) -> int:
        return len(self.keys)

    def takes(self, message: Message) -> bool:
        return (
            message.magic == self.magic
            and message.offset // RUN_OFFSETS == self._first // RUN_OFFSETS
            and len(self.data) + message.size <= self._limit
        )

    def add(self, message: Message) -> None:
        self.data += message.view[: message.size]
        self.keys.append((message.size, message.crc))
        self.last = message.offset
        self.max_timestamp = max(self.max_timestamp, message.timestamp_ms)

    def as_batch(self) -> bytes:
        """One batch without a codec."""
        return _batch_of_messages(bytes(self.data), self.magic, 0)


class Opened(NamedTuple):
    """The content of a wrapper."""

    messages: bytes
    magic: int
    codec: int
    count: int  # type: ignore[assignment]  # tuples have a method of this name
    first: int
    """Absolute, as `last`."""
    last: int
    shift: int
    """What the offsets inside are to be raised by."""
    append_time_ms: int | None
    max_timestamp: int


def opened(wrapper: Message) -> Opened:
    """Raises InvalidRecord, CorruptBatch: also for a wrong checksum inside."""
    payload = wrapper.payload(ratio=ANY_RATIO)
    scan = scan_messages(
        payload, wrapper.magic, max_entry_bytes=ANY_BYTES, oldest_ms=INT64_MIN, newest_ms=INT64_MAX
    )
    if scan.codecs != 1:
        raise InvalidRecord(f"wrapper holds {scan.count} messages, wanted plain ones, at least one")
    # A wrapper of format 1 with offset 0 counts from 0, as several clients leave it so.
    shift = wrapper.offset - scan.last_offset if wrapper.magic and wrapper.offset else 0
    if shift < 0:
        raise InvalidRecord(f"wrapper has offset {wrapper.offset}, inside it is {scan.last_offset}")
    append_time_ms = wrapper.timestamp_ms if wrapper.timestamp_type else None
    return Opened(
        payload[: scan.end],
        wrapper.magic,
        wrapper.codec,
        scan.count,
        int.from_bytes(payload[:8], "big", signed=True) + shift,
        scan.last_offset + shift,
        shift,
        append_time_ms,
        scan.max_timestamp if append_time_ms is None else append_time_ms,
    )


def batch_of_wrapper(opened: Opened, wanted: Selection) -> bytes | None:
    """One batch with the same codec; None if nothing of it is wanted."""
    messages = opened.messages
    if not wanted.has_all(opened.first, opened.last):
        messages = _chosen_messages(opened, wanted)
        if not messages:
            return None
    if opened.append_time_ms is not None:
        messages, _ = messages_from_messages(
            messages,
            source_magic=1,
            magic=1,
            offset=0,
            renumber=True,
            append_time_ms=opened.append_time_ms,
            min_offset=INT64_MIN,
        )
    return _batch_of_messages(messages, opened.magic, opened.codec)


def dense_wrapper(opened: Opened) -> bytes:
    """A wrapper of format 1 with all records of one whose offsets inside have holes (KIP-31 lets
    compaction leave them), counting from 0: no broker takes another from a producer."""
    messages, count = messages_from_messages(
        opened.messages,
        source_magic=1,
        magic=1,
        offset=0,
        renumber=True,
        append_time_ms=opened.append_time_ms,
        min_offset=INT64_MIN,
    )
    return wrap_messages(
        messages,
        magic=1,
        codec=opened.codec,
        offset=count - 1,
        timestamp_ms=opened.max_timestamp,
        stamped=opened.append_time_ms is not None,
    )


def _chosen_messages(opened: Opened, wanted: Selection) -> bytes:
    view = memoryview(opened.messages)
    chosen = []
    for position, size, _ in walk(view):
        message = Message(view[position : position + size])
        time = message.timestamp_ms if opened.append_time_ms is None else opened.append_time_ms
        if wanted.has(message.offset + opened.shift, time):
            chosen.append(message.view)
    return b"".join(chosen)


def _batch_of_messages(messages: bytes, magic: int, codec: int) -> bytes:
    records, count, base_timestamp, max_timestamp, end = records_from_messages(
        messages, 0, magic=magic, max_bytes=ANY_BYTES
    )
    if end != len(messages):
        raise CorruptBatch(f"messages of {len(messages)} bytes are whole only up to byte {end}")
    return bytes(
        wrap_records(
            records,
            count,
            attributes=codec,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
        )
    )


def batch_of_batch(view: memoryview, wanted: Selection) -> bytes | None:
    """The wanted records of a batch with the same codec, dense, each with its time; None if there
    are none. Raises InvalidRecord."""
    batch = Batch(view)
    payload = batch.payload(ratio=ANY_RATIO)
    append_time_ms = batch.max_timestamp if batch.timestamp_type else None
    codec = batch.attributes & CODEC_MASK
    count, base_timestamp = batch.record_count, batch.base_timestamp
    scan = scan_records(payload, count, base_timestamp, oldest_ms=INT64_MIN, newest_ms=INT64_MAX)
    if scan.has_headers or not wanted.has_all(batch.base_offset, batch.last_offset):
        return _built(
            (
                record
                for record in batch.records(ratio=ANY_RATIO)
                if wanted.has(record.offset, record.timestamp_ms)
            ),
            codec,
        )
    messages, _ = messages_from_records(
        payload,
        count,
        base_offset=0,
        base_timestamp=base_timestamp,
        magic=1,
        append_time_ms=append_time_ms,
        min_offset=INT64_MIN,
    )
    return _batch_of_messages(messages, 1, codec)


def _built(records: Iterable[Record], codec: int) -> bytes | None:
    builder = BatchBuilder()
    for record in records:
        builder.append(record.timestamp_ms, record.key, record.value, record.headers)
    return builder.build(codec=codec) if builder.record_count else None
