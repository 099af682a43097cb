"""The header of an lz4 frame, which Kafka restricts and whose checksum format 0 gets wrong.

    0..3    magic              04 22 4d 18
    4       FLG                bits 6-7 version 1; 5 independent blocks; 4 block checksums;
                               3 content size; 2 content checksum; 1 unused; 0 dictionary id
    5       BD                 bits 4-6 largest block: 4 64 KiB, 5 256 KiB, 6 1 MiB, 7 4 MiB
    6..     content size       int64, little-endian, if FLG says so
    then    HC                 header checksum, the second byte of an xxh32

Kafka reads independent blocks only, and no dictionaries. Kafka 0.8.2 and 0.9 computed HC over the
magic as well, and refuse any other (KAFKA-3160). So format 0 is written with that broken checksum
and read without looking at it; from format 1 on it must be right.
"""

from __future__ import annotations

from struct import Struct

from protocol.records.errors import InvalidRecord

FRAME_MAGIC = b"\x04\x22\x4d\x18"
DESCRIPTOR_POSITION = 4
CHECKSUM_POSITION = 6
"""Position of HC in a frame without a content size, which is all we write."""
SHORTEST_HEADER = 7
LONGEST_HEADER = 15

VERSION_1 = 0x40
INDEPENDENT_BLOCKS = 0x20
CONTENT_SIZE = 0x08
UNWANTED_FLAGS = 0x83
"""A version with the high bit, the unused bit and the dictionary bit."""
UNWANTED_BLOCK_BITS = 0x8F

_PRIME_1 = 0x9E37_79B1
_PRIME_2 = 0x85EB_CA77
_PRIME_3 = 0xC2B2_AE3D
_PRIME_4 = 0x27D4_EB2F
_PRIME_5 = 0x1656_67B1
_MASK = 0xFFFF_FFFF
_LITTLE_UINT32 = Struct("<I")


def xxh32(data: bytes) -> int:
    """The 32-bit xxHash of fewer than 16 bytes with seed 0: a frame's header never has more.

    The hash of longer input begins with four more accumulators, which nobody here needs.
    """
    assert len(data) < 16
    words = len(data) & ~3
    number = _PRIME_5 + len(data)
    for position in range(0, words, 4):
        number = (number + _LITTLE_UINT32.unpack_from(data, position)[0] * _PRIME_3) & _MASK
        number = (number << 17 | number >> 15) * _PRIME_4 & _MASK
    for byte in data[words:]:
        number = (number + byte * _PRIME_5) & _MASK
        number = (number << 11 | number >> 21) * _PRIME_1 & _MASK
    number = (number ^ number >> 15) * _PRIME_2 & _MASK
    number = (number ^ number >> 13) * _PRIME_3 & _MASK
    return number ^ number >> 16


def right_checksum(header: bytes) -> int:
    """HC as the lz4 format defines it, of the bytes of a frame before it."""
    return xxh32(header[DESCRIPTOR_POSITION:]) >> 8 & 0xFF


def broken_checksum(header: bytes) -> int:
    """HC as Kafka 0.8.2 and 0.9 compute and demand it, of the bytes of a frame before it."""
    return xxh32(header) >> 8 & 0xFF


def with_broken_checksum(frame: bytes) -> bytes:
    """A frame without content size, as a client of format 0 wants it."""
    assert not frame[DESCRIPTOR_POSITION] & CONTENT_SIZE
    checksum = broken_checksum(frame[:CHECKSUM_POSITION])
    return b"".join((frame[:CHECKSUM_POSITION], bytes((checksum,)), frame[SHORTEST_HEADER:]))


def check_header(data: memoryview) -> int:
    """Size of the header of this frame in bytes, HC included.

    Raises InvalidRecord for a frame that Kafka's decoder would not read. HC itself is left to the
    library.
    """
    if len(data) < SHORTEST_HEADER or bytes(data[:DESCRIPTOR_POSITION]) != FRAME_MAGIC:
        raise InvalidRecord("lz4 payload does not begin with a frame")
    flags, block_descriptor = data[DESCRIPTOR_POSITION], data[DESCRIPTOR_POSITION + 1]
    if flags & (UNWANTED_FLAGS | VERSION_1) != VERSION_1 or not flags & INDEPENDENT_BLOCKS:
        raise InvalidRecord(
            f"lz4 frame flags {flags:#04x}: wanted version 1, independent blocks, no dictionary"
        )
    if block_descriptor & UNWANTED_BLOCK_BITS or block_descriptor >> 4 < 4:
        raise InvalidRecord(f"lz4 block descriptor {block_descriptor:#04x}: wanted 0x40 to 0x70")
    size = LONGEST_HEADER if flags & CONTENT_SIZE else SHORTEST_HEADER
    if len(data) < size:
        raise InvalidRecord(f"lz4 payload of {len(data)} bytes ends inside its header")
    return size


def right_header(data: memoryview, size: int) -> bytes:
    """The header of `size` bytes at the start of `data`, with the right checksum in its place."""
    header = bytes(data[: size - 1])
    return header + bytes((right_checksum(header),))
