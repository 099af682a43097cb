"""The loops over single records that validation and conversion need, in Python.

`_loops.c` is the same in C, byte for byte; `transcode` has the faster of the two and is what others
import. The compiled twin knows no error texts: where anything is wrong it gives up, and these
functions say what it was.

`data` is bytes or a contiguous memoryview. A run of messages may end inside one; that is the end of
the run. A codec in the attributes is reported and otherwise ignored: nothing is opened here. Any
negative size of a key or value means null, and is written as -1. Sums of timestamps wrap at 64 bits
as in Java. The ends of int64 stand for "no bound" of a timestamp or offset.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import ErrorCode
from protocol.records.builder import encode_varint, encoded_varints
from protocol.records.crc import crc32
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    CODEC_MASK,
    ENTRY,
    ENTRY_OVERHEAD,
    ENTRY_PREFIX,
    INT32,
    INT64,
    KEY_POSITIONS,
    MAGIC_POSITION,
    MESSAGE_CHECKED_POSITION,
    MESSAGE_OVERHEADS,
    MIN_BATCH_LENGTH,
    MIN_ENTRY_LENGTH,
    MIN_MESSAGE_LENGTHS,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
)
from protocol.records.record import (
    INT64_MAX,
    INT64_MIN,
    read_fields,
    read_varint,
    read_varlong,
    wrap_timestamp,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    Data = bytes | memoryview

# A message in the pieces that conversion puts together.
_PREFIX = Struct(">qiI")
_START = Struct(">bbq")
_SIZES = Struct(">ii")

# A message up to its key and with the key's size, where that begins, and the smallest message.
_TO_KEY_SIZE = (
    (Struct(">qiIbbi").unpack_from, KEY_POSITIONS[0], MESSAGE_OVERHEADS[0]),
    (Struct(">qiIbbqi").unpack_from, KEY_POSITIONS[1], MESSAGE_OVERHEADS[1]),
)

_NULL = encode_varint(-1)
_NULL_SIZE = INT32.pack(-1)

OFFSET_LIMIT = 1 << 62
"""Offsets to count from stay below this, so that adding what a set can hold cannot overflow."""
DATA_LIMIT = (1 << 31) - 64
"""A run of records up to this size has no record that outgrows the length field of a message."""


class MessageScan(NamedTuple):
    """The result of `scan_messages`. An index counts messages from 0; -1 is for "there is none"."""

    count: int  # type: ignore[assignment]  # tuples have a method of this name
    end: int
    """Position after the last whole message."""
    codecs: int
    """Bit 1 << codec is set for each codec found, 0 ("none") included."""
    stamped: bool
    """Some message has the timestamp type bit."""
    contiguous: bool
    """The offset fields are 0, 1, 2, ..."""
    last_offset: int
    """Offset field of the last message; -1 when there is none."""
    max_timestamp: int
    """In ms; -1 when none is above that, and in format 0."""
    max_index: int
    """First message with the max timestamp."""
    null_key_index: int
    """First message without a key."""
    bad_time_index: int
    """First message whose timestamp is outside the window."""


class RecordScan(NamedTuple):
    """The result of `scan_records`, in the terms of `MessageScan`."""

    contiguous: bool
    """The offset deltas are 0, 1, 2, ..."""
    max_timestamp: int
    null_key_index: int
    bad_time_index: int
    has_headers: bool


def scan_messages(
    data: Data, magic: int, *, max_entry_bytes: int, oldest_ms: int, newest_ms: int
) -> MessageScan:
    """Check a run of messages of format `magic`, and see what it holds.

    Timestamps other than -1 should lie in oldest_ms..newest_ms, both included. Raises CorruptBatch
    for a length no message can have, an unknown magic, a wrong CRC, or a key or value that runs out
    of its message; InvalidRecord for another magic than asked for, and with MESSAGE_TOO_LARGE for a
    message of more than `max_entry_bytes`. The first message at fault decides.
    """
    data = bytes(data)  # slices of bytes are made more quickly than those of a view
    unpack, key_position, smallest = _TO_KEY_SIZE[magic]
    total, end, index, codecs, attributes_seen, last_attributes = len(data), 0, -1, 0, 0, 256
    contiguous, unpack_size = True, INT32.unpack_from
    last_offset = max_index = null_key_index = bad_time_index = -1
    max_timestamp = timestamp = NO_TIMESTAMP
    while total - (position := end) >= smallest:
        if magic:
            offset, length, crc, found, attributes, timestamp, key_size = unpack(data, position)
        else:
            offset, length, crc, found, attributes, key_size = unpack(data, position)
        size = length + ENTRY_OVERHEAD
        if found != magic or not smallest <= size <= max_entry_bytes or size > total - position:
            break
        end = position + size
        index += 1
        if crc32(data[position + MESSAGE_CHECKED_POSITION : end]) != crc:
            raise CorruptBatch(f"message {index} at position {position} does not fit its CRC {crc}")
        value_at = position + key_position + 4
        if key_size > 0:
            value_at += key_size
        elif key_size < 0 and null_key_index < 0:
            null_key_index = index
        if value_at + 4 > end or value_at + 4 + unpack_size(data, value_at)[0] > end:
            raise _runs_out(position, end)
        if offset != index:
            contiguous = False
        last_offset = offset
        if attributes != last_attributes:
            codecs |= 1 << (attributes & CODEC_MASK)
            attributes_seen |= attributes
            last_attributes = attributes
        if timestamp > max_timestamp:
            max_timestamp, max_index = timestamp, index
        if not oldest_ms <= timestamp <= newest_ms and timestamp != NO_TIMESTAMP:
            bad_time_index = index if bad_time_index < 0 else bad_time_index
    _check_end(data, end, magic, max_entry_bytes)
    return MessageScan(
        index + 1,
        end,
        codecs,
        bool(attributes_seen & TIMESTAMP_TYPE_BIT),
        contiguous,
        last_offset,
        max_timestamp,
        max_index,
        null_key_index,
        bad_time_index,
    )


def _check_end(data: bytes, position: int, magic: int, max_entry_bytes: int) -> None:
    """Raise for an entry that stopped a scan by being wrong, not by being cut.

    In Kafka's order: a bad length or magic is an error even if the entry is cut.
    """
    left = len(data) - position
    if left < ENTRY_OVERHEAD:
        return
    length: int = ENTRY.unpack_from(data, position)[1]
    if length < MIN_ENTRY_LENGTH:
        raise _too_short(position, length, MIN_ENTRY_LENGTH)
    if left < ENTRY_PREFIX:
        return
    found = data[position + MAGIC_POSITION]
    if found > 2:
        raise CorruptBatch(f"entry at position {position} has magic {found}, known are 0, 1 and 2")
    if found == 2 and length < MIN_BATCH_LENGTH:
        raise _too_short(position, length, MIN_BATCH_LENGTH)
    size = length + ENTRY_OVERHEAD
    if left < size:
        return
    if found != magic:
        raise InvalidRecord(
            f"entry at position {position} has magic {found} in a set of magic {magic}"
        )
    if size > max_entry_bytes:
        raise InvalidRecord(
            f"message at position {position} has {size} bytes, the limit is {max_entry_bytes}",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    # What is left is a message of format 1 without room for its fields, which Kafka would store.
    raise _too_short(position, length, MIN_MESSAGE_LENGTHS[magic])


def _too_short(position: int, length: int, wanted: int) -> CorruptBatch:
    return CorruptBatch(
        f"entry at position {position} has length {length}, wanted {wanted} or more"
    )


def _runs_out(position: int, end: int) -> CorruptBatch:
    return CorruptBatch(
        f"key or value of the message at position {position} runs out of its {end - position} bytes"
    )


def scan_records(
    data: Data, count: int, base_timestamp: int, *, oldest_ms: int, newest_ms: int
) -> RecordScan:
    """Check the decompressed records of a format 2 batch, and see what they hold.

    `base_timestamp` is the batch's, in ms. Raises InvalidRecord for all that `read_fields` refuses.
    """
    contiguous, has_headers = True, False
    null_key_index = bad_time_index = -1
    max_timestamp = NO_TIMESTAMP
    for index, fields in enumerate(read_fields(bytes(data), count)):
        timestamp_delta, offset_delta, _, key_size, _, _, headers = fields
        timestamp = base_timestamp + timestamp_delta
        if not INT64_MIN <= timestamp <= INT64_MAX:
            timestamp = wrap_timestamp(timestamp)
        if offset_delta != index:
            contiguous = False
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if not oldest_ms <= timestamp <= newest_ms and timestamp != NO_TIMESTAMP:
            bad_time_index = index if bad_time_index < 0 else bad_time_index
        if key_size < 0 and null_key_index < 0:
            null_key_index = index
        if headers:
            has_headers = True
    return RecordScan(contiguous, max_timestamp, null_key_index, bad_time_index, has_headers)


def messages_from_records(
    data: Data,
    count: int,
    *,
    base_offset: int,
    base_timestamp: int,
    magic: int,
    append_time_ms: int | None,
    min_offset: int,
) -> tuple[bytes, int]:
    """Format 2 records as a plain run of format `magic` messages, and how many those are.

    Each keeps its offset; those below `min_offset` are left out, and so are all headers. With an
    append time every message of format 1 has that timestamp and the timestamp type bit. Raises
    InvalidRecord for all that `read_fields` refuses.
    """
    _check_bounds(data, base_offset)
    raw = bytes(data)
    start, dated = _start_of(magic, append_time_ms)
    pack_prefix, pack_start = _PREFIX.pack, _START.pack
    pack_sizes, pack_size = _SIZES.pack, INT32.pack
    parts: list[bytes] = []
    kept = 0
    for fields in read_fields(raw, count):
        timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, _ = fields
        offset = base_offset + offset_delta
        if offset < min_offset:
            continue
        kept += 1
        if dated:
            timestamp = base_timestamp + timestamp_delta
            if not INT64_MIN <= timestamp <= INT64_MAX:
                timestamp = wrap_timestamp(timestamp)
            start = pack_start(1, 0, timestamp)
        if value_size < 0:
            value_size, value = -1, b""
        else:
            value = raw[value_at : value_at + value_size]
        if key_size < 0:
            body = start + pack_sizes(-1, value_size) + value
        else:
            key = raw[key_at : key_at + key_size]
            body = start + pack_size(key_size) + key + pack_size(value_size) + value
        parts += (pack_prefix(offset, 4 + len(body), crc32(body)), body)
    return b"".join(parts), kept


def _check_bounds(data: Data, offset: int) -> None:
    if not -OFFSET_LIMIT <= offset <= OFFSET_LIMIT:
        raise InvalidRecord(f"offset {offset} is not within 2^62 of zero")
    if len(data) > DATA_LIMIT:
        raise InvalidRecord(f"{len(data)} bytes of records, at most {DATA_LIMIT} can be converted")


def _start_of(magic: int, append_time_ms: int | None) -> tuple[bytes, bool]:
    """Magic, attributes and timestamp of every message, or True when each has a timestamp."""
    if not magic:
        return b"\0\0", False
    if append_time_ms is not None:
        return _START.pack(1, TIMESTAMP_TYPE_BIT, append_time_ms), False
    return _START.pack(1, 0, NO_TIMESTAMP), True


def _plain_messages(
    data: Data, magic: int, position: int = 0
) -> Iterator[tuple[int, int, int, int, int, int, int]]:
    """(offset, timestamp, key size, position of the key's length, of the value's, value size, end)
    of each whole message of a run that `scan_messages` has seen before, so without its CRC.

    The timestamp is -1 in format 0. Raises CorruptBatch for a field that runs out of its message.
    """
    unpack, key_position, smallest = _TO_KEY_SIZE[magic]
    unpack_size = INT32.unpack_from
    total, timestamp = len(data), NO_TIMESTAMP
    while total - position >= smallest:
        if magic:
            offset, length, _, _, _, timestamp, key_size = unpack(data, position)
        else:
            offset, length, _, _, _, key_size = unpack(data, position)
        end = position + length + ENTRY_OVERHEAD
        if end > total or end - position < smallest:
            break
        key_at = position + key_position
        value_at = key_at + 4 + key_size if key_size > 0 else key_at + 4
        if value_at + 4 > end:
            raise _runs_out(position, end)
        (value_size,) = unpack_size(data, value_at)
        if value_at + 4 + value_size > end:
            raise _runs_out(position, end)
        yield offset, timestamp, key_size, key_at, value_at, value_size, end
        position = end
    for _ in _entries(data, position, magic):
        pass  # it raises if this was not the end of the run


def _entries(data: Data, position: int, magic: int) -> Iterator[tuple[int, int]]:
    """Position and end of each whole message. Raises CorruptBatch for a length below the least."""
    total, smallest = len(data), MESSAGE_OVERHEADS[magic]
    while total - position >= ENTRY_OVERHEAD:
        size = ENTRY.unpack_from(data, position)[1] + ENTRY_OVERHEAD
        if size < smallest and (size < MESSAGE_OVERHEADS[0] or total - position >= size):
            raise _too_short(position, size - ENTRY_OVERHEAD, smallest - ENTRY_OVERHEAD)
        if total - position < size:
            return
        yield position, position + size
        position += size


def messages_from_messages(
    data: Data,
    *,
    source_magic: int,
    magic: int,
    offset: int,
    renumber: bool,
    append_time_ms: int | None,
    min_offset: int,
) -> tuple[bytes, int]:
    """A run of plain messages as one of format `magic`, and how many messages that has.

    Offsets become offset, offset + 1, ... with `renumber`, else each message's own plus `offset`;
    messages whose new offset is below `min_offset` are counted but left out. Timestamps are kept,
    -1 where there was none; an append time takes their place and sets the timestamp type bit.
    Raises CorruptBatch for a message whose fields run out of it; CRCs are not checked again.
    """
    _check_bounds(data, offset)
    raw = bytes(data)
    start, dated = _start_of(magic, append_time_ms)
    parts: list[bytes] = []
    kept = 0
    for index, fields in enumerate(_plain_messages(raw, source_magic)):
        new_offset, timestamp, key_size, key_at, value_at, value_size, _ = fields
        new_offset = offset + index if renumber else new_offset + offset
        if not INT64_MIN <= new_offset <= INT64_MAX:
            new_offset = wrap_timestamp(new_offset)
        if new_offset < min_offset:
            continue
        kept += 1
        if dated:
            start = _START.pack(1, 0, timestamp)
        value_end = value_at + 4 + value_size if value_size > 0 else value_at + 4
        if key_size >= -1 and value_size >= -1:
            body = start + raw[key_at:value_end]
        else:
            # Every negative size means null, but what we write says -1.
            key = raw[key_at:value_at] if key_size >= 0 else _NULL_SIZE
            body = start + key + (raw[value_at:value_end] if value_size >= 0 else _NULL_SIZE)
        parts += (_PREFIX.pack(new_offset, 4 + len(body), crc32(body)), body)
    return b"".join(parts), kept


def records_from_messages(
    data: Data, position: int, *, magic: int, max_bytes: int
) -> tuple[bytes, int, int, int, int]:
    """Plain messages from `position` on as format 2 records, up to `max_bytes` of them.

    Returns the records, their count, the base timestamp, which is the first's, the max timestamp
    (ms, -1 for none) and the position of the first message left over. There is at least one record
    unless no whole message is left. Offset deltas are 0, 1, 2, ... Raises as
    `messages_from_messages`.
    """
    raw = bytes(data)
    encoded = encoded_varints()
    known = len(encoded)
    parts: list[bytes] = []
    size = count = 0
    base_timestamp = max_timestamp = NO_TIMESTAMP
    for fields in _plain_messages(raw, magic, position):
        _, timestamp, key_size, key_at, value_at, value_size, end = fields
        if not count:
            base_timestamp = timestamp
        delta = timestamp - base_timestamp
        moment = encoded[delta] if 0 <= delta < known else encode_varint(wrap_timestamp(delta))
        place = encoded[count] if count < known else encode_varint(count)
        if key_size < 0:
            key = _NULL
        else:
            key = encoded[key_size] if key_size < known else encode_varint(key_size)
            key += raw[key_at + 4 : value_at]
        if value_size < 0:
            body = b"".join((b"\0", moment, place, key, b"\1\0"))
        else:
            head = encoded[value_size] if value_size < known else encode_varint(value_size)
            value = raw[value_at + 4 : value_at + 4 + value_size]
            body = b"".join((b"\0", moment, place, key, head, value, b"\0"))
        length = len(body)
        head = encoded[length] if length < known else encode_varint(length)
        if count and size + len(head) + length > max_bytes:
            break
        size += len(head) + length
        parts += (head, body)
        count += 1
        position = end
        if timestamp > max_timestamp:
            max_timestamp = timestamp
    return b"".join(parts), count, base_timestamp, max_timestamp, position


def place_messages(view: memoryview, base_offset: int) -> int:
    """Give a run of plain messages the offsets base_offset, base_offset + 1, ... where it lies.

    Returns how many there are. Their CRCs do not cover offsets. Raises CorruptBatch for a length no
    message can have.
    """
    _check_bounds(view, base_offset)
    count = 0
    for position, _ in _entries(view, 0, 0):
        INT64.pack_into(view, position, base_offset + count)
        count += 1
    return count


def skip_messages(data: Data, min_offset: int) -> int:
    """Position of the first whole message whose offset field is `min_offset` or more.

    The end of `data` when there is none. Raises CorruptBatch for a length no message can have.
    """
    for position, _ in _entries(data, 0, 0):
        if ENTRY.unpack_from(data, position)[0] >= min_offset:
            return position
    return len(data)


def renumber_records(data: Data, count: int) -> bytes:
    """The records of a format 2 batch with the offset deltas 0, 1, 2, ..., all else as it was.

    Raises InvalidRecord for all that `read_fields` refuses.
    """
    raw = bytes(data)
    for _ in read_fields(raw, count):
        pass  # all of it is checked before the first byte is taken
    parts: list[bytes] = []
    position = 0
    for index in range(count):
        size, position = read_varint(raw, position)
        end = position + size
        _, delta_at = read_varlong(raw, position + 1)
        _, delta_end = read_varint(raw, delta_at)
        body = raw[position:delta_at] + encode_varint(index) + raw[delta_end:end]
        parts += (encode_varint(len(body)), body)
        position = end
    return b"".join(parts)
