"""Varints of many records at once, as `protocol.records.record` reads and writes them one by one.

Nearly all varints have one byte or two. These are read for all records together; longer ones are
then read for the few records that have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Bytes: TypeAlias = NDArray[np.uint8]
    Numbers: TypeAlias = NDArray[np.int64]

VARINT_BYTES = 5
VARLONG_BYTES = 10
NOWHERE = 1 << 40
"""Where a varint that has too many bytes ends: behind all that any buffer here has."""


def read_varints(data: Bytes, at: Numbers, longest: int = VARINT_BYTES) -> tuple[Numbers, Numbers]:
    """The numbers at these positions, and the positions after them.

    Positions outside of `data`, which must not be empty, read its first or last byte: whoever
    calls compares where each record ends with where it should. `longest` is VARINT_BYTES, whose
    bits beyond the 32nd are dropped, or VARLONG_BYTES.
    """
    # In 16 bits, which hold what two bytes say, most of the work costs a quarter.
    first = data.take(at, mode="clip")
    after = at + 1
    longer = first > 0x7F
    if not longer.any():
        return _signed(first.astype(np.int16)), after
    second = data.take(after, mode="clip")
    bits = (first & 0x7F).astype(np.int16)
    bits |= ((second & 0x7F) * longer).astype(np.int16) << 7
    after += longer
    numbers = _signed(bits)
    rest = np.flatnonzero(longer & (second > 0x7F))
    if rest.size:
        numbers[rest], after[rest] = _read_rest(data, bits[rest], after[rest], longest)
    return numbers, after


def _signed(bits: NDArray[np.int16]) -> Numbers:
    return ((bits >> 1) ^ -(bits & 1)).astype(np.int64)


def _read_rest(
    data: Bytes, start: NDArray[np.int16], at: Numbers, longest: int
) -> tuple[Numbers, Numbers]:
    """The numbers whose first two bytes gave the bits `start` and which go on at `at`."""
    bits = start.astype(np.uint64)
    after = at.copy()
    open_ = np.arange(at.size)
    for index in range(2, longest):
        byte = data.take(after[open_], mode="clip")
        bits[open_] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * index)
        after[open_] += 1
        open_ = open_[byte > 0x7F]
        if not open_.size:
            break
    after[open_] = NOWHERE
    if longest == VARINT_BYTES:
        bits &= np.uint64(0xFFFF_FFFF)
    one = np.uint64(1)
    return (bits >> one).astype(np.int64) ^ -(bits & one).astype(np.int64), after


def varint_sizes(numbers: Numbers) -> Numbers:
    """The bytes of the shortest form of each number."""
    bits = _zigzag(numbers)
    sizes = np.ones(numbers.size, dtype=np.int64)
    largest = int(bits.max(initial=0))
    width = 7
    while largest >> width:
        sizes += bits >= np.uint64(1 << width)
        width += 7
    return sizes


def write_varints(out: Bytes, at: Numbers, numbers: Numbers, sizes: Numbers) -> None:
    """Write each number to its position; `sizes` are those of `varint_sizes`."""
    bits = _zigzag(numbers)
    out[at] = _byte(bits, sizes > 1)
    for index in range(1, int(sizes.max(initial=0))):
        rest = np.flatnonzero(sizes > index)
        out[at[rest] + index] = _byte(bits[rest] >> np.uint64(7 * index), sizes[rest] > index + 1)


def _zigzag(numbers: Numbers) -> NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _byte(bits: NDArray[np.uint64], goes_on: NDArray[np.bool_]) -> Bytes:
    return bits.astype(np.uint8) & np.uint8(0x7F) | (goes_on.astype(np.uint8) << np.uint8(7))
