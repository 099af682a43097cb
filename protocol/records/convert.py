"""The conversion of stored entries to a format that their reader knows (records.md 8.2, 8.3).

Stored                 Becomes
batch, no codec        plain messages
batch with a codec     one wrapper of the same codec, with all records of the batch
zstd batch             the same with gzip; for readers of format 2 a batch with gzip
run of plain messages  plain messages
wrapper                one wrapper of the same codec

For a reader of format 2 alone, plain messages and wrappers become batches, in the codec of the
wrapper: one of all neighbours with consecutive offsets, and of one time where the broker gave it.

Offsets never change, holes stay holes. Headers and producer fields have no place in the older
formats, nor have timestamps in format 0. Inside a wrapper of format 1 offsets count from the first
record, and the wrapper has the offset of the last one; in format 0 all of them are absolute.
Batches of LogAppendTime give messages of that type and time. Key and value stay null or empty.

The checksum of what is stored is compared first: conversion makes a new one, which must not vouch
for damaged bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import KafkaError
from protocol.records.batch import Batch
from protocol.records.builder import BatchBuilder
from protocol.records.compression import GZIP, ZSTD, compress, decompress
from protocol.records.crc import crc32c
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES_POSITION,
    CHECKED_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    ENTRY,
    ENTRY_OVERHEAD,
    HEADER_SIZE,
    INT16,
    INT32,
    INT64,
    LENGTH_POSITION,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    UINT32,
)
from protocol.records.legacy import Message, read_messages, wrap_messages
from protocol.records.record import INT64_MAX, INT64_MIN, read_fields
from protocol.records.transcode import (
    messages_from_messages,
    messages_from_records,
    scan_messages,
    skip_messages,
)
from protocol.records.walk import walk

if TYPE_CHECKING:
    from protocol.records.loops import MessageScan

MARK_BYTES = 16_384
"""About so far apart are the places that a run of plain messages remembers."""

SENT_GZIP_LEVEL = 1
"""Level for gzip that is sent and not stored: half the time for a tenth more bytes."""

INT32_MAX = 2**31 - 1


class Form(IntEnum):
    """The target of a conversion. Plain: without wrappers, for small fetch sizes."""

    FORMAT_0 = 0
    FORMAT_1 = 1
    FORMAT_0_PLAIN = 2
    FORMAT_1_PLAIN = 3
    GZIPPED = 4
    FORMAT_2 = 5

    @property
    def magic(self) -> int:
        """The format of what comes out."""
        return 2 if self >= Form.GZIPPED else self & 1

    @property
    def is_plain(self) -> bool:
        return self in (Form.FORMAT_0_PLAIN, Form.FORMAT_1_PLAIN)

    @property
    def plain(self) -> Form:
        """The same format without wrappers."""
        return Form(self | 2)


class ExpansionLimits(NamedTuple):
    """The limits of what one entry may expand to: bytes (max.decompressed.batch.bytes), and times
    its size (max.decompression.ratio)."""

    bytes: int
    ratio: int


class Converted:
    """Whole entries for an older reader, with ascending offsets. `data` is never empty.

    `fault` is what is wrong with the stored bytes behind those that were converted; None if they
    were all converted.
    """

    __slots__ = ("_mark_offsets", "_mark_positions", "data", "fault", "last_offset", "record_count")

    def __init__(
        self, data: bytes, *, last_offset: int, record_count: int, is_run: bool = False
    ) -> None:
        self.data = data
        self.last_offset = last_offset
        self.record_count = record_count
        self.fault: KafkaError | None = None
        self._mark_offsets: list[int] = []
        self._mark_positions: list[int] = []
        if is_run:
            self._set_marks()

    def _set_marks(self) -> None:
        """Remember where some messages are, evenly over the offsets, so that to cut a run for a
        reader never costs a walk over all of it."""
        view = memoryview(self.data)
        (offset,) = INT64.unpack_from(view)
        step = max(1, (self.last_offset - offset) * MARK_BYTES // len(view))
        position = 0
        while position < len(view):
            self._mark_offsets.append(offset)
            self._mark_positions.append(position)
            position += skip_messages(view[position:], offset + step)
            if position < len(view):
                (offset,) = INT64.unpack_from(view, position)

    def position_of(self, offset: int) -> int:
        """Position of the first entry with a record at or above `offset`; the size if none."""
        if offset > self.last_offset:
            return len(self.data)
        mark = bisect_right(self._mark_offsets, offset) - 1
        if mark < 0:
            return 0
        position = self._mark_positions[mark]
        return position + skip_messages(memoryview(self.data)[position:], offset)

    def cut(self, position: int, max_bytes: int) -> int:
        """The end of the last entry within `max_bytes` from the one at `position`; `position`
        itself when not even that one fits."""
        data, limit = self.data, position + max_bytes
        if limit >= len(data):
            return len(data)
        mark = bisect_right(self._mark_positions, limit) - 1
        if mark >= 0:
            position = max(position, self._mark_positions[mark])
        while True:
            end = position + ENTRY_OVERHEAD + INT32.unpack_from(data, position + LENGTH_POSITION)[0]
            if end > limit:
                return position
            position = end


def convert(stored: bytes, form: Form, limits: ExpansionLimits) -> Converted:
    """One batch, one wrapper, or a run of plain messages, in a form that its reader knows.

    What is stored is of format 1 or 2; for `Form.FORMAT_2`, of 0 or 1. A batch must have records,
    and be no control batch: those are not for such readers at all. Raises CorruptBatch for damage
    (wrong checksum, lengths that do not fit), InvalidRecord for content that cannot be converted,
    also when it expands beyond `limits`.
    """
    view = memoryview(stored)
    if view[MAGIC_POSITION] == 2:
        batch = Batch(view)
        if not batch.is_intact():
            raise CorruptBatch(f"batch states checksum {batch.crc:#010x}, its bytes have another")
        return _gzipped(batch, limits) if form is Form.GZIPPED else _older(batch, form, limits)
    if form is Form.FORMAT_2:
        return _batches(view, limits)
    message = Message(view)
    return _from_wrapper(message, form, limits) if message.codec else _from_run(view)


def _older(batch: Batch, form: Form, limits: ExpansionLimits) -> Converted:
    codec, magic = batch.codec, form.magic
    base_offset, count = batch.base_offset, batch.record_count
    if count < 1:
        raise InvalidRecord(f"batch claims {count} records, wanted at least one")
    payload = _payload(batch, limits)
    stamped = bool(magic and batch.timestamp_type)
    wrapped = codec and not form.is_plain
    # Offsets in a wrapper of format 1 count from the first record that is still there.
    first_offset = 0
    if wrapped and magic:
        first_offset = base_offset + next(read_fields(payload, count))[1]
    run, kept = messages_from_records(
        payload,
        count,
        base_offset=base_offset - first_offset,
        base_timestamp=batch.base_timestamp,
        magic=magic,
        append_time_ms=batch.max_timestamp if stamped else None,
        min_offset=INT64_MIN,
    )
    last_offset = _last_offset(run, batch.last_offset - first_offset) + first_offset
    if not wrapped:
        return Converted(run, last_offset=last_offset, record_count=kept, is_run=True)
    wrapper = wrap_messages(
        run,
        magic=magic,
        codec=GZIP if codec == ZSTD else codec,
        offset=last_offset,
        timestamp_ms=batch.max_timestamp,
        stamped=stamped,
        level=SENT_GZIP_LEVEL if codec in (GZIP, ZSTD) else None,
    )
    return Converted(wrapper, last_offset=last_offset, record_count=kept)


def _payload(batch: Batch, limits: ExpansionLimits) -> bytes:
    body = batch.view[HEADER_SIZE : batch.size]
    if not batch.codec:
        return bytes(body)
    return decompress(batch.codec, body, limit=limits.bytes, ratio=limits.ratio)


def _last_offset(run: bytes, expected: int) -> int:
    """The offset of the last message of a run; quick if it is the one that is expected."""
    position = skip_messages(run, expected)
    if position < len(run):
        offset, length = ENTRY.unpack_from(run, position)
        if position + length + ENTRY_OVERHEAD == len(run):
            return int(offset)
    for position, _, _ in walk(run):
        (offset,) = INT64.unpack_from(run, position)
    return int(offset)


def _from_run(view: memoryview) -> Converted:
    """Plain messages of format 1 as format 0, up to the first one that is damaged."""
    fault = None
    try:
        scan = _scan(view)
    except KafkaError as error:
        sound = _sound_bytes(view)
        if not sound:
            raise
        fault, view = error, view[:sound]
        scan = _scan(view)
    run, count = messages_from_messages(
        view,
        source_magic=1,
        magic=0,
        offset=0,
        renumber=False,
        append_time_ms=None,
        min_offset=INT64_MIN,
    )
    converted = Converted(run, last_offset=scan.last_offset, record_count=count, is_run=True)
    converted.fault = fault
    return converted


def _sound_bytes(view: memoryview) -> int:
    """Bytes of messages before the first damaged one."""
    end = 0
    try:
        for position, size, _ in walk(view):
            _scan(view[position : position + size])
            end = position + size
    except KafkaError:
        pass
    return end


def _scan(data: bytes | memoryview) -> MessageScan:
    return scan_messages(
        data, 1, max_entry_bytes=INT32_MAX, oldest_ms=INT64_MIN, newest_ms=INT64_MAX
    )


def _from_wrapper(wrapper: Message, form: Form, limits: ExpansionLimits) -> Converted:
    """A wrapper of format 1 as one of format 0, or as plain messages."""
    if not wrapper.is_intact():
        raise CorruptBatch(f"wrapper states checksum {wrapper.crc:#010x}, its bytes have another")
    payload = wrapper.payload(limit=limits.bytes, ratio=limits.ratio)
    scan = _scan(payload)
    if scan.codecs != 1:
        raise InvalidRecord(f"wrapper holds {scan.count} messages, wanted plain ones, at least one")
    # A wrapper with offset 0 counts from 0, whatever is inside (records.md 2.2).
    base_offset = wrapper.offset - scan.last_offset if wrapper.offset else 0
    if base_offset < 0:
        raise InvalidRecord(f"wrapper has offset {wrapper.offset}, inside it is {scan.last_offset}")
    run, count = messages_from_messages(
        payload,
        source_magic=1,
        magic=0,
        offset=base_offset,
        renumber=False,
        append_time_ms=None,
        min_offset=INT64_MIN,
    )
    last_offset = base_offset + scan.last_offset
    if form is Form.FORMAT_0_PLAIN:
        return Converted(run, last_offset=last_offset, record_count=count, is_run=True)
    data = wrap_messages(
        run,
        magic=0,
        codec=wrapper.codec,
        offset=last_offset,
        timestamp_ms=NO_TIMESTAMP,
        level=SENT_GZIP_LEVEL if wrapper.codec == GZIP else None,
    )
    return Converted(data, last_offset=last_offset, record_count=count)


def _batches(view: memoryview, limits: ExpansionLimits) -> Converted:
    """A wrapper, or plain messages up to the first one that is damaged, as batches."""
    codec = Message(view).codec
    stretches: list[_Stretch] = []
    fault = None
    try:
        for position, size, _ in walk(view):
            entry = view[position : position + size]
            message = Message(entry)
            stamp_ms = message.timestamp_ms if message.timestamp_type else None
            for record in read_messages(entry, limit=limits.bytes, ratio=limits.ratio):
                if not (stretches and stretches[-1].continues(record.offset, stamp_ms)):
                    stretches.append(_Stretch(record.offset, stamp_ms))
                stretches[-1].builder.append(record.timestamp_ms, record.key, record.value)
    except KafkaError as error:
        if not stretches:
            raise
        fault = error
    converted = Converted(
        b"".join(stretch.batch(codec) for stretch in stretches),
        last_offset=stretches[-1].end_offset - 1,
        record_count=sum(stretch.builder.record_count for stretch in stretches),
    )
    converted.fault = fault
    return converted


class _Stretch:
    """Records that can be one batch: consecutive offsets, and one time if the broker gave it."""

    def __init__(self, base_offset: int, stamp_ms: int | None) -> None:
        self.builder = BatchBuilder()
        self._base_offset = base_offset
        self._stamp_ms = stamp_ms

    @property
    def end_offset(self) -> int:
        return self._base_offset + self.builder.record_count

    def continues(self, offset: int, stamp_ms: int | None) -> bool:
        return (offset, stamp_ms) == (self.end_offset, self._stamp_ms)

    def batch(self, codec: int) -> bytes:
        return self.builder.build(
            base_offset=self._base_offset, codec=codec, log_append_time_ms=self._stamp_ms
        )


def _gzipped(batch: Batch, limits: ExpansionLimits) -> Converted:
    """The batch with gzip in place of its codec, for readers of format 2 that know no zstd."""
    payload = compress(GZIP, _payload(batch, limits), level=SENT_GZIP_LEVEL)
    data = bytearray(batch.view[:HEADER_SIZE])
    data += payload
    INT32.pack_into(data, LENGTH_POSITION, len(data) - ENTRY_OVERHEAD)
    INT16.pack_into(data, ATTRIBUTES_POSITION, batch.attributes & ~CODEC_MASK | GZIP)
    UINT32.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[CHECKED_POSITION:]))
    return Converted(
        bytes(data), last_offset=batch.last_offset, record_count=max(batch.record_count, 0)
    )
