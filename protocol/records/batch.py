"""A format 2 batch seen in place: a view, not a copy. The layout is in `layout`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.compression import DEFAULT_RATIO, decompress
from protocol.records.crc import crc32c
from protocol.records.layout import (
    ATTRIBUTES_POSITION,
    BASE_SEQUENCE_POSITION,
    BASE_TIMESTAMP_POSITION,
    BATCH_END,
    CHECKED_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    ENTRY_OVERHEAD,
    HEADER,
    HEADER_SIZE,
    INT16,
    INT32,
    INT64,
    LAST_OFFSET_DELTA_POSITION,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    RECORD_COUNT_POSITION,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    UINT32,
)
from protocol.records.record import ANY_HEADERS, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.records.layout import Header
    from protocol.records.record import Record

MAX_DECOMPRESSED_BYTES = 134_217_728
"""Most bytes a batch may expand to where no setting says it (max.decompressed.batch.bytes)."""


class Batch:
    """One format 2 batch at the start of `view`, which may go on after it.

    The view must hold the whole batch (see `walk`), and be writable where the batch is changed.
    Properties read the bytes each time; code that needs many fields unpacks `header()` once.
    """

    __slots__ = ("view",)

    def __init__(self, view: memoryview) -> None:
        self.view = view

    def header(self) -> Header:
        """All fields at once, in the order of `layout`."""
        fields: Header = HEADER.unpack_from(self.view, 0)
        return fields

    @property
    def base_offset(self) -> int:
        """The offset of the first record as first written."""
        value: int = INT64.unpack_from(self.view, 0)[0]
        return value

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        length: int = INT32.unpack_from(self.view, LENGTH_POSITION)[0]
        return length + ENTRY_OVERHEAD

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that stored the batch; whatever a producer put there before."""
        value: int = INT32.unpack_from(self.view, LEADER_EPOCH_POSITION)[0]
        return value

    @property
    def magic(self) -> int:
        """2, unless the view does not hold a batch of this format."""
        return self.view[MAGIC_POSITION]

    @property
    def crc(self) -> int:
        """The checksum that the batch states."""
        value: int = UINT32.unpack_from(self.view, CRC_POSITION)[0]
        return value

    @property
    def attributes(self) -> int:
        """All 16 bits of them."""
        value: int = INT16.unpack_from(self.view, ATTRIBUTES_POSITION)[0]
        return value

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5..7 mean nothing."""
        return self.view[ATTRIBUTES_POSITION + 1] & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return 1 if self.view[ATTRIBUTES_POSITION + 1] & TIMESTAMP_TYPE_BIT else 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.view[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker that clients step over."""
        return bool(self.view[ATTRIBUTES_POSITION + 1] & CONTROL_BIT)

    @property
    def last_offset_delta(self) -> int:
        """Last offset minus base offset; kept by compaction."""
        value: int = INT32.unpack_from(self.view, LAST_OFFSET_DELTA_POSITION)[0]
        return value

    @property
    def last_offset(self) -> int:
        """The offset of the last record as first written."""
        base_offset, delta = BATCH_END.unpack_from(self.view, 0)
        total: int = base_offset + delta
        return total

    @property
    def base_timestamp(self) -> int:
        """The time that record timestamps are relative to, in ms."""
        value: int = INT64.unpack_from(self.view, BASE_TIMESTAMP_POSITION)[0]
        return value

    @property
    def max_timestamp(self) -> int:
        """The largest record timestamp, or the time of the append, in ms."""
        value: int = INT64.unpack_from(self.view, MAX_TIMESTAMP_POSITION)[0]
        return value

    @property
    def producer_id(self) -> int:
        """-1 for none."""
        value: int = INT64.unpack_from(self.view, PRODUCER_ID_POSITION)[0]
        return value

    @property
    def producer_epoch(self) -> int:
        """-1 for none; means something only with a producer id."""
        value: int = INT16.unpack_from(self.view, PRODUCER_EPOCH_POSITION)[0]
        return value

    @property
    def base_sequence(self) -> int:
        """The sequence of the first record, -1 for none."""
        value: int = INT32.unpack_from(self.view, BASE_SEQUENCE_POSITION)[0]
        return value

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record: after 2147483647 comes 0. -1 without a producer."""
        base = self.base_sequence
        return base if base < 0 else (base + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def record_count(self) -> int:
        """Records that the batch claims to hold."""
        value: int = INT32.unpack_from(self.view, RECORD_COUNT_POSITION)[0]
        return value

    def checksum(self) -> int:
        """CRC-32C over the bytes as they are."""
        return crc32c(self.view[CHECKED_POSITION : self.size])

    def is_intact(self) -> bool:
        """Whether the stated checksum is that of the bytes."""
        return self.checksum() == self.crc

    def place(self, base_offset: int, leader_epoch: int) -> None:
        """Give the batch its offsets. Both fields lie before the checksum's reach."""
        INT64.pack_into(self.view, 0, base_offset)
        INT32.pack_into(self.view, LEADER_EPOCH_POSITION, leader_epoch)

    def stamp_log_append_time(self, now_ms: int) -> Header:
        """Make `now_ms` the timestamp of every record and return the new header.

        This writes the type bit, the max timestamp and the checksum; the records, compressed or
        not, stay as they are (KIP-32). Whoever appends to a topic of LogAppendTime calls it after
        `validate.quick_header` and hands the returned header to the log; `prepare` does it itself.
        """
        if self.timestamp_type and self.max_timestamp == now_ms:
            return self.header()
        return self.rewrite(self.attributes | TIMESTAMP_TYPE_BIT, now_ms)

    def rewrite(self, attributes: int, max_timestamp: int) -> Header:
        """Write both fields, make the checksum fit again and return the new header."""
        INT16.pack_into(self.view, ATTRIBUTES_POSITION, attributes)
        INT64.pack_into(self.view, MAX_TIMESTAMP_POSITION, max_timestamp)
        UINT32.pack_into(self.view, CRC_POSITION, self.checksum())
        return self.header()

    def payload(self, *, limit: int = MAX_DECOMPRESSED_BYTES, ratio: int = DEFAULT_RATIO) -> bytes:
        """The records' bytes, decompressed. Raises InvalidRecord as `compression.decompress` does.

        `limit` bounds the expanded size in bytes (max.decompressed.batch.bytes), and so does
        `ratio`, by how many times it is that of the compressed bytes (max.decompression.ratio).
        """
        body = self.view[HEADER_SIZE : self.size]
        codec = self.codec
        if not codec or not self.record_count:
            return bytes(body)
        return decompress(codec, body, limit=limit, ratio=ratio)

    def records(
        self,
        *,
        limit: int = MAX_DECOMPRESSED_BYTES,
        ratio: int = DEFAULT_RATIO,
        headers_max: int = ANY_HEADERS,
    ) -> Iterator[Record]:
        """The records, one after the other.

        Raises InvalidRecord when the payload does not decompress, expands beyond what `payload` is
        told or is not what the header says, or one has more than `headers_max` headers; records
        before the fault have been yielded by then.
        """
        payload = self.payload(limit=limit, ratio=ratio)
        return read_records(payload, self.header(), headers_max=headers_max)
