"""Payloads of entries, decompressed and compressed; a codec that is not installed is one line."""

from __future__ import annotations

from pipeline.errors import CodecMissing
from protocol.records.batch import MAX_DECOMPRESSED_BYTES
from protocol.records.compression import NAMES, compress, decompress

ANY_RATIO = MAX_DECOMPRESSED_BYTES
"""A broker of ours bounds how well a batch may compress. Kafka does not, and what it has stored is
to be read: only the size is bounded."""


def expand(codec: int, payload: bytes | memoryview, *, magic: int = 2) -> bytes:
    """The decompressed payload, at most MAX_DECOMPRESSED_BYTES.

    Raises InvalidRecord as `compression.decompress`, and CodecMissing.
    """
    try:
        return decompress(
            codec, payload, limit=MAX_DECOMPRESSED_BYTES, ratio=ANY_RATIO, magic=magic
        )
    except ImportError as error:
        raise codec_missing(codec, error) from None


def shrink(
    codec: int, payload: bytes | memoryview, *, magic: int = 2, level: int | None = None
) -> bytes:
    """The compressed payload. Raises as `compression.compress`, and CodecMissing."""
    try:
        return compress(codec, payload, magic=magic, level=level)
    except ImportError as error:
        raise codec_missing(codec, error) from None


def codec_missing(codec: int, error: ImportError) -> CodecMissing:
    """The error for a codec whose package cannot be imported."""
    return CodecMissing(
        f"codec {NAMES[codec]} needs the Python package {error.name}, which is not installed "
        "here: install it on every machine that runs tasks"
    )
