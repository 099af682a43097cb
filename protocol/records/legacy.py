"""Messages of formats 0 and 1: seen in place, read as a consumer does, and made.

The layout is in `layout`. These are the slow and obvious loops, one object per record. What is done
to every produced or fetched record is in `transcode`; the tests hold it against this.

A wrapper is a message with a codec. Its value is a compressed set of messages of its own format,
of which none is a wrapper. Its offset is that of its last message. The offsets inside are absolute
in format 0. In format 1 they count from wherever the first producer began, so that a broker can
place the wrapper without opening it (KIP-31): only their distances to the last one mean anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.batch import MAX_DECOMPRESSED_BYTES
from protocol.records.compression import DEFAULT_RATIO, compress, decompress
from protocol.records.crc import crc32
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    CODEC_MASK,
    ENTRY_OVERHEAD,
    INT32,
    INT64,
    KEY_POSITIONS,
    LENGTH_POSITION,
    MAGIC_POSITION,
    MESSAGE_0,
    MESSAGE_1,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CHECKED_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_TIMESTAMP_POSITION,
    MIN_MESSAGE_LENGTHS,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    UINT32,
)
from protocol.records.record import Record
from protocol.records.transcode import place_messages
from protocol.records.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from protocol.records.builder import RecordFields

_NULL = INT32.pack(-1)


class Message:
    """One message of format 0 or 1 at the start of `view`, which may go on after it.

    The view must hold the whole message, as `walk` reports it. Raises CorruptBatch when the message
    is shorter than its format's shortest; `key` and `value` do when a length runs past its end.
    """

    __slots__ = ("magic", "size", "view")

    def __init__(self, view: memoryview) -> None:
        length: int = INT32.unpack_from(view, LENGTH_POSITION)[0]
        self.magic: int = view[MAGIC_POSITION]
        if self.magic > 1:
            raise CorruptBatch(f"message of format {self.magic}, wanted 0 or 1")
        if length < MIN_MESSAGE_LENGTHS[self.magic]:
            raise CorruptBatch(
                f"message of format {self.magic} has size {length}, "
                f"wanted at least {MIN_MESSAGE_LENGTHS[self.magic]}"
            )
        self.size = length + ENTRY_OVERHEAD
        """Bytes of the whole entry."""
        self.view = view

    @property
    def offset(self) -> int:
        """Bytes 0..7; of a wrapper, the offset of its last message."""
        value: int = INT64.unpack_from(self.view, 0)[0]
        return value

    @property
    def crc(self) -> int:
        """The checksum that the message states."""
        value: int = UINT32.unpack_from(self.view, MESSAGE_CRC_POSITION)[0]
        return value

    @property
    def attributes(self) -> int:
        """All 8 bits of them."""
        return self.view[MESSAGE_ATTRIBUTES_POSITION]

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4; zstd (4) is not allowed and 5..7 mean nothing."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime. Format 0 knows neither and gives 0."""
        return 1 if self.magic and self.attributes & TIMESTAMP_TYPE_BIT else 0

    @property
    def timestamp_ms(self) -> int:
        """Bytes 18..25 of format 1; -1 in format 0."""
        if not self.magic:
            return NO_TIMESTAMP
        value: int = INT64.unpack_from(self.view, MESSAGE_TIMESTAMP_POSITION)[0]
        return value

    @property
    def key(self) -> bytes | None:
        """The key. That of a wrapper means nothing."""
        return self._field(KEY_POSITIONS[self.magic])[0]

    @property
    def value(self) -> bytes | None:
        """The value; of a wrapper, the compressed set."""
        return self._field(self._field(KEY_POSITIONS[self.magic])[1])[0]

    def _field(self, position: int) -> tuple[bytes | None, int]:
        """The nullable bytes at `position`, and the position after them."""
        start = position + INT32.size
        if start > self.size:
            raise CorruptBatch(f"message of {self.size} bytes ends before the length of its value")
        length: int = INT32.unpack_from(self.view, position)[0]
        if length < 0:
            return None, start
        if length > self.size - start:
            raise CorruptBatch(
                f"message of {self.size} bytes has a field of {length} bytes at byte {start}"
            )
        return bytes(self.view[start : start + length]), start + length

    def checksum(self) -> int:
        """CRC-32 over the bytes as they are."""
        return crc32(self.view[MESSAGE_CHECKED_POSITION : self.size])

    def is_intact(self) -> bool:
        """Whether the stated checksum is that of the bytes."""
        return self.checksum() == self.crc

    def payload(self, *, limit: int = MAX_DECOMPRESSED_BYTES, ratio: int = DEFAULT_RATIO) -> bytes:
        """The set inside a wrapper, decompressed; of a plain message, its value.

        `limit` and `ratio` bound its size as in `compression.decompress`, which also says what
        InvalidRecord is raised for. So is one for a null value.
        """
        value = self.value
        if value is None:
            raise InvalidRecord(f"message with codec {self.codec} has a null value, wanted a set")
        return decompress(self.codec, value, limit=limit, ratio=ratio, magic=self.magic)


def read_messages(
    buffer: bytes | bytearray | memoryview,
    *,
    limit: int = MAX_DECOMPRESSED_BYTES,
    ratio: int = DEFAULT_RATIO,
) -> Iterator[Record]:
    """The records of a run of format 0 and 1 entries as a consumer sees them, wrappers opened.

    An entry cut at the end of the run, or of a wrapper's set, is ignored. A message of format 0 has
    timestamp -1. One inside a wrapper of type LogAppendTime has the wrapper's, and otherwise its
    own, -1 included (KIP-32). `limit` and `ratio` bound each wrapper's set as `Message.payload`.

    Raises CorruptBatch for a malformed entry, a wrong checksum, outside or inside, and an entry of
    format 2. Raises InvalidRecord for a wrapper that does not decompress, holds no whole message,
    holds a wrapper or another format, or has an offset below its last message's that is not 0;
    records before the fault have been yielded by then, but none of the wrapper at fault.
    """
    view = memoryview(buffer)
    for position, _, _ in walk(view):
        message = _intact(view, position)
        if message.codec:
            yield from _open(message, limit, ratio)
        else:
            yield Record(message.offset, message.timestamp_ms, message.key, message.value)


def _intact(view: memoryview, position: int) -> Message:
    message = Message(view[position:])
    if not message.is_intact():
        raise CorruptBatch(
            f"message at position {position} states checksum {message.crc:#010x}, "
            f"its bytes have {message.checksum():#010x}"
        )
    return message


def _open(wrapper: Message, limit: int, ratio: int) -> list[Record]:
    view = memoryview(wrapper.payload(limit=limit, ratio=ratio))
    records: list[Record] = []
    for position, _, magic in walk(view):
        if magic != wrapper.magic:
            raise InvalidRecord(f"wrapper of format {wrapper.magic} holds one of format {magic}")
        message = _intact(view, position)
        if message.codec:
            raise InvalidRecord(f"wrapper holds another, with codec {message.codec}")
        timestamp_ms = wrapper.timestamp_ms if wrapper.timestamp_type else message.timestamp_ms
        records.append(Record(message.offset, timestamp_ms, message.key, message.value))
    if not records:
        raise InvalidRecord(f"wrapper holds no whole message in {len(view)} bytes")
    # Several clients leave the offset of a wrapper at 0. Then what is inside counts from 0.
    if wrapper.magic and wrapper.offset:
        base_offset = wrapper.offset - records[-1].offset
        if base_offset < 0:
            raise InvalidRecord(
                f"wrapper has offset {wrapper.offset}, its last message {records[-1].offset}"
            )
        for record in records:
            record.offset += base_offset
    return records


def build_messages(
    records: Iterable[RecordFields],
    *,
    magic: int,
    codec: int = 0,
    base_offset: int = 0,
    offsets: Sequence[int] | None = None,
    append_time_ms: int | None = None,
    level: int | None = None,
) -> bytes:
    """A set of format `magic` with (timestamp in ms, key, value, headers): one wrapper if there is
    a codec, otherwise one message per record.

    The records get `base_offset` and those after it, or the given `offsets`, as many as records and
    ascending. With `append_time_ms` everything of format 1 has that timestamp and the type
    LogAppendTime. Format 0 drops timestamps, and both drop headers. `level` as in `compress`.

    Raises ValueError for a codec without records, InvalidRecord for zstd.
    """
    rows = list(records)
    if offsets is None:
        offsets = range(base_offset, base_offset + len(rows))
    if not rows:
        if codec:
            raise ValueError("a wrapper needs at least one message")
        return b""
    relative_to = offsets[0] if codec and magic else 0
    stamped = append_time_ms is not None
    max_timestamp = NO_TIMESTAMP
    out = bytearray()
    for offset, (timestamp_ms, key, value, _) in zip(offsets, rows, strict=True):
        if append_time_ms is not None:
            timestamp_ms = append_time_ms
        max_timestamp = max(max_timestamp, timestamp_ms)
        out += _message(magic, 0, offset - relative_to, timestamp_ms, stamped, key, value)
    if not codec:
        return bytes(out)
    return wrap_messages(
        out,
        magic=magic,
        codec=codec,
        offset=offsets[-1],
        timestamp_ms=max_timestamp,
        stamped=stamped,
        level=level,
    )


def wrap_messages(
    payload: bytes | bytearray | memoryview,
    *,
    magic: int,
    codec: int,
    offset: int,
    timestamp_ms: int = NO_TIMESTAMP,
    stamped: bool = False,
    level: int | None = None,
) -> bytes:
    """One wrapper around the plain messages of `payload`, which are of the same format.

    `offset` is that of the last one, absolute. Format 1 has `timestamp_ms`, and with `stamped` the
    type LogAppendTime; format 0 has neither. `level` as in `compress`. Raises InvalidRecord for
    zstd.
    """
    compressed = compress(codec, payload, magic=magic, level=level)
    return _message(magic, codec, offset, timestamp_ms, stamped, None, compressed)


def _message(
    magic: int,
    codec: int,
    offset: int,
    timestamp_ms: int,
    stamped: bool,
    key: bytes | None,
    value: bytes | None,
) -> bytes:
    size = MIN_MESSAGE_LENGTHS[magic] + len(key or b"") + len(value or b"")
    if magic:
        attributes = codec | TIMESTAMP_TYPE_BIT if stamped else codec
        start = bytearray(MESSAGE_1.pack(offset, size, 0, magic, attributes, timestamp_ms))
    else:
        start = bytearray(MESSAGE_0.pack(offset, size, 0, magic, codec))
    parts: list[bytes | bytearray] = [start]
    for field in (key, value):
        if field is None:
            parts.append(_NULL)
        else:
            parts += (INT32.pack(len(field)), field)
    checksum = crc32(start[MESSAGE_CHECKED_POSITION:])
    for part in parts[1:]:
        checksum = crc32(part, checksum)
    UINT32.pack_into(start, MESSAGE_CRC_POSITION, checksum)
    return b"".join(parts)


class MessageSet:
    """A run of plain messages, or one wrapper, that is ready to be placed in a log.

    view                 all its bytes, writable
    magic                0 or 1, of every message
    compressed           whether it is one wrapper
    record_count         records in it, which is how many offsets it takes
    max_timestamp        what the time index learns, in ms; -1 for nothing
    max_timestamp_delta  the record, counted from 0, that the time index names for it: in a plain
                         set the first that has it, in a wrapper the last record (records.md 10.2)
    """

    __slots__ = (
        "compressed",
        "magic",
        "max_timestamp",
        "max_timestamp_delta",
        "record_count",
        "view",
    )

    def __init__(
        self,
        view: memoryview,
        *,
        magic: int,
        compressed: bool,
        record_count: int,
        max_timestamp: int = NO_TIMESTAMP,
        max_timestamp_delta: int = -1,
    ) -> None:
        self.view = view
        self.magic = magic
        self.compressed = compressed
        self.record_count = record_count
        self.max_timestamp = max_timestamp
        self.max_timestamp_delta = max_timestamp_delta

    @property
    def size(self) -> int:
        """Bytes of the set."""
        return len(self.view)

    def place(self, base_offset: int) -> None:
        """Give the records the offsets from `base_offset` on. No checksum covers them.

        The offsets inside a wrapper stay: those of format 1 must be 0, 1, 2, ..., and those of
        format 0 must be what they are going to be already.
        """
        if self.compressed:
            INT64.pack_into(self.view, 0, base_offset + self.record_count - 1)
        else:
            place_messages(self.view, base_offset)
