"""Whether the bad end of a metadata log is an append that a power cut tore.

Other logs end before their first bad batch. For metadata that would be too much: a flipped bit in
the middle would take all topics made since, and a flipped bit in the last batch one that was
acknowledged. So an end counts as torn only if it looks like one: it was never whole, and nothing
that is whole comes after it. A power cut leaves the first bytes of an append, or a file of the
right length with zeros or old bytes of the disk in it: more than one byte is wrong then. A batch of
which one byte is wrong was whole, and its checksum tells that (by chance, of one in a thousand
others of 16 KB; large ones have sectors of zeros, and those are looked for first).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from protocol.records.crc import crc32c
from protocol.records.layout import (
    CHECKED_POSITION,
    CRC_POSITION,
    ENTRY_OVERHEAD,
    HEADER_SIZE,
    INT32,
    INT64,
    LENGTH_POSITION,
    MAGIC_POSITION,
    UINT32,
)

if TYPE_CHECKING:
    from storage.filesystem import File

TORN_BYTES_MAX = 16 << 20
"""An append is one batch of 8 MiB at most; Kafka may have had two on the way to the disk."""
FIRST_BYTES_MAX = 4096
"""The first append to a log says who leads it, in 91 bytes."""
SECTOR_BYTES = 512
ZEROS_AT_LEAST = 64
"""No record has such a run of zeros."""
_OFFSET_SPAN = 1 << 16


def is_torn(file: File, position: int, expected: int) -> bool:
    """Whether file[position:], which does not begin with a whole batch of offset `expected`, may
    go: an unfinished append, with no whole batch after it."""
    size = file.size() - position
    if size > (TORN_BYTES_MAX if expected else FIRST_BYTES_MAX):
        return False
    rest = file.pread(size, position)
    if not any(rest):
        return True
    if _whole_batch_in(rest, expected):
        return False
    stated = INT32.unpack_from(rest, LENGTH_POSITION)[0] if size >= ENTRY_OVERHEAD else None
    if stated is None or size < HEADER_SIZE or stated + ENTRY_OVERHEAD > size:
        # Cut short, unless it is only the length that is wrong.
        return not _checks_with(rest, size)
    return _has_blank_sector(rest, position) or not _is_one_byte_wrong(rest)


def _whole_batch_in(rest: bytes, expected: int) -> bool:
    """Whether some later batch can be found: its offset is a little above the expected one."""
    data = memoryview(rest)
    for high in (expected // _OFFSET_SPAN, expected // _OFFSET_SPAN + 1):
        prefix = re.escape(INT64.pack(high * _OFFSET_SPAN)[:6])
        # The two other bytes of the offset, the length and the epoch; then the format.
        for found in re.finditer(rb"(?=%s.{10}\x02)" % prefix, rest, re.DOTALL):
            at = found.start()
            if not at or len(rest) - at < HEADER_SIZE:
                continue
            size = INT32.unpack_from(rest, at + LENGTH_POSITION)[0] + ENTRY_OVERHEAD
            if size <= len(rest) - at and _checks_with(data[at:], size):
                return True
    return False


def _checks_with(data: bytes | memoryview, size: int) -> bool:
    """Whether the first `size` bytes are a batch whose checksum is right, whatever its length
    field says."""
    if size < HEADER_SIZE or data[MAGIC_POSITION] != 2:
        return False
    stated: int = UINT32.unpack_from(data, CRC_POSITION)[0]
    return crc32c(memoryview(data)[CHECKED_POSITION:size]) == stated


def _has_blank_sector(rest: bytes, position: int) -> bool:
    """Whether a sector of the disk that the append went to holds nothing of it."""
    start = 0
    while start < len(rest):
        stop = min(len(rest), start + SECTOR_BYTES - (position + start) % SECTOR_BYTES)
        if stop - start >= ZEROS_AT_LEAST and not any(rest[start:stop]):
            return True
        start = stop
    return False


def _is_one_byte_wrong(rest: bytes) -> bool:
    """Whether another value of one byte, of the checksum or of what it is of, would make the
    checksum right.

    What a wrong byte adds to a checksum depends on its place only: it is the byte's entry in the
    table of the checksum, then taken through as many zeros as bytes follow. So the difference of
    the two checksums is taken back, byte by byte, and at each place compared with the table.
    """
    checked = memoryview(rest)[CHECKED_POSITION:]
    difference = crc32c(checked) ^ UINT32.unpack_from(rest, CRC_POSITION)[0]
    if any(difference & ~(0xFF << shift) == 0 for shift in (0, 8, 16, 24)):
        return True
    table = [_entry(byte) for byte in range(256)]
    entries, by_top = frozenset(table), {entry >> 24: byte for byte, entry in enumerate(table)}
    for _ in range(len(checked)):
        if difference in entries:
            return True
        byte = by_top[difference >> 24]
        difference = (difference ^ table[byte]) << 8 & 0xFFFFFFFF | byte
    return False


def _entry(byte: int) -> int:
    """The entry of a byte in the table of CRC-32C."""
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte
