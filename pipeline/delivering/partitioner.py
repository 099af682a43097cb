"""The partition of a record that names none, as Kafka's own producer chooses.

By the murmur2 hash of its key; without a key, to one partition for as long as a batch lasts, and
then to the next (KIP-480).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 0x9747B28C
MULTIPLIER = np.uint32(0x5BD1E995)


def murmur2(keys: pa.Array) -> NDArray[np.uint32]:
    """The 32-bit MurmurHash2 of each key of a binary array, with the seed of Kafka's producer.

    All keys advance together, four bytes at a time; what a null has is unspecified.
    """
    offsets, data = _offsets_and_bytes(keys)
    starts, lengths = offsets[:-1], np.diff(offsets)
    # The longest first: those that still have a word left are always the first ones.
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    words = lengths // 4
    hashes = np.uint32(SEED) ^ lengths.astype(np.uint32)
    for step in range(int(words[0]) if len(words) else 0):
        active = int(np.searchsorted(-words, -step))
        word = _word(data, starts[:active] + 4 * step)
        word *= MULTIPLIER
        word ^= word >> np.uint32(24)
        word *= MULTIPLIER
        hashes[:active] = (hashes[:active] * MULTIPLIER) ^ word
    _mix_tails(hashes, data, starts + 4 * words, lengths % 4)
    hashes ^= hashes >> np.uint32(13)
    hashes *= MULTIPLIER
    hashes ^= hashes >> np.uint32(15)
    in_order = np.empty_like(hashes)
    in_order[order] = hashes
    return in_order


def by_key(keys: pa.Array, partitions: int) -> NDArray[np.int32]:
    """The partition of each key, of a topic with so many."""
    positive = murmur2(keys) & np.uint32(0x7FFF_FFFF)
    return (positive % np.uint32(partitions)).astype(np.int32)


class Sticky:
    """The partitions of records without a key: a batch's worth to one, then to the next.

    `start` is where to begin, so that tasks that run at the same time begin at different ones.
    """

    def __init__(self, start: int, batch_bytes: int) -> None:
        self._turn = start
        self._batch_bytes = batch_bytes
        self._filled = 0

    def spread(self, rows: int, row_bytes: float, partitions: int) -> NDArray[np.int32]:
        """The partition of each of so many rows in a row, each of about so many bytes."""
        per_batch = max(1, int(self._batch_bytes / max(row_bytes, 1.0)))
        # What a turn was filled to in bytes carries over to rows of another size.
        begun = int(self._filled / max(row_bytes, 1.0))
        turns = (begun + np.arange(rows)) // per_batch
        self._filled = int((begun + rows) % per_batch * row_bytes)
        chosen = (self._turn + turns) % partitions
        self._turn += (begun + rows) // per_batch
        return chosen.astype(np.int32)


def _offsets_and_bytes(keys: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    buffers = keys.buffers()
    if buffers[1] is None:
        return np.zeros(len(keys) + 1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(buffers[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.zeros(0, np.uint8)
    return offsets.astype(np.int64), data


def _word(data: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[Any]:
    word = data[places].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[places + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mix_tails(
    hashes: NDArray[np.uint32],
    data: NDArray[np.uint8],
    places: NDArray[np.int64],
    left: NDArray[np.int64],
) -> None:
    """The one to three bytes behind the last whole word of each key."""
    for byte in (2, 1, 0):
        has = left > byte
        hashes[has] ^= data[places[has] + byte].astype(np.uint32) << np.uint32(8 * byte)
    hashes[left > 0] *= MULTIPLIER
