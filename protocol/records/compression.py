"""The four codecs of Kafka, with two bounds on what they may expand to.

Codec  Read                                         Written
gzip   several members; what follows them is        one member
       ignored unless it begins another
snappy raw blocks and the xerial framing            xerial framing, blocks of 32 KiB, which
                                                    every client reads
lz4    the first frame, with independent blocks     FLG 60, BD 40: independent blocks of 64 KiB,
       (Kafka's own restriction); in format 0 with  no sizes; HC 82, the right checksum of the
       any header checksum, else with the right one header, or in format 0 the broken one, 1a
zstd   several frames, skippable frames;            one frame
       not in formats 0 and 1

A payload may expand to `limit` bytes (max.decompressed.batch.bytes) and, beyond 1 MiB, to `ratio`
times its own size (max.decompression.ratio). A claimed size is used to refuse early and never to
allocate: each format can claim gigabytes in a few bytes.

The libraries are imported when a codec is first met. All of them release the interpreter lock, so
that large payloads may be handled in a thread.
"""

from __future__ import annotations

from io import BytesIO
from struct import Struct
from struct import error as StructError

from protocol.errors import ErrorCode
from protocol.records.errors import InvalidRecord
from protocol.records.lz4_frame import check_header, right_header, with_broken_checksum

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

GZIP_LEVEL = -1
LZ4_LEVEL = 9
ZSTD_LEVEL = 3
"""The levels where none is asked for: Kafka's defaults (KIP-390), and those of our settings."""

DEFAULT_RATIO = 2_000
"""Largest ratio of expansion of a payload where the caller has no setting. No gzip payload reaches
it: deflate makes at most 1032 bytes out of one, and that only of a single repeated byte.
"""
ANY_RATIO_BYTES = 1_048_576
"""Bytes that any payload may expand to, whatever its size: no ratio makes so few a danger."""

CALLS = {"compress": dict.fromkeys(NAMES[1:], 0), "decompress": dict.fromkeys(NAMES[1:], 0)}
"""Calls so far that did work, by codec, for the metrics.

The event loop and one worker thread count here without a lock. CPython changes threads only between
bytecodes of certain kinds, calls and jumps back, and `counters[name] += 1` has none between its
reading and its writing. Were that to change, a metric would be one too low once in a while.
"""

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES = 32_768
SNAPPY_MAX_RATIO = 32
"""More than a snappy block can expand: its best element makes 64 bytes out of 3."""
MAX_RATIOS = (1, 1_032, SNAPPY_MAX_RATIO, 255, 32_768)
"""Largest possible ratio of expansion, by codec, whatever anybody allows. Deflate makes at most 258
bytes out of 2 bits, lz4 255 out of one more byte of a match's length, and zstd a block of 128 KiB
out of 4 bytes."""

GZIP_PIECE_BYTES = 16_384
"""Input is handed to zlib in pieces: it copies what follows a member, and a payload may consist of
many thousands of empty ones."""
EXPANDED_PIECE_BYTES = 262_144
"""Output is made and copied in pieces: the libraries let other threads run while they expand, but
not while they put together what they made. For 100 MiB at once these would wait 100 ms."""

ZSTD_MAX_BLOCK_BYTES = 131_072
ZSTD_MAX_WINDOW_BYTES = 1 << 27
"""Kafka's decoder refuses frames that want a larger window."""
ZSTD_MAGIC = 0xFD2FB528
ZSTD_SKIPPABLE_MAGIC = 0x184D2A50

_BLOCK_SIZE = Struct(">i")
_LITTLE_UINT32 = Struct("<I")


class _TooLarge(Exception):
    """The payload expands beyond the bound; `decompress` knows which setting that came from."""


def compress(
    codec: int, data: bytes | bytearray | memoryview, *, magic: int = 2, level: int | None = None
) -> bytes:
    """The payload that `decompress` with the same codec and magic turns back into `data`.

    `magic` is the format the payload is for. `level` is that of the codec's own setting: for gzip
    -1 or 1..9, for lz4 1..17, for zstd -131072..22; snappy has none and ignores it. As in Kafka,
    lz4 level 9, the default, means the fast compressor, and 3 or more otherwise the thorough one.
    Raises InvalidRecord for zstd in format 0 or 1, whose readers do not know it (KIP-110).
    """
    if codec == NONE:
        return bytes(data)
    if not 0 <= codec <= ZSTD:
        raise ValueError(f"codec {codec}, known are 0 to 4")
    _refuse_old_zstd(codec, magic)
    CALLS["compress"][NAMES[codec]] += 1
    if codec == GZIP:
        import zlib

        compressor = zlib.compressobj(GZIP_LEVEL if level is None else level, zlib.DEFLATED, 31)
        return compressor.compress(data) + compressor.flush()
    if codec == LZ4:
        import lz4.frame

        frame: bytes = lz4.frame.compress(
            data,
            compression_level=0 if level is None or level == LZ4_LEVEL else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return frame if magic else with_broken_checksum(frame)
    if codec == ZSTD:
        import cramjam

        return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL if level is None else level))
    return _compress_xerial(data)


def decompress(
    codec: int,
    data: bytes | bytearray | memoryview,
    *,
    limit: int,
    ratio: int = DEFAULT_RATIO,
    magic: int = 2,
) -> bytes:
    """Decompress `data`, the payload of an entry of format `magic`.

    The result is at most `limit` bytes (max.decompressed.batch.bytes), and at most the larger of
    1 MiB and `ratio` times the size of `data` (max.decompression.ratio).

    Raises InvalidRecord: with INVALID_RECORD for an unknown codec, for zstd in format 0 or 1 and
    for bytes that are not a stream of this codec, with MESSAGE_TOO_LARGE for a stream that expands
    beyond a bound; the text names the setting.
    """
    if codec == NONE:
        return bytes(data)
    if not 0 <= codec <= ZSTD:
        raise InvalidRecord(f"codec {codec}, known are 0 to 4")
    _refuse_old_zstd(codec, magic)
    CALLS["decompress"][NAMES[codec]] += 1
    allowed = max(ANY_RATIO_BYTES, ratio * len(data))
    bound = min(limit, allowed)
    view = memoryview(data)
    try:
        if codec == GZIP:
            return _decompress_gzip(view, bound)
        if codec == SNAPPY:
            return _decompress_snappy(view, bound)
        if codec == LZ4:
            return _decompress_lz4(view, bound, magic)
        return _decompress_zstd(view, bound)
    except _TooLarge:
        setting = (
            "max.decompressed.batch.bytes"
            if limit <= allowed
            else f"max.decompression.ratio {ratio} for {len(data)} bytes"
        )
        raise InvalidRecord(
            f"{NAMES[codec]} payload expands beyond {bound} bytes ({setting})",
            ErrorCode.MESSAGE_TOO_LARGE,
        ) from None


def _refuse_old_zstd(codec: int, magic: int) -> None:
    if codec == ZSTD and magic < 2:
        raise InvalidRecord(f"zstd in format {magic}, it needs format 2")


def _decompress_gzip(data: memoryview, limit: int) -> bytes:
    import zlib

    expanded = BytesIO()
    total = position = 0
    while True:
        member = zlib.decompressobj(31)
        while not member.eof:
            piece = data[position : position + GZIP_PIECE_BYTES]
            try:
                part = member.decompress(piece, min(limit - total + 1, EXPANDED_PIECE_BYTES))
            except zlib.error as error:
                raise InvalidRecord(f"gzip payload is damaged: {error}") from None
            if not piece and not part:
                raise InvalidRecord(f"gzip payload of {len(data)} bytes ends inside a member")
            total += expanded.write(part)
            if total > limit:
                raise _TooLarge
            position += len(piece) - len(member.unconsumed_tail) - len(member.unused_data)
        # Ten bytes are a member's header. Java ignores whatever follows a member and is not one.
        if len(data) - position < 10 or bytes(data[position : position + 3]) != b"\x1f\x8b\x08":
            return expanded.getvalue()


def _compress_xerial(data: bytes | bytearray | memoryview) -> bytes:
    import snappy

    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for position in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = snappy.compress(view[position : position + XERIAL_BLOCK_BYTES])
        out += _BLOCK_SIZE.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    """Either layout. Only the first 8 bytes tell them apart: the version fields that follow are
    written in the wrong byte order by some brokers, and Kafka does not look at them."""
    if bytes(data[:8]) != XERIAL_MAGIC:
        return _expand_snappy_block(data, limit)
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
        part = _expand_snappy_block(data[position : position + size], left)
        left -= len(part)
        parts.append(part)
        position += size
    return b"".join(parts)


def _expand_snappy_block(block: memoryview, left: int) -> bytes:
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
        raise _TooLarge
    if claimed > len(block) * SNAPPY_MAX_RATIO:
        raise InvalidRecord(f"snappy block of {len(block)} bytes claims to expand to {claimed}")
    import snappy

    try:
        block_bytes: bytes = snappy.uncompress(block)
    except snappy.UncompressError as error:
        raise InvalidRecord(f"snappy block is damaged: {error.__cause__}") from None
    return block_bytes


def _decompress_lz4(data: memoryview, limit: int, magic: int) -> bytes:
    """One frame. Kafka's decoder stops after the first frame; what it would not read must not be
    stored. Checksums are left to the library, but for that of a header in format 0."""
    header_size = check_header(data)
    import lz4.frame

    decoder = lz4.frame.LZ4FrameDecompressor()
    expanded = BytesIO()
    total = 0
    piece: bytes | memoryview = data
    try:
        if not magic:
            decoder.decompress(right_header(data, header_size))
            piece = data[header_size:]
        while not decoder.eof:
            part = decoder.decompress(piece, min(limit - total + 1, EXPANDED_PIECE_BYTES))
            total += len(part)
            if total > limit:
                raise _TooLarge
            if not part and not decoder.eof and decoder.needs_input:
                raise InvalidRecord(f"lz4 payload of {len(data)} bytes ends inside its frame")
            expanded.write(part)
            piece = b""
    except (RuntimeError, EOFError) as error:
        raise InvalidRecord(f"lz4 frame is damaged: {error}") from None
    return expanded.getvalue()


def _decompress_zstd(data: memoryview, limit: int) -> bytes:
    """The library expands into a buffer that must be there beforehand. Going over the frames'
    and blocks' headers gives an upper bound for it that no lie can raise far: a block makes at most
    128 KiB, and costs its sender three bytes. No bytes at all are no frames, which is legal."""
    if not data:
        return b""
    bound = 0
    position = 0
    while position < len(data):
        position, size, _ = measure_zstd_frame(data, position, limit)
        bound += size
    if not bound:
        bound = 1  # frames of nothing are still checked by the library
    import cramjam

    # Memory that is zero and was never touched: to fill 100 MiB here would hold up other threads.
    expanded = BytesIO(bytes(min(bound, limit)))
    try:
        with expanded.getbuffer() as room:
            size = cramjam.zstd.decompress_into(data, room)
    except cramjam.DecompressionError as error:
        if bound > limit:
            raise _TooLarge from None
        raise InvalidRecord(f"zstd payload is damaged: {error}") from None
    expanded.truncate(size)
    return expanded.getvalue()


def measure_zstd_frame(data: memoryview, position: int, limit: int) -> tuple[int, int, int]:
    """The position after the frame at `position`, the most it can expand to, in bytes, and its
    blocks. Raises InvalidRecord for what is no frame, _TooLarge for one that states more than
    `limit` bytes."""
    start = position
    try:
        (magic,) = _LITTLE_UINT32.unpack_from(data, position)
        if magic & 0xFFFF_FFF0 == ZSTD_SKIPPABLE_MAGIC:
            (size,) = _LITTLE_UINT32.unpack_from(data, position + 4)
            position += 8 + size
            if position > len(data):
                raise InvalidRecord(f"zstd payload ends inside the frame at byte {start}")
            return position, 0, 0
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
            raise _TooLarge
        if single_segment:
            window = claimed
        if window > ZSTD_MAX_WINDOW_BYTES:
            raise InvalidRecord(f"zstd frame wants a window of {window} bytes")
        position += width
        bound = blocks = 0
        last = False
        while not last:
            word = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            last, kind, size = bool(word & 1), word >> 1 & 3, word >> 3
            position += 3 + (1 if kind == 1 else size)
            bound += size if kind < 2 else ZSTD_MAX_BLOCK_BYTES
            blocks += 1
        if descriptor & 4:
            position += 4
        if position > len(data):
            raise IndexError
    except (IndexError, StructError):
        raise InvalidRecord(f"zstd payload ends inside the frame at byte {start}") from None
    return position, min(bound, claimed) if width else bound, blocks
