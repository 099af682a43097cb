"""The test whether the bad end of a metadata log is an append that a power cut tore.

Other logs end before their first bad batch. For metadata that would be too much: a flipped bit in
the middle would take all topics made since, and a flipped bit in the last batch one that was
acknowledged. So an end counts as torn only if it looks like one: it was never whole, and nothing
that is whole comes after it. A power cut leaves the first bytes of an append, or a file of the
right length with zeros or old bytes of the disk in it: more than one byte is wrong then. A batch of
which one byte is wrong was whole, and its checksum tells that (by chance, of one in a thousand
others of 16 KB; large ones have sectors of zeros, and those are looked for first).

An append may begin just before the end of a sector, or end just behind one. If that sector was not
written, a few bytes of zeros are all that is wrong, perhaps one byte that should not be one.
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
        return not _checks_with(rest, size) or _lacks_first_sector(rest, position, expected)
    if _has_blank_sector(rest, position) or _lacks_first_sector(rest, position, expected):
        return True
    wrong = _wrong_byte(rest)
    if wrong is None:
        return True
    last_sector = size - (position + size) % SECTOR_BYTES
    return wrong >= last_sector > 0 and not any(rest[last_sector:])


def lacks_beginning(file: File, position: int, expected: int) -> bool:
    """Whether file[position:] is a batch that is whole but for its first bytes, in a sector that
    was not written. No checksum covers those bytes."""
    size = file.size() - position
    if size > TORN_BYTES_MAX:
        return False
    rest = file.pread(size, position)
    return _checks_with(rest, size) and _lacks_first_sector(rest, position, expected)


def _lacks_first_sector(rest: bytes, position: int, expected: int) -> bool:
    """Whether nothing was written of the sector in which a batch of offset `expected` begins, and
    the next one begins inside its header."""
    unwritten = -position % SECTOR_BYTES
    if not 0 < unwritten < HEADER_SIZE or any(rest[:unwritten]):
        return False
    return any(INT64.pack(expected)[:unwritten])


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


def _wrong_byte(rest: bytes) -> int | None:
    """The byte of which another value would make the checksum right, of the checksum or of what it
    is of; None if there is none.

    What a wrong byte adds to a checksum depends on its place only: it is the byte's entry in the
    table of the checksum, then taken through as many zeros as bytes follow. So the difference of
    the two checksums is taken back, byte by byte, and at each place compared with the table.
    """
    checked = memoryview(rest)[CHECKED_POSITION:]
    difference = crc32c(checked) ^ UINT32.unpack_from(rest, CRC_POSITION)[0]
    for index, shift in enumerate((24, 16, 8, 0)):
        if difference & ~(0xFF << shift) == 0:
            return CRC_POSITION + index
    table = [_entry(byte) for byte in range(256)]
    entries, by_top = frozenset(table), {entry >> 24: byte for byte, entry in enumerate(table)}
    for place in range(len(rest) - 1, CHECKED_POSITION - 1, -1):
        if difference in entries:
            return place
        byte = by_top[difference >> 24]
        difference = (difference ^ table[byte]) << 8 & 0xFFFFFFFF | byte
    return None


def _entry(byte: int) -> int:
    """The entry of a byte in the table of CRC-32C."""
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte
