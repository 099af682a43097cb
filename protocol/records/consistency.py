"""The checks of a batch of format 2 against its header, as far as it need not be expanded.

A batch that is not compressed is gone through record by record: nothing is left to be seen but keys
and windows of time. Of a compressed one the frames of its codec are looked at:

    gzip    the header of the member; the size that is stated at the end
    snappy  the chain of blocks, the size stated by each, the first 32 elements of each
    lz4     the header of the frame, the chain of blocks, its end
    zstd    the headers of the frames, the chain of blocks

The sizes must have room for the records that are counted, and the times of the header must be
likely: records with times an hour apart are seldom in one batch. No is not a refusal: whoever asks
opens the batch then. `_loops.c` has the twin of this module.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from protocol.records import loops
from protocol.records.compression import (
    GZIP,
    LZ4,
    MAX_RATIOS,
    NONE,
    SNAPPY,
    SNAPPY_MAX_RATIO,
    XERIAL_HEADER,
    XERIAL_MAGIC,
    ZSTD,
    measure_zstd_frame,
)
from protocol.records.errors import InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    INT32,
    MAX_TIMESTAMP,
    MIN_RECORD_SIZE,
    RECORD_COUNT,
)
from protocol.records.lz4_frame import CONTENT_SIZE, DESCRIPTOR_POSITION, check_header
from protocol.records.record import INT64_MAX, INT64_MIN, read_fields

if TYPE_CHECKING:
    from protocol.records.layout import Header

LONGEST_SPAN_MS = 3_600_000
"""Longest time from the first to the latest record of a compressed batch that is not opened. A
wrong latest time misleads searches by time by so much at most."""
SNAPPY_ELEMENTS = 32
"""Rubbish gives itself away in one of the first: no copy may reach back before the beginning."""
SMALLEST_GZIP = 20
MOST_STEPS = 131_072
"""Records and headers of records, or blocks and frames, that are gone through: a millisecond of the
event loop in C. A batch of more is not called consistent, so that it is walked on a thread."""

_LITTLE_UINT32 = Struct("<I")
_LITTLE_UINT64 = Struct("<Q")
_ANY_SIZE = 1 << 64


def interpreted_is_consistent(batch: loops.Data) -> bool:
    """Whether the batch that `batch` is, to its last byte, seems to hold what its header says."""
    if len(batch) < HEADER_SIZE:
        return False
    header: Header = HEADER.unpack_from(batch)
    codec, count = header[ATTRIBUTES] & CODEC_MASK, header[RECORD_COUNT]
    base_timestamp, max_timestamp = header[BASE_TIMESTAMP], header[MAX_TIMESTAMP]
    payload = memoryview(batch)[HEADER_SIZE:]
    try:
        if codec == NONE:
            _check_steps(count)
            scan = loops.scan_records(
                payload, count, base_timestamp, oldest_ms=INT64_MIN, newest_ms=INT64_MAX
            )
            return (
                scan.contiguous
                and scan.max_timestamp == max_timestamp
                and (not scan.has_headers or _count_headers(payload, count) <= MOST_STEPS - count)
            )
        longest_span_ms = 0 if count == 1 else LONGEST_SPAN_MS
        return (
            0 <= max_timestamp - base_timestamp <= longest_span_ms
            and count * MIN_RECORD_SIZE <= _room(codec, payload)
        )
    except (InvalidRecord, IndexError):
        return False


def _count_headers(payload: memoryview, count: int) -> int:
    return sum(len(fields[6]) for fields in read_fields(bytes(payload), count))


def _check_steps(steps: int) -> None:
    if steps > MOST_STEPS:
        raise InvalidRecord(f"more than {MOST_STEPS} steps")


def _room(codec: int, payload: memoryview) -> int:
    """Bytes that the payload expands to at most. Raises InvalidRecord, or IndexError, where it is
    no stream of this codec."""
    if codec == GZIP:
        return _gzip_room(payload)
    if codec == SNAPPY:
        return _snappy_room(payload)
    if codec == LZ4:
        return _lz4_room(payload)
    if codec == ZSTD:
        return _zstd_room(payload)
    raise InvalidRecord(f"codec {codec}")


def _gzip_room(payload: memoryview) -> int:
    if len(payload) < SMALLEST_GZIP or bytes(payload[:3]) != b"\x1f\x8b\x08" or payload[3] & 0xE0:
        raise InvalidRecord("gzip payload does not begin with a member")
    stated: int = _LITTLE_UINT32.unpack_from(payload, len(payload) - 4)[0]
    if stated > len(payload) * MAX_RATIOS[GZIP]:
        raise InvalidRecord(f"gzip payload states {stated} bytes")
    return stated


def _snappy_room(payload: memoryview) -> int:
    if bytes(payload[:8]) != XERIAL_MAGIC:
        return _snappy_block_room(payload)
    position = room = steps = 0
    while len(payload) - position >= INT32.size:
        steps += 1
        _check_steps(steps)
        if bytes(payload[position : position + 8]) == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            if position > len(payload):
                raise InvalidRecord("snappy payload ends inside a header")
            continue
        size = INT32.unpack_from(payload, position)[0]
        position += 4
        if not 0 < size <= len(payload) - position:
            raise InvalidRecord(f"snappy block of {size} bytes")
        room += _snappy_block_room(payload[position : position + size])
        position += size
    return room


def _snappy_block_room(block: memoryview) -> int:
    stated = made = position = 0
    for shift in range(0, 35, 7):
        stated |= (block[position] & 0x7F) << shift
        position += 1
        if block[position - 1] < 0x80:
            break
    else:
        raise InvalidRecord("snappy block does not begin with its length")
    if stated > len(block) * SNAPPY_MAX_RATIO:
        raise InvalidRecord(f"snappy block states {stated} bytes")
    for _ in range(SNAPPY_ELEMENTS):
        if position == len(block):
            break
        length, back, position = _snappy_element(block, position)
        made += length
        if (back is not None and not 0 < back <= made - length) or made > stated:
            raise InvalidRecord("snappy block does not hold what it states")
    if position == len(block) and made != stated:
        raise InvalidRecord(f"snappy block makes {made} of {stated} bytes")
    return stated


def _snappy_element(block: memoryview, position: int) -> tuple[int, int | None, int]:
    """The bytes that the element at `position` makes, from how far back it copies them, None for
    those of a literal, and the position after it."""
    tag = block[position]
    kind, length = tag & 3, (tag >> 2) + 1
    position += 1
    width = (max(0, length - 60), 1, 2, 4)[kind]
    if width > len(block) - position:
        raise InvalidRecord("snappy block ends inside an element")
    number = int.from_bytes(block[position : position + width], "little")
    position += width
    if kind == 1:
        return (tag >> 2 & 7) + 4, number | tag >> 5 << 8, position
    if kind:
        return length, number, position
    if width:
        length = number + 1
    if length > len(block) - position:
        raise InvalidRecord("snappy block ends inside a literal")
    return length, None, position + length


def _lz4_room(payload: memoryview) -> int:
    position = check_header(payload)
    flags, descriptor = payload[DESCRIPTOR_POSITION], payload[DESCRIPTOR_POSITION + 1]
    largest = 1 << 8 + 2 * (descriptor >> 4)
    checksum = 4 if flags & 0x10 else 0
    room = steps = 0
    while len(payload) - position >= 4:
        steps += 1
        _check_steps(steps)
        word = _LITTLE_UINT32.unpack_from(payload, position)[0]
        position += 4
        if not word:
            break
        size = word & 0x7FFF_FFFF
        if size > largest or size + checksum > len(payload) - position:
            raise InvalidRecord(f"lz4 block of {size} bytes")
        position += size + checksum
        room += size if word >> 31 else min(size * MAX_RATIOS[LZ4], largest)
    else:
        raise InvalidRecord("lz4 payload ends inside its frame")
    if len(payload) - position != (4 if flags & 4 else 0):
        raise InvalidRecord("lz4 payload does not end with its frame")
    if not flags & CONTENT_SIZE:
        return room
    stated: int = _LITTLE_UINT64.unpack_from(payload, 6)[0]
    if stated > room:
        raise InvalidRecord(f"lz4 frame states {stated} bytes")
    return stated


def _zstd_room(payload: memoryview) -> int:
    position = room = steps = 0
    while position < len(payload):
        position, more, blocks = measure_zstd_frame(payload, position, _ANY_SIZE)
        room += more
        steps += 1 + blocks
        _check_steps(steps)
    return room


is_consistent = interpreted_is_consistent
try:
    from protocol.records import _loops
except ImportError:
    pass  # built where there was no C compiler
else:
    is_consistent = _loops.is_consistent
