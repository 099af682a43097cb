"""The records inside a format 2 batch, for the few paths that must look at them.

    length            varint, bytes after this field
    attributes        int8, unused
    timestamp delta   varlong, ms from the batch's base timestamp; may be negative
    offset delta      varint, from the batch's base offset
    key               varint length, -1 for null, and bytes
    value             varint length, -1 for null, and bytes
    header count      varint
    each header       varint length and UTF-8 name, varint length (-1 for null) and value

A varint is zigzag encoded, 7 bits a byte, low bits first, at most 5 bytes; a varlong at most 10.
Nothing here allocates from a count or a length before the bytes for it have been seen.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.records.errors import InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    MIN_RECORD_SIZE,
    RECORD_COUNT,
    TIMESTAMP_TYPE_BIT,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.records.layout import Header

    RecordHeaders = tuple[tuple[str, bytes | None], ...]
    Fields = tuple[int, int, int, int, int, int, RecordHeaders]
    """Timestamp delta, offset delta, key position, key size, value position, value size, headers. A
    negative size means null."""

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
ANY_HEADERS = (1 << 31) - 1
"""No bound on the headers of a record but that of the format."""


class Record:
    """One record as a consumer sees it.

    `headers` are (name, value) in the order sent; names may repeat. A name that is not UTF-8 keeps
    its bytes as surrogate escapes, because a broker never rewrites or refuses one.
    """

    __slots__ = ("headers", "key", "offset", "timestamp_ms", "value")

    def __init__(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: RecordHeaders = (),
    ) -> None:
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.timestamp_ms == other.timestamp_ms
            and self.key == other.key
            and self.value == other.value
            and self.headers == other.headers
        )

    __hash__ = None  # type: ignore[assignment]  # equal by content, but open to change

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp_ms={self.timestamp_ms}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at `position` and the position after it.

    Longer forms than needed are accepted, and bits beyond the 32nd are dropped, as Kafka does.
    Raises InvalidRecord when a fifth byte asks for a sixth, IndexError at the end of `data`.
    """
    byte = data[position]
    position += 1
    number = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift > 28:
            raise InvalidRecord(f"varint before position {position} has more than 5 bytes")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    number &= 0xFFFF_FFFF
    return (number >> 1) ^ -(number & 1), position


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """As `read_varint`, over 64 bits and at most 10 bytes."""
    byte = data[position]
    position += 1
    number = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift > 63:
            raise InvalidRecord(f"varlong before position {position} has more than 10 bytes")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    number &= 0xFFFF_FFFF_FFFF_FFFF
    return (number >> 1) ^ -(number & 1), position


def read_fields(
    data: bytes, count: int, first: int = 0, position: int = 0, *, headers_max: int = ANY_HEADERS
) -> Iterator[Fields]:
    """Go through the decompressed records of a batch that claims `count` of them, from the one of
    index `first` on, at `position`. All that the format demands of a record is checked before it is
    yielded, and in the end that no byte is left. Raises InvalidRecord, also for a record with more
    than `headers_max` headers, before they are made."""
    total = len(data)
    if count * MIN_RECORD_SIZE > total:
        raise InvalidRecord(f"batch claims {count} records in {total} bytes, each has 7 or more")
    index = first
    one, two = short_varints()
    try:
        # Written out for varints of one and two bytes, which is what nearly all of them are: a call
        # per field would make this loop three times slower.
        for index in range(first, count):
            if (byte := data[position]) < 0x80:
                size, position = one[byte], position + 1
            elif (more := data[position + 1]) < 0x80:
                size, position = two[byte][more], position + 2
            else:
                size, position = read_varint(data, position)
            end = position + size
            if (byte := data[position + 1]) < 0x80:
                timestamp_delta, position = one[byte], position + 2
            elif (more := data[position + 2]) < 0x80:
                timestamp_delta, position = two[byte][more], position + 3
            else:
                timestamp_delta, position = read_varlong(data, position + 1)
            if (byte := data[position]) < 0x80:
                offset_delta, position = one[byte], position + 1
            elif (more := data[position + 1]) < 0x80:
                offset_delta, position = two[byte][more], position + 2
            else:
                offset_delta, position = read_varint(data, position)
            if (byte := data[position]) < 0x80:
                key_size, key_at = one[byte], position + 1
            else:
                key_size, key_at = read_varint(data, position)
            position = key_at + key_size if key_size > 0 else key_at
            if (byte := data[position]) < 0x80:
                value_size, value_at = one[byte], position + 1
            elif (more := data[position + 1]) < 0x80:
                value_size, value_at = two[byte][more], position + 2
            else:
                value_size, value_at = read_varint(data, position)
            position = value_at + value_size if value_size > 0 else value_at
            headers: RecordHeaders = ()
            if data[position]:
                headers, position = _read_headers(data, position, end, headers_max)
            else:
                position += 1
            if position != end:
                raise InvalidRecord(f"record {index} should end at byte {end}, not at {position}")
            yield timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, headers
    except IndexError:
        raise InvalidRecord(f"record {index} runs past the last of {total} bytes") from None
    if position != total:
        raise InvalidRecord(f"{total - position} bytes are left after the last of {count} records")


@cache
def short_varints() -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """The numbers of varints of one byte, by it, and of two, by the first and then the second.

    Made when first needed: it is half a megabyte. Of a first byte the second ones count in steps,
    up from 0 where it is even and down from -1 where it is odd; a range does that at once.
    """
    one = tuple((bits >> 1) ^ -(bits & 1) for bits in range(0x80))
    longer = (
        tuple(range(low >> 1, 0x2000, 0x40) if low & 1 == 0 else range(~(low >> 1), ~0x2000, -0x40))
        for low in range(0x80)
    )
    return one, ((),) * 0x80 + tuple(longer)


def _read_headers(data: bytes, position: int, end: int, most: int) -> tuple[RecordHeaders, int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise InvalidRecord(f"header count {count} with {end - position} bytes left in the record")
    if count > most:
        raise InvalidRecord(
            f"a record has {count} headers, of one at most {most} are read here",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = read_varint(data, position)
        if not 0 <= size <= end - position:
            raise InvalidRecord(
                f"header name of {size} bytes with {end - position} left in the record"
            )
        name = data[position : position + size].decode("utf-8", "surrogateescape")
        size, position = read_varint(data, position + size)
        if size > end - position:
            raise InvalidRecord(
                f"header value of {size} bytes with {end - position} left in the record"
            )
        if size < 0:
            headers.append((name, None))
        else:
            headers.append((name, data[position : position + size]))
            position += size
    return tuple(headers), position


def wrap_timestamp(timestamp_ms: int) -> int:
    """This exact sum or difference of timestamps, as Java's 64-bit arithmetic gives it."""
    if INT64_MIN <= timestamp_ms <= INT64_MAX:
        return timestamp_ms
    return (timestamp_ms - INT64_MIN) % (1 << 64) + INT64_MIN


def read_records(
    data: bytes, header: Header, *, headers_max: int = ANY_HEADERS
) -> Iterator[Record]:
    """The records of `data`, the decompressed payload of the batch with this header.

    Under LogAppendTime every record has the batch's max timestamp, whatever its delta says.
    Raises InvalidRecord as `read_fields`.
    """
    base_offset = header[BASE_OFFSET]
    base_timestamp = header[BASE_TIMESTAMP]
    log_append_time = header[ATTRIBUTES] & TIMESTAMP_TYPE_BIT
    timestamp_ms = header[MAX_TIMESTAMP]
    for fields in read_fields(data, header[RECORD_COUNT], headers_max=headers_max):
        timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, headers = fields
        if not log_append_time:
            timestamp_ms = wrap_timestamp(base_timestamp + timestamp_delta)
        yield Record(
            base_offset + offset_delta,
            timestamp_ms,
            None if key_size < 0 else data[key_at : key_at + key_size],
            None if value_size < 0 else data[value_at : value_at + value_size],
            headers,
        )
