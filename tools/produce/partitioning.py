"""The partition of a record that names none, as Kafka's own producer chooses: by the murmur2 hash
of its key. Without a key it is up to who makes the batches (KIP-480)."""

from __future__ import annotations

from functools import lru_cache

SEED, MULTIPLIER, MASK = 0x9747B28C, 0x5BD1E995, 0xFFFF_FFFF
KEYS_REMEMBERED = 65_536
"""Their hashes are not computed again."""


@lru_cache(maxsize=KEYS_REMEMBERED)
def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, of a topic with so many."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def murmur2(key: bytes) -> int:
    """The 32-bit MurmurHash2, with the seed of Kafka's producer."""
    size = len(key)
    found = (SEED ^ size) & MASK
    whole = size - size % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        found = found * MULTIPLIER & MASK ^ word
    if whole < size:
        found = (found ^ int.from_bytes(key[whole:], "little")) * MULTIPLIER & MASK
    found = (found ^ found >> 13) * MULTIPLIER & MASK
    return found ^ found >> 15
