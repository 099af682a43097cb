"""The loops over records in Python and in C are held against each other.

First on valid records and messages of every shape, then on mutated ones: each call must have the
same bytes, or the same error with the same text. The compiled loop may give up only where the other
refuses. `TEST_FUZZ_FACTOR` multiplies the counts, `FUZZ_SEED` gives other inputs.
"""

from __future__ import annotations

import os
import random
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import KafkaError
from protocol.records import loops, transcode
from protocol.records.builder import build_batch
from protocol.records.layout import ENTRY, ENTRY_OVERHEAD, HEADER_SIZE, MESSAGE_CHECKED_POSITION
from protocol.records.record import INT64_MAX, INT64_MIN, wrap_timestamp
from tests.records.loop_inputs import message, outcome, record, required

if TYPE_CHECKING:
    from tests.records.loop_inputs import Call, Field, Headers

SEED = int(os.environ.get("FUZZ_SEED", "20240607"))
FACTOR = int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
SETS = 1_500 * FACTOR
MUTANTS = 60_000 * FACTOR

NOW = 1_700_000_000_000
MOMENTS = (-1, 0, 1, -2, NOW, NOW + 64, NOW + 8_192, INT64_MIN, INT64_MAX, INT64_MAX - 1)
#: On both sides of every step in the size of a varint that a test can afford.
SIZES = (0, 1, 2, 20, 63, 64, 65, 100, 8_191, 8_192)
OFFSETS = (0, 1, -1, 5, 1 << 31, 1 << 40, 1 << 62, -(1 << 62), INT64_MAX, INT64_MIN)


def field(rng: random.Random) -> Field:
    if rng.random() < 0.2:
        return None
    return rng.randbytes(rng.choice(SIZES) if rng.random() < 0.3 else rng.randrange(30))


def moment(rng: random.Random) -> int:
    return rng.choice(MOMENTS) if rng.random() < 0.2 else NOW + rng.randrange(-9_000, 9_000)


def headers(rng: random.Random) -> Headers:
    if rng.random() < 0.7:
        return ()
    return [(rng.randbytes(rng.randrange(4)), field(rng)) for _ in range(rng.randrange(1, 4))]


def records(rng: random.Random) -> tuple[bytes, int]:
    """Of any shape: holes, disorder, times far apart, varints longer than needed."""
    count = rng.randrange(8)
    tidy = rng.random() < 0.5
    data = b""
    for index in range(count):
        delta = wrap_timestamp(moment(rng) - NOW)
        place = index if tidy else rng.choice((index, rng.randrange(-(2**31), 2**31), 64, -65))
        # The longest varints cannot be longer.
        spare = max(abs(delta), abs(place)) < 1 << 24
        pad = rng.choice((0, 0, 1)) if spare and not tidy else 0
        data += record(delta, place, field(rng), field(rng), headers(rng), pad)
    return data, count


def messages(rng: random.Random, magic: int) -> bytes:
    tidy = rng.random() < 0.5
    return b"".join(
        message(
            magic,
            index if tidy else rng.choice(OFFSETS),
            moment(rng),
            field(rng),
            field(rng),
            attributes=0 if tidy else rng.choice((0, 1, 2, 3, 8, 9, 0xF0 - 256)),
            spare=b"" if tidy else rng.randbytes(rng.choice((0, 0, 3))),
        )
        for index in range(rng.randrange(8))
    )


def window(rng: random.Random) -> dict[str, int]:
    ends = (INT64_MIN, INT64_MAX) if rng.random() < 0.5 else (NOW - 5_000, NOW + 5_000)
    return {"oldest_ms": ends[0], "newest_ms": ends[1]}


def terms(rng: random.Random) -> dict[str, Any]:
    return {
        "magic": rng.randrange(2),
        "append_time_ms": rng.choice((None, None, NOW, -1, INT64_MAX, INT64_MIN)),
        "min_offset": rng.choice((INT64_MIN, INT64_MIN, 0, 3, INT64_MAX)),
    }


def calls_on_records(rng: random.Random, data: bytes, count: int) -> list[Call]:
    base_timestamp = moment(rng)
    base = {"base_offset": rng.choice(OFFSETS[:8]), "base_timestamp": base_timestamp}
    view = rng.choice((data, memoryview(data)))
    return [
        ("scan_records", (view, count, base_timestamp), window(rng)),
        ("messages_from_records", (view, count), {**base, **terms(rng)}),
    ]


def calls_on_messages(rng: random.Random, data: bytes, magic: int) -> list[Call]:
    limit = rng.choice((1 << 20, 1 << 20, 1 << 70, 60))
    offset, places = rng.choice(OFFSETS), terms(rng)
    places |= {"source_magic": magic, "offset": offset, "renumber": rng.random() < 0.5}
    pieces = {"magic": magic, "max_bytes": rng.choice((0, 30, 100, 1 << 30, 1 << 70))}
    view = rng.choice((data, memoryview(data)))
    return [
        ("scan_messages", (view, magic), {"max_entry_bytes": limit, **window(rng)}),
        ("messages_from_messages", (view,), places),
        ("records_from_messages", (view, rng.choice((0, 0, len(data) // 2))), pieces),
        ("place_messages", (data, offset), {}),
        ("skip_messages", (view, rng.choice(OFFSETS)), {}),
    ]


def agree(call: Call) -> bool:
    """Whether the call was refused. Raises AssertionError where the loops differ."""
    expected = outcome(call, loops)
    assert outcome(call, transcode) == expected
    alone = outcome(call, required())
    if call[0] == "place_messages":
        expected, alone = expected[0], alone[0]
    refused = isinstance(expected, tuple) and expected[:1] != () and isinstance(expected[0], type)
    assert alone is None if refused else alone == expected
    return refused


def all_agree(calls: list[Call], about: str) -> int:
    refused = 0
    for call in calls:
        try:
            refused += agree(call)
        except BaseException as error:
            name, args, kwargs = call
            data = bytes(args[0]).hex()
            raise AssertionError(f"{about}: {name}({data}, *{args[1:]}, **{kwargs})") from error
    return refused


def mutate(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0:
                del changed[at:]
            case 1:
                changed[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 2:
                del changed[at : at + rng.randrange(1, 5)]
            case 3 if at + 4 <= len(changed):
                number = rng.choice((-(2**31), -2, -1, 0, 13, 14, 21, 22, 49, 2**31 - 1))
                struct.pack_into(">i", changed, at, number)
            case 4 if at < len(changed):
                changed[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            case _ if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case _:
                pass
    return bytes(changed)


def resealed(data: bytes) -> bytes:
    """With CRCs that fit, so that a mutation reaches what is checked after them."""
    sealed, position = bytearray(data), 0
    while len(data) - position >= ENTRY_OVERHEAD:
        end = position + ENTRY_OVERHEAD + ENTRY.unpack_from(data, position)[1]
        if not position + MESSAGE_CHECKED_POSITION < end <= len(data):
            break
        crc = zlib.crc32(data[position + MESSAGE_CHECKED_POSITION : end])
        struct.pack_into(">I", sealed, position + 12, crc)
        position = end
    return bytes(sealed)


def test_the_loops_agree_on_records_and_messages_of_every_shape() -> None:
    required()
    rng = random.Random(SEED)
    for number in range(SETS):
        data, count = records(rng)
        assert not all_agree(calls_on_records(rng, data, count), f"seed {SEED}, set {number}")
        magic = rng.randrange(2)
        all_agree(calls_on_messages(rng, messages(rng, magic), magic), f"seed {SEED}, set {number}")


@pytest.mark.timeout(240 * FACTOR + 60)
def test_the_loops_agree_on_mutated_records_and_messages() -> None:
    required()
    rng = random.Random(SEED)
    refused = calls = 0
    for number in range(MUTANTS // 2):
        about = f"seed {SEED}, mutant {number}"
        data, count = records(rng)
        count += rng.choice((0, 0, 0, 1, -1, 1 << 31))
        on_records = calls_on_records(rng, mutate(rng, data), count)
        magic = rng.randrange(2)
        data = mutate(rng, messages(rng, magic))
        on_messages = calls_on_messages(rng, resealed(data) if rng.random() < 0.7 else data, magic)
        refused += all_agree(on_records, about) + all_agree(on_messages, about)
        calls += len(on_records) + len(on_messages)
    # The mutants must reach both ends, or they test nothing.
    assert calls * 0.1 < refused < calls * 0.9


def test_there_and_back_gives_the_same_records_as_the_builder() -> None:
    rng = random.Random(SEED)
    for number in range(300):
        rows = [(moment(rng), field(rng), field(rng), ()) for _ in range(rng.randrange(1, 8))]
        data = build_batch(rows)[HEADER_SIZE:]
        run = b"".join(message(1, 5 + at, *row[:3]) for at, row in enumerate(rows))
        given = {"base_offset": 5, "base_timestamp": rows[0][0], "min_offset": 0}
        found = transcode.messages_from_records(
            data, len(rows), magic=1, append_time_ms=None, **given
        )
        assert found == (run, len(rows)), f"seed {SEED}, set {number}"
        again = transcode.records_from_messages(run, 0, magic=1, max_bytes=1 << 30)
        largest = max(-1, *(row[0] for row in rows))
        expected = (data, len(rows), rows[0][0], largest, len(run))
        assert again == expected, f"seed {SEED}, set {number}"


def test_a_refusal_is_one_of_the_declared_errors() -> None:
    rng = random.Random(SEED)
    for _ in range(2_000):
        for call in calls_on_messages(rng, rng.randbytes(rng.randrange(60)), 1):
            result = outcome(call, loops)
            if isinstance(result, tuple) and result and isinstance(result[0], type):
                assert issubclass(result[0], KafkaError)
