"""The four codecs of Kafka, with a bound on what they may expand to.

Codec  Read                                         Written
gzip   several members; what follows them is        one member, level 6
       ignored unless it begins another
snappy raw blocks and the xerial framing            xerial framing, blocks of 32 KiB, which
                                                    every client reads
lz4    the first frame, with independent blocks     FLG 60, BD 40: independent blocks of 64 KiB,
       (Kafka's own restriction)                    no sizes, no checksums
zstd   several frames, skippable frames             one frame, level 3

A claimed size is used to refuse early and never to allocate: each format can claim gigabytes in
a few bytes. `limit` is always the setting max.decompressed.batch.bytes.

The libraries are imported when a codec is first met. All of them release the interpreter lock, so
that large payloads may be handled in a thread.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from protocol.errors import ErrorCode
from protocol.records.errors import InvalidRecord

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

GZIP_LEVEL = 6
ZSTD_LEVEL = 3

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES = 32_768
SNAPPY_MAX_RATIO = 32
"""More than a snappy block can expand: its best element makes 64 bytes out of 3."""

GZIP_PIECE_BYTES = 16_384
"""Input is handed to zlib in pieces: it copies what follows a member, and a payload may consist of
many thousands of empty ones."""
LZ4_PIECE_BYTES = 1_048_576

ZSTD_MAX_BLOCK_BYTES = 131_072
ZSTD_MAX_WINDOW_BYTES = 1 << 27
"""Kafka's decoder refuses frames that want a larger window."""
ZSTD_MAGIC = 0xFD2FB528
ZSTD_SKIPPABLE_MAGIC = 0x184D2A50

_BLOCK_SIZE = Struct(">i")
_LITTLE_UINT32 = Struct("<I")


def compress(codec: int, data: bytes | bytearray | memoryview) -> bytes:
    """The payload that `decompress` with the same codec turns back into `data`."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        import zlib

        compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 31)
        return compressor.compress(data) + compressor.flush()
    if codec == LZ4:
        import lz4.frame

        frame: bytes = lz4.frame.compress(
            data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
        )
        return frame
    if codec == ZSTD:
        import cramjam

        return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL))
    if codec == SNAPPY:
        return _compress_xerial(data)
    raise ValueError(f"codec {codec}, known are 0 to 4")


def decompress(codec: int, data: bytes | bytearray | memoryview, *, limit: int) -> bytes:
    """What `data` expands to, at most `limit` bytes (max.decompressed.batch.bytes).

    Raises InvalidRecord: with INVALID_RECORD for an unknown codec and for bytes that are not a
    stream of this codec, with MESSAGE_TOO_LARGE for a stream that expands beyond the limit.
    """
    if codec == GZIP:
        return _decompress_gzip(memoryview(data), limit)
    if codec == SNAPPY:
        return _decompress_snappy(memoryview(data), limit)
    if codec == LZ4:
        return _decompress_lz4(memoryview(data), limit)
    if codec == ZSTD:
        return _decompress_zstd(memoryview(data), limit)
    if codec == NONE:
        return bytes(data)
    raise InvalidRecord(f"codec {codec}, known are 0 to 4")


def _too_large(codec: str, limit: int) -> InvalidRecord:
    return InvalidRecord(
        f"{codec} payload expands beyond {limit} bytes (max.decompressed.batch.bytes)",
        ErrorCode.MESSAGE_TOO_LARGE,
    )


def _decompress_gzip(data: memoryview, limit: int) -> bytes:
    import zlib

    parts: list[bytes] = []
    total = position = 0
    while True:
        member = zlib.decompressobj(31)
        while not member.eof:
            piece = data[position : position + GZIP_PIECE_BYTES]
            if not piece:
                raise InvalidRecord(f"gzip payload of {len(data)} bytes ends inside a member")
            try:
                part = member.decompress(piece, limit - total + 1)
            except zlib.error as error:
                raise InvalidRecord(f"gzip payload is damaged: {error}") from None
            total += len(part)
            if total > limit:
                raise _too_large("gzip", limit)
            if part:
                parts.append(part)
            position += len(piece) - len(member.unused_data)
        # Ten bytes are a member's header. Java ignores whatever follows a member and is not one.
        if len(data) - position < 10 or bytes(data[position : position + 3]) != b"\x1f\x8b\x08":
            return b"".join(parts)


def _compress_xerial(data: bytes | bytearray | memoryview) -> bytes:
    import cramjam

    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for position in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[position : position + XERIAL_BLOCK_BYTES]))
        out += _BLOCK_SIZE.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    """Either layout. Only the first 8 bytes tell them apart: the version fields that follow are
    written in the wrong byte order by some brokers, and Kafka does not look at them."""
    if bytes(data[:8]) != XERIAL_MAGIC:
        return _expand_snappy_block(data, limit, limit)
    if len(data) < len(XERIAL_HEADER):
        raise InvalidRecord(f"snappy payload of {len(data)} bytes ends inside its header")
    position = len(XERIAL_HEADER)
    parts: list[bytes] = []
    left = limit
    while len(data) - position >= 4:  # one to three stray bytes at the end are ignored
        if bytes(data[position : position + 8]) == XERIAL_MAGIC:  # another stream follows
            position += len(XERIAL_HEADER)
            if position > len(data):
                raise InvalidRecord("snappy payload ends inside the header of a further stream")
            continue
        size = _BLOCK_SIZE.unpack_from(data, position)[0]
        position += 4
        if not 0 < size <= len(data) - position:
            raise InvalidRecord(f"snappy block of {size} bytes with {len(data) - position} left")
        part = _expand_snappy_block(data[position : position + size], left, limit)
        left -= len(part)
        parts.append(part)
        position += size
    return b"".join(parts)


def _expand_snappy_block(block: memoryview, left: int, limit: int) -> bytes:
    claimed = shift = position = 0
    while True:
        if position == len(block) or position == 5:
            raise InvalidRecord("snappy block does not begin with its length")
        byte = block[position]
        claimed |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if byte < 0x80:
            break
    if claimed > left:
        raise _too_large("snappy", limit)
    if claimed > len(block) * SNAPPY_MAX_RATIO:
        raise InvalidRecord(f"snappy block of {len(block)} bytes claims to expand to {claimed}")
    import cramjam

    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise InvalidRecord(f"snappy block is damaged: {error}") from None


def _decompress_lz4(data: memoryview, limit: int) -> bytes:
    """One frame. Kafka's decoder knows only independent blocks and no dictionary, and stops after
    the first frame; what it would not read must not be stored. Checksums are left to the library.
    """
    if len(data) < 7 or bytes(data[:4]) != b"\x04\x22\x4d\x18":
        raise InvalidRecord("lz4 payload does not begin with a frame")
    flags, block_descriptor = data[4], data[5]
    if flags & 0xC3 != 0x40 or not flags & 0x20:
        raise InvalidRecord(
            f"lz4 frame flags {flags:#04x}: wanted version 1, independent blocks, no dictionary"
        )
    if block_descriptor & 0x8F or block_descriptor >> 4 < 4:
        raise InvalidRecord(f"lz4 block descriptor {block_descriptor:#04x}: wanted 0x40 to 0x70")
    import lz4.frame

    decoder = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    total = 0
    piece: bytes | memoryview = data
    try:
        while not decoder.eof:
            part = decoder.decompress(piece, min(limit - total + 1, LZ4_PIECE_BYTES))
            total += len(part)
            if total > limit:
                raise _too_large("lz4", limit)
            if not part and not decoder.eof and decoder.needs_input:
                raise InvalidRecord(f"lz4 payload of {len(data)} bytes ends inside its frame")
            parts.append(part)
            piece = b""
    except (RuntimeError, EOFError) as error:
        raise InvalidRecord(f"lz4 frame is damaged: {error}") from None
    return b"".join(parts)


def _decompress_zstd(data: memoryview, limit: int) -> bytes:
    """The library expands into a buffer that must be there beforehand. Going over the frames'
    and blocks' headers gives an upper bound for it that no lie can raise far: a block makes at most
    128 KiB, and costs its sender three bytes. No bytes at all are no frames, which is legal."""
    if not data:
        return b""
    bound = 0
    position = 0
    while position < len(data):
        position, size = _measure_zstd_frame(data, position, limit)
        bound += size
    if not bound:
        bound = 1  # frames of nothing are still checked by the library
    room = bytearray(min(bound, limit))
    import cramjam

    try:
        size = cramjam.zstd.decompress_into(data, room)
    except cramjam.DecompressionError as error:
        if bound > limit:
            raise _too_large("zstd", limit) from None
        raise InvalidRecord(f"zstd payload is damaged: {error}") from None
    del room[size:]
    return bytes(room)


def _measure_zstd_frame(data: memoryview, position: int, limit: int) -> tuple[int, int]:
    """The position after the frame at `position` and the most it can expand to, in bytes."""
    start = position
    try:
        (magic,) = _LITTLE_UINT32.unpack_from(data, position)
        if magic & 0xFFFF_FFF0 == ZSTD_SKIPPABLE_MAGIC:
            (size,) = _LITTLE_UINT32.unpack_from(data, position + 4)
            position += 8 + size
            if position > len(data):
                raise InvalidRecord(f"zstd payload ends inside the frame at byte {start}")
            return position, 0
        if magic != ZSTD_MAGIC:
            raise InvalidRecord(f"zstd payload has no frame at byte {start}")
        descriptor = data[position + 4]
        position += 5
        single_segment = descriptor & 0x20
        if not single_segment:
            exponent, mantissa = data[position] >> 3, data[position] & 7
            window = (1 << (10 + exponent)) * (8 + mantissa) // 8
            position += 1
        position += (0, 1, 2, 4)[descriptor & 3]  # dictionary id, which the library refuses
        width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
        claimed = int.from_bytes(data[position : position + width], "little")
        if width == 2:
            claimed += 256
        if width and claimed > limit:
            raise _too_large("zstd", limit)
        if single_segment:
            window = claimed
        if window > ZSTD_MAX_WINDOW_BYTES:
            raise InvalidRecord(f"zstd frame wants a window of {window} bytes")
        position += width
        bound = 0
        last = False
        while not last:
            word = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            last, kind, size = bool(word & 1), word >> 1 & 3, word >> 3
            position += 3 + (1 if kind == 1 else size)
            bound += size if kind < 2 else ZSTD_MAX_BLOCK_BYTES
        if descriptor & 4:
            position += 4
        if position > len(data):
            raise IndexError
    except (IndexError, StructError):
        raise InvalidRecord(f"zstd payload ends inside the frame at byte {start}") from None
    return position, min(bound, claimed) if width else bound
