"""The place of a single wrong bit, which a CRC tells.

Two checksums of as many bytes that differ in one bit have a difference of their own for each bit,
up to some 2**31 bits.
"""

from __future__ import annotations

from functools import cache

from protocol.records.crc import crc32c

CRC32C_POLYNOMIAL = 0x82F63B78
CRC32_POLYNOMIAL = 0xEDB88320


@cache
def _byte_table(polynomial: int) -> tuple[int, ...]:
    """Effect of each byte on a reflected checksum."""
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        table.append(value)
    return tuple(table)


def wrong_byte(difference: int, size: int, polynomial: int) -> int | None:
    """In which of `size` bytes one bit makes this difference between two checksums; -1 if none is
    wrong, or one of the checksum itself; None if one bit does not explain it."""
    if difference & (difference - 1) == 0:
        return -1
    table = _byte_table(polynomial)
    last_byte = {table[1 << bit] for bit in range(8)}
    index_of = {value >> 24: index for index, value in enumerate(table)}
    for at in range(size - 1, -1, -1):
        if difference in last_byte:
            return at
        # Back over one byte of zeros: as if what was summed had ended one byte earlier.
        index = index_of[difference >> 24]
        difference = (difference ^ table[index]) << 8 & 0xFFFFFFFF | index
    return None


def with_bit_right(data: bytes, stated: int) -> bytes | None:
    """These bytes with the one bit changed that gives them the stated CRC-32C; None if there is
    none."""
    at = wrong_byte(crc32c(data) ^ stated, len(data), CRC32C_POLYNOMIAL)
    if at is None or at < 0:
        return None
    for bit in range(8):
        whole = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        if crc32c(whole) == stated:
            return whole
    return None
