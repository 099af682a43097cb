"""Making format 2 batches, for what the broker itself writes into logs and for tests.

Produced batches are stored in the bytes they came in; only those that must be made anew (`rebuild`)
pass through here.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from protocol.records.compression import compress
from protocol.records.crc import crc32c
from protocol.records.layout import (
    ATTRIBUTES,
    CHECKED_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    ENTRY_OVERHEAD,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PRODUCER_ID,
    RECORD_COUNT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    UINT32,
)
from protocol.records.record import wrap_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    HeaderPair = tuple[str | bytes, bytes | None]
    RecordFields = tuple[int, bytes | None, bytes | None, Sequence[HeaderPair]]
    """Timestamp in ms, key, value, headers."""


NO_PRODUCER = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)


def encode_varint(number: int) -> bytes:
    """The shortest zigzag form of a signed number of up to 64 bits; varlong and varint alike."""
    bits = (number << 1) ^ (number >> 63)
    if bits < 0x80:
        return _ONE_BYTE[bits]
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


_ONE_BYTE = tuple(bytes((bits,)) for bits in range(0x80))
_NULL = encode_varint(-1)


class BatchBuilder:
    """One batch, record by record. The first record's timestamp becomes the base timestamp.

    `size` is what the batch would take uncompressed, so that a caller can stop below a limit.
    """

    __slots__ = ("_base_timestamp", "_count", "_max_timestamp", "_records")

    def __init__(self) -> None:
        self._records = bytearray()
        self._count = 0
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP

    @property
    def record_count(self) -> int:
        """Records appended so far."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes of the batch as it stands, before compression."""
        return HEADER_SIZE + len(self._records)

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[HeaderPair] = (),
    ) -> None:
        """Add a record. Header names given as str are written as UTF-8, surrogate escapes as the
        bytes they stand for."""
        if not self._count:
            self._base_timestamp = timestamp_ms
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        body = bytearray(1)
        body += encode_varint(wrap_timestamp(timestamp_ms - self._base_timestamp))
        body += encode_varint(self._count)
        _add_nullable(body, key)
        _add_nullable(body, value)
        body += _encoded_headers(headers)
        self._records += encode_varint(len(body))
        self._records += body
        self._count += 1

    def build(
        self,
        *,
        base_offset: int = 0,
        codec: int = 0,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        leader_epoch: int = NO_LEADER_EPOCH,
        transactional: bool = False,
        control: bool = False,
        log_append_time_ms: int | None = None,
    ) -> bytes:
        """The bytes of the batch. With `log_append_time_ms` its timestamp type is LogAppendTime.

        Raises ValueError when there are no records: only compaction leaves empty batches.
        """
        if not self._count:
            raise ValueError("a batch needs at least one record")
        attributes = codec
        max_timestamp = self._max_timestamp
        if transactional:
            attributes |= TRANSACTIONAL_BIT
        if control:
            attributes |= CONTROL_BIT
        if log_append_time_ms is not None:
            attributes |= TIMESTAMP_TYPE_BIT
            max_timestamp = log_append_time_ms
        return bytes(
            wrap_records(
                self._records,
                self._count,
                attributes=attributes,
                base_timestamp=self._base_timestamp,
                max_timestamp=max_timestamp,
                producer=(producer_id, producer_epoch, base_sequence),
                base_offset=base_offset,
                leader_epoch=leader_epoch,
            )
        )


@cache
def encoded_varints() -> tuple[bytes, ...]:
    """The varints of the numbers from 0 on, by these. Made when first needed, because that takes a
    few milliseconds."""
    return tuple(encode_varint(number) for number in range(1 << 13))


def batch_of_rows(rows: Sequence[RecordFields], *, codec: int = 0) -> bytearray:
    """One batch of (timestamp in ms, key, value, headers): the bytes that `BatchBuilder` makes, for
    who has thousands of records at once, in a fifth of the time.

    Raises ValueError when there are none.
    """
    if not rows:
        raise ValueError("a batch needs at least one record")
    encoded = encoded_varints()
    known = len(encoded)
    base_timestamp = rows[0][0]
    max_timestamp = NO_TIMESTAMP
    parts: list[bytes | bytearray] = []
    for index, (timestamp_ms, key, value, headers) in enumerate(rows):
        delta = timestamp_ms - base_timestamp
        moment = encoded[delta] if 0 <= delta < known else encode_varint(wrap_timestamp(delta))
        place = encoded[index] if index < known else encode_varint(index)
        if timestamp_ms > max_timestamp:
            max_timestamp = timestamp_ms
        key_size, value_size = _NULL, _NULL
        if key is not None:
            size = len(key)
            key_size = encoded[size] if size < known else encode_varint(size)
        if value is not None:
            size = len(value)
            value_size = encoded[size] if size < known else encode_varint(size)
        tail = _encoded_headers(headers) if headers else b"\0"
        body = (b"\0", moment, place, key_size, key or b"", value_size, value or b"", tail)
        record = b"".join(body)
        size = len(record)
        parts += (encoded[size] if size < known else encode_varint(size), record)
    return wrap_records(
        b"".join(parts),
        len(rows),
        attributes=codec,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
    )


def wrap_records(
    records: bytes | bytearray | memoryview,
    count: int,
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer: tuple[int, ...] = NO_PRODUCER,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    level: int | None = None,
) -> bytearray:
    """One batch around `count` uncompressed records with offset deltas 0, 1, 2, ...

    The codec is the one in `attributes`; `level` is its level, None for the codec's own default.
    Timestamps are in ms; `producer` is id, epoch and base sequence.
    """
    codec = attributes & CODEC_MASK
    batch = bytearray(HEADER_SIZE)
    batch += compress(codec, records, level=level) if codec else records
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - ENTRY_OVERHEAD,
        leader_epoch,
        2,
        0,
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        *producer,
        count,
    )
    UINT32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CHECKED_POSITION:]))
    return batch


def stamp_producer(
    batch: bytearray, producer: tuple[int, int, int], *, transactional: bool = False
) -> None:
    """Make a batch one of this producer (id, epoch and base sequence), with its checksum; its
    records stay as they are, compressed or not. It begins at offset 0."""
    header = HEADER.unpack_from(batch)
    attributes = header[ATTRIBUTES] | TRANSACTIONAL_BIT if transactional else header[ATTRIBUTES]
    HEADER.pack_into(
        batch, 0, 0, header[LENGTH], NO_LEADER_EPOCH, 2, 0,
        attributes, *header[LAST_OFFSET_DELTA:PRODUCER_ID], *producer, header[RECORD_COUNT],
    )  # fmt: skip
    UINT32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CHECKED_POSITION:]))


def _encoded_headers(headers: Sequence[HeaderPair]) -> bytearray:
    """Their count, and each of them."""
    out = bytearray(encode_varint(len(headers)))
    for name, content in headers:
        raw = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
        out += encode_varint(len(raw))
        out += raw
        _add_nullable(out, content)
    return out


def _add_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out += _NULL
    else:
        out += encode_varint(len(data))
        out += data


def build_batch(
    records: Iterable[RecordFields],
    *,
    base_offset: int = 0,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytes:
    """One batch of (timestamp in ms, key, value, headers), otherwise as `BatchBuilder.build`."""
    builder = BatchBuilder()
    for timestamp_ms, key, value, headers in records:
        builder.append(timestamp_ms, key, value, headers)
    return builder.build(
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
        transactional=transactional,
        control=control,
        log_append_time_ms=log_append_time_ms,
    )


def interpreted_sole_batch(
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[bytes, bytes | None], ...] = (),
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_marker: bool = False,
    /,
) -> bytearray:
    """A batch of one record, as a log of state has nearly always; writable, so that a log can give
    it its offset. The attributes of `is_marker` are those of a control batch in a transaction.

    `_loops.c` has a twin, which gives None for what it cannot make.
    """
    batch = build_batch(
        [(timestamp_ms, key, value, headers)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=is_marker,
        control=is_marker,
    )
    return bytearray(batch)


sole_batch = interpreted_sole_batch
try:
    from protocol.records._loops import sole_batch as _compiled_sole_batch
except ImportError:
    pass  # built where there was no C compiler
else:

    def sole_batch(*fields: Any) -> bytearray:
        """The same, in a tenth of the time."""
        made = _compiled_sole_batch(*fields)
        return interpreted_sole_batch(*fields) if made is None else made
