"""The header of lz4 frames. The checksums are those that lz4 and Kafka 0.8.2's own classes give."""

from __future__ import annotations

import random

import lz4.frame
import pytest

from protocol.records.errors import InvalidRecord
from protocol.records.lz4_frame import (
    FRAME_MAGIC,
    broken_checksum,
    check_header,
    right_checksum,
    right_header,
    with_broken_checksum,
    xxh32,
)


@pytest.mark.parametrize(
    ("descriptor", "right", "broken"),
    [("6040", 0x82, 0x1A), ("6440", 0xA7, 0x0C), ("7040", 0xAD, 0xEC), ("6070", 0x73, 0x10)],
)
def test_the_right_and_the_broken_checksum_of_common_headers(
    descriptor: str, right: int, broken: int
) -> None:
    header = FRAME_MAGIC + bytes.fromhex(descriptor)
    assert right_checksum(header) == right
    assert broken_checksum(header) == broken


@pytest.mark.parametrize(
    ("data", "hash_"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)],
)
def test_xxh32_has_its_published_values(data: bytes, hash_: int) -> None:
    assert xxh32(data) == hash_


@pytest.mark.parametrize("seed", range(20))
def test_the_right_checksum_is_the_one_that_lz4_writes(seed: int) -> None:
    # given frames of all sizes, with and without their content's size and a checksum of it
    rng = random.Random(seed)
    frame = lz4.frame.compress(
        rng.randbytes(1 + rng.randrange(1 << rng.randrange(20))),
        block_size=rng.choice((4, 5, 6, 7)),
        block_linked=False,
        store_size=bool(seed & 1),
        content_checksum=bool(seed & 2),
        block_checksum=bool(seed & 4),
    )
    # then
    size = check_header(memoryview(frame))
    assert size == (15 if seed & 1 else 7)
    assert right_checksum(frame[: size - 1]) == frame[size - 1]
    spoiled = memoryview(frame[: size - 1] + bytes((frame[size - 1] ^ 0x55,)))
    assert right_header(spoiled, size) == frame[:size]


def test_only_the_header_checksum_tells_a_frame_of_format_0() -> None:
    frame = lz4.frame.compress(b"abc", block_size=4, block_linked=False, store_size=False)
    old = with_broken_checksum(frame)
    assert (frame[6], old[6]) == (0x82, 0x1A)
    assert (frame[:6], frame[7:]) == (old[:6], old[7:])


@pytest.mark.parametrize("size", range(15))
def test_a_header_cut_anywhere_is_refused(size: int) -> None:
    frame = lz4.frame.compress(b"abc", block_size=4, block_linked=False, store_size=True)
    check_header(memoryview(frame[:15]))
    with pytest.raises(InvalidRecord):
        check_header(memoryview(frame[:size]))
