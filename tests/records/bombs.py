"""Payloads of at most a few MiB that expand to a gibibyte, one per codec."""

from __future__ import annotations

import struct
import zlib

EXPANDED_BYTES = 1 << 30


def gzip_bomb() -> bytes:
    """One MiB of deflated zeros a thousand times over, in one member."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    mebibyte = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + mebibyte * 1024 + deflate.flush()


def snappy_bomb() -> bytes:
    """Blocks that keep their word, in the xerial framing."""
    import cramjam

    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 24)))
    return b"\x82SNAPPY\0" + bytes(8) + (struct.pack(">i", len(block)) + block) * 64


def lz4_bomb() -> bytes:
    import lz4.block

    block: bytes = lz4.block.compress(bytes(1 << 22), store_size=False)
    return (
        bytes.fromhex("04224d18607073") + (struct.pack("<I", len(block)) + block) * 256 + bytes(4)
    )


def zstd_bomb() -> bytes:
    """Blocks of one repeated byte, four bytes each, in a frame that states no size."""
    repeat = 1 << 1 | (1 << 17) << 3
    block = struct.pack("<I", repeat)[:3] + b"\0"
    end = struct.pack("<I", repeat | 1)[:3] + b"\0"
    return bytes.fromhex("28b52ffd0058") + block * 8191 + end


BOMBS = {1: gzip_bomb, 2: snappy_bomb, 3: lz4_bomb, 4: zstd_bomb}
