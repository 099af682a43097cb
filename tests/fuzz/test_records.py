"""Decoders of records take any bytes, or raise CorruptBatch or InvalidRecord."""

from __future__ import annotations

import contextlib
import os
import random

from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import compress, decompress
from protocol.records.crc import crc32c
from protocol.records.errors import InvalidRecord
from protocol.records.layout import (
    CHECKED_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    INT32,
    UINT32,
)
from protocol.records.prepare import prepare
from protocol.records.validate import ProduceRules, Validation
from protocol.records.walk import CorruptBatch, walk
from tests.records.corpus import raw, sets, vectors

SEED = int(os.environ.get("FUZZ_SEED", "20260"))
BATCHES = int(os.environ.get("FUZZ_BATCHES", "100000"))
STREAMS = int(os.environ.get("FUZZ_STREAMS", "20000"))
EXPANDED_BYTES = 1 << 20
LARGEST_SEED_BYTES = 700
NOW_MS = 1_700_000_000_000
NEXT_OFFSET = 10

RULES = [
    ProduceRules(validation=Validation.HEADER),
    ProduceRules(),
    ProduceRules(validation=Validation.STRICT, max_decompressed_bytes=EXPANDED_BYTES),
    ProduceRules(compacted=True, before_max_ms=1000, max_decompressed_bytes=EXPANDED_BYTES),
    ProduceRules(
        validation=Validation.STRICT, log_append_time=True, max_decompressed_bytes=EXPANDED_BYTES
    ),
]
EDGES = [0, 1, 2, 0x7F, 0x80, 0xFF]


def seeds() -> list[bytes]:
    found = [bytes(raw(vector["bytes"])) for vector in sets(2)]
    found += [bytes(raw(vector["input"])) for vector in vectors("append.json")]
    headers = (("name", b"value"), ("", None))
    found += [
        build_batch([(NOW_MS + 90 * i, b"key", b"value" * i, headers) for i in range(4)], codec=c)
        for c in range(5)
    ]
    return [seed for seed in found if 0 < len(seed) <= LARGEST_SEED_BYTES and seed[16:17] == b"\2"]


def mutate(rng: random.Random, seed: bytes) -> bytearray:
    data = bytearray(seed)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 8))):
        if not data:
            break
        position = rng.randrange(len(data))
        kind = rng.randrange(6)
        if kind == 0:
            data[position] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[position] = rng.choice(EDGES)
        elif kind == 2:
            data[position] = rng.randrange(256)
        elif kind == 3:
            del data[position : position + rng.randrange(1, 9)]
        elif kind == 4:
            data[position:position] = rng.randbytes(rng.randrange(1, 9))
        else:
            data[position:] = data[position:][: rng.randrange(1, 40)]
    return data


def repair(rng: random.Random, data: bytearray) -> None:
    """Most mutants would end at their length or checksum; let three in four get further."""
    if len(data) >= HEADER_SIZE and rng.randrange(4):
        INT32.pack_into(data, 8, len(data) - 12)
        data[16] = 2
        if rng.randrange(8):
            data[0:8] = bytes(8)
        UINT32.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[CHECKED_POSITION:]))


def exercise(rng: random.Random, data: bytearray) -> bool:
    """True if the batch was accepted; then it also has to be what acceptance promises."""
    rules = rng.choice(RULES)
    accepted = False
    try:
        prepared = prepare(
            memoryview(data), rules, version=7, now_ms=NOW_MS, next_offset=NEXT_OFFSET
        )
    except InvalidRecord:
        pass
    else:
        assert prepared is not None
        accepted = True
        ((view, header),) = prepared.batches
        batch = Batch(view)
        assert header == batch.header()
        assert batch.is_intact()
        assert batch.size <= len(data) or prepared.rebuilt
        if rules.walked or (rules.consistent and not batch.codec):
            offsets = [record.offset for record in batch.records(limit=EXPANDED_BYTES)]
            assert offsets == list(range(batch.record_count))
    try:
        for position, size, magic in walk(data):
            if magic == 2:
                view = memoryview(data)[position : position + size]
                for _ in Batch(view).records(limit=EXPANDED_BYTES):
                    pass
    except (CorruptBatch, InvalidRecord):
        pass
    return accepted


def test_mutated_batches_meet_only_the_declared_errors() -> None:
    rng = random.Random(SEED)
    corpus = seeds()
    accepted = 0
    for number in range(BATCHES):
        data = mutate(rng, rng.choice(corpus))
        repair(rng, data)
        kept = bytes(data)
        try:
            accepted += exercise(rng, data)
        except BaseException as error:
            raise AssertionError(f"seed {SEED}, batch {number}: {kept.hex()}") from error
    # The mutants must reach both ends, or they test nothing.
    assert BATCHES * 0.05 < accepted < BATCHES * 0.95


def test_mutated_streams_meet_only_the_declared_errors() -> None:
    rng = random.Random(SEED)
    plain = b"some text, again and again: " * 20 + random.Random(4).randbytes(60)
    corpus = [(codec, compress(codec, plain)) for codec in (1, 2, 3, 4)]
    corpus += [(2, bytes(b)) for b in (b"\x00", b"\x01\x00a", compress(2, plain)[20:])]
    names = ("none", "gzip", "snappy", "lz4", "zstd")
    for vector in vectors("codecs.json"):
        stream = bytes(raw(vector["stream"]))
        if len(stream) <= LARGEST_SEED_BYTES:
            corpus.append((names.index(vector["codec"]), stream))
    for number in range(STREAMS):
        codec, stream = rng.choice(corpus)
        data = bytes(mutate(rng, stream))
        try:
            with contextlib.suppress(InvalidRecord):
                assert len(decompress(codec, data, limit=EXPANDED_BYTES)) <= EXPANDED_BYTES
        except BaseException as error:
            raise AssertionError(f"seed {SEED}, stream {number}: {codec} {data.hex()}") from error


def test_the_seeds_cover_all_codecs() -> None:
    assert {seed[22] & 7 for seed in seeds() if len(seed) > HEADER_SIZE} >= {0, 1, 2, 3, 4}
