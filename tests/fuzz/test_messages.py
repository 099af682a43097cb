"""The reader of formats 0 and 1 takes any bytes, or raises its two declared errors."""

from __future__ import annotations

import os
import random
import struct
import zlib

from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.legacy import build_messages, read_messages
from protocol.records.lz4_frame import check_header
from tests.fuzz.test_records import mutate
from tests.records.corpus import raw, sets

SEED = int(os.environ.get("FUZZ_SEED", "20260"))
SETS = int(os.environ.get("FUZZ_MESSAGES", "40000"))
FRAMES = int(os.environ.get("FUZZ_FRAMES", "20000"))
EXPANDED_BYTES = 1 << 20
LARGEST_SEED_BYTES = 700
ROWS = [(1_500_000_000_000 + i, b"key", b"value" * i, ()) for i in range(4)]


def seeds() -> list[bytes]:
    found = [bytes(raw(vector["bytes"])) for vector in sets(0, 1)]
    found += [build_messages(ROWS, magic=m, codec=c) for m in (0, 1) for c in range(4)]
    return [seed for seed in found if len(seed) <= LARGEST_SEED_BYTES]


def repair(rng: random.Random, data: bytearray) -> None:
    """Most mutants would end at their checksum; let three in four get further."""
    if len(data) >= 26 and rng.randrange(4):
        data[16] &= 1
        if rng.randrange(2):
            struct.pack_into(">i", data, 8, len(data) - 12)
        (size,) = struct.unpack_from(">i", data, 8)
        struct.pack_into(">I", data, 12, zlib.crc32(data[16 : max(16, 12 + size)]))


def test_mutated_sets_meet_only_the_declared_errors() -> None:
    rng = random.Random(SEED)
    corpus = seeds()
    whole = 0
    for number in range(SETS):
        data = mutate(rng, rng.choice(corpus))
        repair(rng, data)
        try:
            for record in read_messages(data, limit=EXPANDED_BYTES):
                assert len(record.key or b"") + len(record.value or b"") <= EXPANDED_BYTES
            whole += 1
        except (CorruptBatch, InvalidRecord):
            pass
        except BaseException as error:
            raise AssertionError(f"seed {SEED}, set {number}: {data.hex()}") from error
    # The mutants must reach both ends, or they test nothing.
    assert SETS * 0.05 < whole < SETS * 0.95


def test_no_first_bytes_of_a_frame_upset_its_header() -> None:
    rng = random.Random(SEED)
    accepted = 0
    for number in range(FRAMES):
        data = b"\x04\x22\x4d\x18" + rng.randbytes(rng.randrange(16))
        try:
            assert check_header(memoryview(data)) <= len(data)
            accepted += 1
        except InvalidRecord:
            pass
        except BaseException as error:
            raise AssertionError(f"seed {SEED}, frame {number}: {data.hex()}") from error
    assert 0 < accepted < FRAMES
