"""The search for the next whole entry of a log file behind bytes that are none.

A length that is wrong leads nowhere, so the way on is searched for: something that looks like a
header with offsets that may follow, and whose checksum is right.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from protocol.records.crc import crc32, crc32c
from protocol.records.layout import (
    CHECKED_POSITION,
    CRC_POSITION,
    ENTRY_OVERHEAD,
    ENTRY_PREFIX,
    HEADER_SIZE,
    INT32,
    LENGTH_POSITION,
    MAGIC_POSITION,
    MESSAGE_CHECKED_POSITION,
    MESSAGE_CRC_POSITION,
    UINT32,
)
from storage.scan import MIN_LENGTHS, Entry, entry_size
from storage.wrong_bit import CRC32_POLYNOMIAL, CRC32C_POLYNOMIAL, wrong_byte

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.filesystem import File

LENGTH_BITS = 31
"""All but the sign."""

PIECE_BYTES = 1024 * 1024
"""Read at once; a larger entry is summed piece by piece."""

SEARCH_SUMS = 4
"""Bytes that may be summed for each byte searched: a file may be full of headers that claim large
entries."""
SEARCH_SUMS_FREE = 64 * 1024 * 1024
"""And so many bytes whatever the size."""
SEARCH_TRIES = 5_000_000
"""And so many places that look like a header."""

ALTERED_BYTES_MAX = 2 * 1024 * 1024
"""An entry that is larger is not asked for its one wrong bit: that takes half a second a MiB."""


def header_pattern(lowest: int, highest: int) -> re.Pattern[bytes]:
    """Pattern of the header of an entry with such offsets: upper half of the offset, a length that
    is not zero, a known magic. Matches nothing but the place, so places may overlap."""
    halves = {max(lowest, 0) >> 32, max(highest, 0) >> 32}
    upper = b"|".join(re.escape(half.to_bytes(4, "big")) for half in sorted(halves))
    return re.compile(
        b"(?=(?:" + upper + rb").{4}(?!\x00{4})[\x00-\x7f].{7}[\x00-\x02])", re.DOTALL
    )


def header_at(file: File, position: int, end: int) -> Entry | str:
    """The entry whose header is at a position of file[:end], or why there is none."""
    buffer = file.pread(min(HEADER_SIZE, end - position), position)
    size = entry_size(buffer, 0)
    if isinstance(size, str):
        return size
    if size > end - position or len(buffer) < min(size, HEADER_SIZE):
        return f"an entry of {size} bytes is cut, {end - position} are there"
    return Entry(position, size, buffer[MAGIC_POSITION], buffer, 0)


def is_intact(file: File, entry: Entry) -> bool:
    """Whether an entry's bytes have its checksum. Read piece by piece: a length is a claim."""
    first = CHECKED_POSITION if entry.magic == 2 else MESSAGE_CHECKED_POSITION
    compute = crc32c if entry.magic == 2 else crc32
    position, end, value = entry.position + first, entry.end, 0
    while position < end:
        piece = file.pread(min(PIECE_BYTES, end - position), position)
        if not piece:
            return False
        value = compute(piece, value)
        position += len(piece)
    return value == entry.stated_crc


def is_right_sum(whole: memoryview, entry: Entry) -> bool:
    """The same of an entry whose bytes are at hand."""
    if entry.magic == 2:
        return crc32c(whole[CHECKED_POSITION:]) == entry.stated_crc
    return crc32(whole[MESSAGE_CHECKED_POSITION:]) == entry.stated_crc


def end_by_length(
    file: File, position: int, end: int, may_follow: Callable[[Entry], bool]
) -> int | None:
    """End of a damaged entry of file[:end], by its length or by that with one wrong bit. It has to
    lead to an intact entry that may follow, or to `end`; with the bit changed, its checksum has to
    be right as well. None if nothing of that is so.

    Asked before bytes are searched: whole messages may lie inside a compressed one.
    """
    buffer = file.pread(min(HEADER_SIZE, end - position), position)
    if len(buffer) < ENTRY_PREFIX:
        return None
    length: int = INT32.unpack_from(buffer, LENGTH_POSITION)[0]
    magic = buffer[MAGIC_POSITION]

    def leads_on(at: int) -> bool:
        if at >= end:
            return at == end
        following = header_at(file, at, end)
        return isinstance(following, Entry) and may_follow(following) and is_intact(file, following)

    for bit in range(LENGTH_BITS if magic < len(MIN_LENGTHS) else 0):
        right = length ^ 1 << bit
        stop = position + right + ENTRY_OVERHEAD
        if right >= MIN_LENGTHS[magic] and leads_on(stop):
            entry = Entry(position, stop - position, magic, buffer, 0)
            if is_intact(file, entry):
                return stop
    stop = position + length + ENTRY_OVERHEAD
    return stop if length > 0 and leads_on(stop) else None


def next_entries(
    file: File, position: int, limit: int, end: int, lowest: int, highest: int
) -> Iterator[Entry]:
    """The whole entries of file[:end] that begin in position..limit-1, at whatever byte, and have
    offsets in lowest..highest. The search is given up where it becomes too long."""
    pattern = header_pattern(lowest, highest)
    tries = SEARCH_TRIES
    sums = SEARCH_SUMS * (limit - position) + SEARCH_SUMS_FREE
    while position < limit:
        wanted = min(PIECE_BYTES, limit - position)
        buffer = file.pread(min(wanted + ENTRY_PREFIX - 1, end - position), position)
        for match in pattern.finditer(buffer):
            tries -= 1
            if tries <= 0 or sums <= 0:
                return
            entry = header_at(file, position + match.start(), end)
            if isinstance(entry, str):
                continue
            if not lowest <= entry.first_offset <= entry.last_offset <= highest:
                continue
            sums -= entry.size
            if is_intact(file, entry):
                yield entry
        position += wanted


# One bit that is wrong


def is_altered_entry(data: bytes) -> bool:
    """Whether bytes are one entry of which a header field outside the checksum, or one bit, is
    another than when it was written.

    A crash leaves bytes out, or zeros or old ones in their place. It does not turn one bit. So such
    an entry was written whole, and whatever follows it was, too.
    """
    if not ENTRY_PREFIX + 8 < len(data) <= ALTERED_BYTES_MAX:
        return False
    found: list[tuple[int, int, Callable[[bytes], int], int]] = []
    if len(data) >= HEADER_SIZE:
        found.append((CRC_POSITION, CHECKED_POSITION, crc32c, CRC32C_POLYNOMIAL))
    found.append((MESSAGE_CRC_POSITION, MESSAGE_CHECKED_POSITION, crc32, CRC32_POLYNOMIAL))
    for crc_position, first, compute, polynomial in found:
        stated = UINT32.unpack_from(data, crc_position)[0]
        difference = compute(data[first:]) ^ stated
        at = wrong_byte(difference, len(data) - first, polynomial)
        # An end that was not written may be zeros in the place of little more than zeros.
        if at is not None and (at < 0 or any(data[first + at :])):
            return True
    return False
