"""Produced sets of every format, spoiled: prepared or refused with a declared error, in little
memory, and what is prepared is what a log may hold. What a log holds is converted or refused.

`TEST_FUZZ_FACTOR` multiplies the counts, `FUZZ_SEED` gives other sets.
"""

from __future__ import annotations

import contextlib
import os
import random
import tracemalloc
import zlib
from typing import TYPE_CHECKING

from protocol.errors import KafkaError
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import compress
from protocol.records.convert import ExpansionLimits, Form, convert
from protocol.records.crc import crc32c
from protocol.records.layout import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    HEADER_SIZE,
    INT32,
    MESSAGE_CRC_POSITION,
    UINT32,
)
from protocol.records.prepare import TooMuch, prepare
from protocol.records.validate import UNLIMITED_MS, ProduceRules, Validation
from protocol.records.walk import walk
from tests.fuzz.test_records import mutate
from tests.records.appending import NEXT_OFFSET, NOW_MS, RECORDS, placed, read, three
from tests.records.corpus import raw, sets, vectors
from tests.support.old_sets import message, wrapper

if TYPE_CHECKING:
    from protocol.records.prepare import Prepared

SEED = int(os.environ.get("FUZZ_SEED", "20261121"))
FACTOR = int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
SETS = 20_000 * FACTOR
CONVERTED = 10_000 * FACTOR
MEASURED = 2_000

LARGEST_SEED_BYTES = 900
EXPANDED_BYTES = 1 << 16
MEMORY_BYTES = 3 << 20
"""Some copies of what a set may expand to, at 64 KiB. What the codecs' libraries hold for
themselves is the most of it."""

RULES = [
    ProduceRules(
        magic=magic,
        codec=codec,
        validation=validation,
        compacted=compacted,
        log_append_time=log_append_time,
        before_max_ms=before_max_ms,
        max_decompressed_bytes=EXPANDED_BYTES,
        max_message_bytes=4_000,
        segment_bytes=20_000,
    )
    for magic in (0, 1, 2)
    for codec in (None, 0, 1, 3)
    for validation, compacted, log_append_time, before_max_ms in (
        (Validation.HEADER, False, False, UNLIMITED_MS),
        (Validation.RECORDS, False, False, UNLIMITED_MS),
        (Validation.STRICT, False, True, NOW_MS),
        (Validation.HEADER, True, False, NOW_MS),
    )
]
LIMITS = ExpansionLimits(EXPANDED_BYTES, 1_000)


def seeds() -> dict[int, list[bytes]]:
    """Sets by their format."""
    found = [bytes(raw(vector["bytes"])) for vector in sets(0, 1, 2)]
    found += [bytes(raw(vector["input"])) for vector in vectors("append.json")]
    for magic in (0, 1):
        wrappers = [wrapper(three(magic), magic=magic, codec=codec) for codec in (1, 2, 3)]
        found += [*wrappers, b"".join(wrappers), three(magic) + wrappers[0] + three(magic)]
    found += [build_batch(RECORDS, codec=codec) for codec in range(5)]
    kept = [seed for seed in found if 17 < len(seed) <= LARGEST_SEED_BYTES]
    return {magic: [seed for seed in kept if seed[16] == magic] for magic in (0, 1, 2)}


def reseal(data: bytearray) -> None:
    """Make every checksum fit that belongs to an entry which ends where it says."""
    position = 0
    while position + 17 <= len(data):
        end = position + 12 + INT32.unpack_from(data, position + 8)[0]
        if not position + 26 <= end <= len(data):
            return
        if data[position + 16] == 2 and end - position >= HEADER_SIZE:
            checksum = crc32c(memoryview(data)[position + 21 : end])
            UINT32.pack_into(data, position + 17, checksum)
        elif data[position + 16] < 2:
            checksum = zlib.crc32(memoryview(data)[position + 16 : end])
            UINT32.pack_into(data, position + MESSAGE_CRC_POSITION, checksum)
        position = end


def spoiled(rng: random.Random, corpus: dict[int, list[bytes]]) -> bytearray:
    """A mutant; three in four have checksums that fit, some are spoiled under compression. Some
    are as they were sent, to be sent to any topic."""
    magic = rng.choice((0, 1, 1, 2))
    seed = rng.choice(corpus[magic])
    data = mutate(rng, seed) if rng.randrange(4) else bytearray(seed)
    if rng.randrange(4):
        if magic == 2 and len(data) > HEADER_SIZE and rng.randrange(2):
            INT32.pack_into(data, 8, len(data) - 12)
        reseal(data)
    if not rng.randrange(4):
        return under_compression(rng, magic, data)
    return data


def under_compression(rng: random.Random, magic: int, content: bytearray) -> bytearray:
    codec = rng.choice((1, 2, 3))
    if magic == 2:
        data = content[:HEADER_SIZE] + compress(codec, content[HEADER_SIZE:])
        if len(content) > HEADER_SIZE:
            data[22] = codec
            INT32.pack_into(data, 8, len(data) - 12)
            reseal(data)
        return data
    offset = rng.choice((0, 0, 2, rng.randrange(-2, 9)))
    payload = compress(codec, content, magic=magic)
    return bytearray(message(payload, magic=magic, attributes=codec, offset=offset))


def check(prepared: Prepared, rules: ProduceRules) -> None:
    """That the set is one which the topic may store."""
    stored = placed(prepared)
    assert len(stored) <= rules.segment_bytes
    looked_at = rules.walked or prepared.rebuilt or prepared.messages is not None
    if rules.consistent and rules.magic == 2 and not looked_at:
        looked_at = not Batch(memoryview(stored)).codec
    for position, size, magic in walk(stored):
        assert magic == rules.magic
        assert size <= rules.max_message_bytes
        if magic == 2:
            batch = Batch(memoryview(stored)[position:])
            assert batch.is_intact()
            assert batch.timestamp_type == rules.log_append_time
    if looked_at:
        records = read(stored)
        assert [record.offset for record in records] == list(
            range(NEXT_OFFSET, NEXT_OFFSET + prepared.record_count)
        )
        if rules.compacted:
            assert all(record.key is not None for record in records)
        if rules.log_append_time:
            wanted = NOW_MS if rules.magic else -1
            assert {record.timestamp_ms for record in records} == {wanted}


def exercise(rng: random.Random, data: bytearray) -> bool:
    """True if the set was accepted."""
    rules = rng.choice(RULES)
    version = (
        rng.choice((0, 1, 2, 2, 2, 2, 2, 9)) if data[16:17] != b"\2" else rng.choice((2, 6, 9))
    )
    view = memoryview(data)
    before = bytes(data)
    terms = {"version": version, "now_ms": NOW_MS, "next_offset": NEXT_OFFSET}
    try:
        try:
            prepared = prepare(view, rules, expand_max=rng.choice((None, 200)), **terms)
        except TooMuch:
            assert data == before
            prepared = prepare(view, rules, **terms)
    except KafkaError:
        assert data == before
        return False
    if prepared is not None:
        check(prepared, rules)
    return prepared is not None


def test_mutated_sets_are_prepared_as_the_topic_needs_them_or_refused() -> None:
    rng = random.Random(SEED)
    corpus = seeds()
    accepted = 0
    for number in range(SETS):
        data = spoiled(rng, corpus)
        kept = bytes(data)
        try:
            accepted += exercise(rng, data)
        except BaseException as error:
            raise AssertionError(f"seed {SEED}, set {number}: {kept.hex()}") from error
    # The mutants must reach both ends, or they test nothing.
    assert SETS * 0.15 < accepted < SETS * 0.85


def test_mutated_sets_take_little_memory() -> None:
    rng = random.Random(SEED + 1)
    corpus = seeds()
    for _ in range(20):  # what is made once, on first use
        exercise(rng, spoiled(rng, corpus))
    for number in range(MEASURED):
        data = spoiled(rng, corpus)
        kept = bytes(data)
        tracemalloc.start()
        try:
            exercise(rng, data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < MEMORY_BYTES, f"seed {SEED}, set {number}: {peak} bytes for {kept.hex()}"


def forms(magic: int) -> list[Form]:
    if magic == 2:
        return [form for form in Form if form is not Form.FORMAT_2]
    older = [Form.FORMAT_0, Form.FORMAT_0_PLAIN] if magic == 1 else []
    return [*older, Form.FORMAT_2]


def test_mutated_entries_are_converted_for_older_readers_or_refused() -> None:
    rng = random.Random(SEED + 2)
    corpus = seeds()
    converted = tried = 0
    for number in range(CONVERTED):
        data = bytes(spoiled(rng, corpus))
        try:
            with contextlib.suppress(KafkaError):
                for position, size, magic in walk(data):
                    entry = data[position : position + size]
                    if magic == 2 and entry[ATTRIBUTES_POSITION + 1] & CONTROL_BIT:
                        continue
                    for form in forms(magic):
                        tried += 1
                        made = convert(entry, form, LIMITS)
                        assert {found for _, _, found in walk(made.data)} == {form.magic}
                        converted += 1
        except BaseException as error:
            raise AssertionError(f"seed {SEED}, set {number}: {data.hex()}") from error
    assert tried * 0.1 < converted < tried


def test_the_seeds_cover_every_format_and_codec() -> None:
    for magic, found in seeds().items():
        attributes = 22 if magic == 2 else 17
        codecs = {seed[attributes] & 7 for seed in found}
        assert codecs >= {0, 1, 2, 3, *([4] if magic == 2 else [])}
