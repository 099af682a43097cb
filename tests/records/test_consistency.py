"""Checks of a batch without expanding it: by the loop in Python and by the one in C."""

from __future__ import annotations

import os
import random
import struct
import zlib
from typing import Any

import cramjam
import lz4.frame
import pytest

from protocol.records import consistency as module
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import (
    GZIP,
    LZ4,
    MAX_RATIOS,
    NAMES,
    NONE,
    SNAPPY,
    XERIAL_HEADER,
    ZSTD,
    compress,
)
from protocol.records.consistency import (
    LONGEST_SPAN_MS,
    MOST_STEPS,
    interpreted_is_consistent,
    is_consistent,
)
from protocol.records.errors import InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES_POSITION,
    BASE_TIMESTAMP_POSITION,
    HEADER_SIZE,
    INT16,
    INT32,
    INT64,
    LENGTH_POSITION,
    MAX_TIMESTAMP_POSITION,
    RECORD_COUNT_POSITION,
)
from protocol.records.prepare import prepare
from protocol.records.record import INT64_MAX, INT64_MIN
from protocol.records.validate import ProduceRules, Validation, check_batch, quick_header
from tests.fuzz.test_loops import mutate
from tests.records.appending import NOW_MS
from tests.records.bombs import BOMBS, EXPANDED_BYTES
from tests.records.corpus import raw, reseal
from tests.records.loop_inputs import record, required
from tests.records.test_prepare_clients import SETS

SEED = int(os.environ.get("FUZZ_SEED", "20261122"))
MUTANTS = 20_000 * int(os.environ.get("TEST_FUZZ_FACTOR", "1"))

ROWS = [(NOW_MS + index, b"key", b"value %d" % index * (index % 9), ()) for index in range(60)]
PLAIN = build_batch(ROWS)
RECORDS = PLAIN[HEADER_SIZE:]
CLIENTS = [vector for vector in SETS if vector["magic"] == 2]


@pytest.fixture(params=["interpreted", "compiled"])
def twin(request: pytest.FixtureRequest) -> Any:
    if request.param == "interpreted":
        return interpreted_is_consistent
    return required().is_consistent


def holding(codec: int, payload: bytes, *, batch: bytes = PLAIN) -> bytes:
    """The header of a batch with something else behind it."""
    changed = bytearray(batch[:HEADER_SIZE]) + payload
    INT32.pack_into(changed, LENGTH_POSITION, len(changed) - 12)
    INT16.pack_into(changed, ATTRIBUTES_POSITION, codec)
    return bytes(changed)


def put(layout: struct.Struct, position: int, number: int, batch: bytes = PLAIN) -> bytes:
    changed = bytearray(batch)
    layout.pack_into(changed, position, number)
    return bytes(changed)


@pytest.mark.parametrize("vector", CLIENTS, ids=lambda vector: str(vector["id"]))
def test_what_real_clients_send_is_consistent_and_needs_no_second_look(
    twin: Any, vector: dict[str, Any]
) -> None:
    data = raw(vector["bytes"])
    view = memoryview(data)[: Batch(memoryview(data)).size]
    assert twin(view)
    assert quick_header(view, ProduceRules()) == Batch(view).header()


def zstd_without_a_size(data: bytes) -> bytes:
    """As a stream, which is how clients write it."""
    compressor = cramjam.zstd.Compressor()
    compressor.compress(data)
    return bytes(compressor.finish())


def payloads(data: bytes) -> dict[str, tuple[int, bytes]]:
    """The codec and the payload, for every way to write one that clients have."""
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"12345"
    large = {"block_linked": False, "block_size": lz4.frame.BLOCKSIZE_MAX4MB}
    sums = {"block_linked": False, "content_checksum": True, "block_checksum": True}
    return {
        **{NAMES[codec]: (codec, compress(codec, data)) for codec in range(1, 5)},
        "gzip level 1": (GZIP, compress(GZIP, data, level=1)),
        "gzip level 9": (GZIP, compress(GZIP, data, level=9)),
        "gzip with a name": (
            *(GZIP, b"\x1f\x8b\x08\x08" + bytes(6) + b"n\0" + compress(GZIP, data)[10:]),
        ),
        "raw snappy": (SNAPPY, bytes(cramjam.snappy.compress_raw(data))),
        "lz4 in large blocks": (LZ4, lz4.frame.compress(data, store_size=False, **large)),
        "lz4 with sums": (LZ4, lz4.frame.compress(data, store_size=False, **sums)),
        "lz4 with a size": (LZ4, lz4.frame.compress(data, store_size=True, **sums)),
        "zstd level 19": (ZSTD, compress(ZSTD, data, level=19)),
        "zstd stream": (ZSTD, zstd_without_a_size(data)),
        "zstd frames": (
            *(ZSTD, compress(ZSTD, data[:100]) + skippable + compress(ZSTD, data[100:])),
        ),
    }


STREAMS = tuple(payloads(RECORDS))


@pytest.mark.parametrize("rows", [ROWS[:1], ROWS, ROWS * 60], ids=["one", "some", "many"])
@pytest.mark.parametrize("stream", STREAMS)
def test_every_way_to_write_a_codec_is_consistent(twin: Any, stream: str, rows: list[Any]) -> None:
    plain = build_batch(rows)
    codec, payload = payloads(plain[HEADER_SIZE:])[stream]
    assert twin(holding(codec, payload, batch=plain))


@pytest.mark.parametrize("stream", [name for name in STREAMS if name != "raw snappy"])
def test_a_payload_cut_anywhere_or_with_bytes_behind_it_is_not(twin: Any, stream: str) -> None:
    codec, payload = payloads(RECORDS)[stream]
    cuts = {*range(1, 40), *range(40, len(payload), 97)}
    taken = sum(twin(holding(codec, payload[: len(payload) - cut])) for cut in cuts)
    # Any four bytes may be the size at the end of a gzip member, if they are not too many.
    assert taken <= (len(cuts) // 20 if codec == GZIP else 0)
    assert not twin(holding(codec, payload + b"spoiled"))


@pytest.mark.parametrize("codec", range(1, 5))
def test_rubbish_is_no_stream_of_any_codec(twin: Any, codec: int) -> None:
    rng = random.Random(SEED)
    one = build_batch(ROWS[:1])
    taken = sum(
        twin(holding(codec, rng.randbytes(rng.randrange(200)), batch=one)) for _ in range(3_000)
    )
    # Snappy has no magic; a few bytes are easily right.
    assert taken <= (30 if codec == SNAPPY else 0)


@pytest.mark.parametrize("codec", range(5))
def test_more_records_than_the_bytes_have_room_for_are_not_there(twin: Any, codec: int) -> None:
    sent = build_batch(ROWS, codec=codec)
    assert twin(sent)
    beyond = len(RECORDS) // 7 + 1
    if codec in (LZ4, ZSTD):
        beyond = len(sent) * 255 // 7 if codec == LZ4 else (1 << 17) // 7 + 1
    assert not twin(put(INT32, RECORD_COUNT_POSITION, beyond, sent))


@pytest.mark.parametrize("codec", range(5))
def test_an_unlikely_time_asks_for_a_closer_look(twin: Any, codec: int) -> None:
    one, many = build_batch(ROWS[:1], codec=codec), build_batch(ROWS, codec=codec)
    for sent, right in ((one, NOW_MS), (many, NOW_MS + 59)):
        assert twin(sent)
        for wrong in (right - 100, right + 2 * LONGEST_SPAN_MS, -1, 0, INT64_MAX, INT64_MIN):
            assert not twin(put(INT64, MAX_TIMESTAMP_POSITION, wrong, sent)), wrong
    assert not twin(put(INT64, MAX_TIMESTAMP_POSITION, NOW_MS + 1, one))
    assert not twin(put(INT64, BASE_TIMESTAMP_POSITION, INT64_MIN, many))
    edge = put(INT64, MAX_TIMESTAMP_POSITION, NOW_MS + LONGEST_SPAN_MS, many)
    beyond = put(INT64, MAX_TIMESTAMP_POSITION, NOW_MS + LONGEST_SPAN_MS + 1, many)
    assert (twin(edge), twin(beyond)) == (codec != NONE, False)


def test_records_without_times_are_consistent(twin: Any) -> None:
    for codec in range(5):
        assert twin(build_batch([(-1, None, b"v", ())] * 3, codec=codec))


def test_every_kind_of_record_is_walked(twin: Any) -> None:
    rows = [
        *((0, b"k" * size, b"v" * size, ()) for size in (0, 1, 63, 64, 8_191, 8_192, 1_050_000)),
        *((delta, None, None, ()) for delta in (1, 63, 64, 8_192, 1 << 20, 1 << 21, 1 << 40)),
        (0, b"k", b"v", [(b"name", b"value" * 900), (b"", None), (b"n" * 70, b"")]),
        (-5, b"k", None, [(b"h", b"v")] * 100),
    ]
    records = b"".join(
        record(delta, index, key, value, headers)
        for index, (delta, key, value, headers) in enumerate(rows)
    )
    batch = holding(NONE, records, batch=put(INT32, RECORD_COUNT_POSITION, len(rows)))
    assert twin(put(INT64, MAX_TIMESTAMP_POSITION, NOW_MS + (1 << 40), batch))
    for pad in (1, 2, 3):
        padded = b"".join(record(0, at, b"k", b"v", [(b"h", None)], pad) for at in range(60))
        batch = holding(NONE, padded, batch=put(INT64, MAX_TIMESTAMP_POSITION, NOW_MS))
        assert twin(batch)


@pytest.mark.parametrize("codec", [NONE, SNAPPY, LZ4, ZSTD])
def test_a_batch_of_more_steps_than_the_loop_has_time_for_is_not(twin: Any, codec: int) -> None:
    """Records and headers; blocks and what they are in."""
    for beyond in (0, 1):
        if codec == NONE:
            crowd = [record(0, index, None, None) for index in range(MOST_STEPS - 2 + beyond)]
            crowd.append(record(0, len(crowd), None, None, [(b"", None)]))
            batch = put(INT32, RECORD_COUNT_POSITION, len(crowd))
            batch = put(INT64, MAX_TIMESTAMP_POSITION, NOW_MS, batch)
            payload = b"".join(crowd)
        else:
            batch = build_batch(ROWS[:1])
            payload = blocks_of(codec, MOST_STEPS + beyond)
        assert twin(holding(codec, payload, batch=batch)) == (beyond == 0)


def blocks_of(codec: int, steps: int) -> bytes:
    """A stream of so many blocks, its end included, of which each holds a byte or nothing."""
    if codec == SNAPPY:
        one = bytes(cramjam.snappy.compress_raw(b"v"))
        return XERIAL_HEADER + (INT32.pack(len(one)) + one) * (steps - 1)
    if codec == LZ4:
        return bytes.fromhex("04224d18604082") + (b"\1\0\0\x80v") * (steps - 1) + bytes(4)
    blocks = b"\x08\0\0v" * (steps - 2) + b"\x09\0\0v"
    return bytes.fromhex("28b52ffd0058") + blocks


def test_what_is_shorter_than_a_header_is_nothing(twin: Any) -> None:
    for size in range(HEADER_SIZE):
        assert not twin(PLAIN[:size])
    assert not twin(PLAIN[:HEADER_SIZE])
    for codec in range(8):
        assert not twin(holding(codec, b""))


@pytest.mark.parametrize("codec", range(1, 5))
def test_no_codec_expands_more_than_we_think(codec: int) -> None:
    assert len(BOMBS[codec]()) * MAX_RATIOS[codec] >= EXPANDED_BYTES
    zeros = compress(codec, bytes(1 << 26))
    assert len(zeros) * MAX_RATIOS[codec] >= 1 << 26


def seeds() -> list[bytes]:
    found = [bytes(raw(vector["bytes"])) for vector in CLIENTS]
    for rows in (ROWS[:1], ROWS):
        plain = build_batch(rows)
        found.append(plain)
        made = payloads(plain[HEADER_SIZE:]).values()
        found += [holding(codec, payload, batch=plain) for codec, payload in made]
    return [seed for seed in found if len(seed) < 2_000]


@pytest.mark.timeout(120)
def test_mutants_are_the_same_for_both_and_never_taken_where_a_walk_finds_a_fault() -> None:
    compiled = required().is_consistent
    rng = random.Random(SEED)
    corpus, taken = seeds(), 0
    strict = ProduceRules(validation=Validation.STRICT)
    for number in range(MUTANTS):
        data = bytearray(rng.choice(corpus))
        if rng.random() < 0.8:
            data[HEADER_SIZE:] = mutate(rng, bytes(data[HEADER_SIZE:]))
        if rng.random() < 0.3:
            at = rng.randrange(ATTRIBUTES_POSITION, HEADER_SIZE)
            data[at] = rng.choice((0, 1, 0xFF, data[at] ^ 1 << rng.randrange(8)))
        kept = bytes(data)
        found = compiled(memoryview(data))
        assert found == interpreted_is_consistent(kept), (
            f"seed {SEED}, mutant {number}: {kept.hex()}"
        )
        if found and not data[ATTRIBUTES_POSITION + 1] & 7:
            taken += 1
            walked(data, strict)
    assert MUTANTS * 0.02 < taken < MUTANTS * 0.5


def walked(data: bytearray, rules: ProduceRules) -> None:
    """See that the batch is stored as it is, unless its header is at fault."""
    INT32.pack_into(data, LENGTH_POSITION, len(data) - 12)
    kept = bytes(reseal(data))
    try:
        prepared = prepare(memoryview(data), rules, version=9, now_ms=0, next_offset=0)
    except InvalidRecord:
        with pytest.raises(InvalidRecord):
            check_batch(memoryview(data), rules, 9)
    else:
        assert prepared is not None
        assert not prepared.rebuilt, kept.hex()
        assert data[BASE_TIMESTAMP_POSITION:] == kept[BASE_TIMESTAMP_POSITION:], kept.hex()


def test_the_gzip_trailer_is_believed_only_as_far_as_deflate_reaches(twin: Any) -> None:
    sent = build_batch(ROWS, codec=GZIP)
    most = (len(sent) - HEADER_SIZE) * MAX_RATIOS[GZIP]
    assert twin(sent[:-4] + struct.pack("<I", most))
    assert not twin(sent[:-4] + struct.pack("<I", most + 1))
    assert zlib.decompress(sent[HEADER_SIZE:], 31) == RECORDS


def test_the_loop_in_c_is_the_one_in_use_where_it_is_built() -> None:
    required()
    assert is_consistent is module.is_consistent is not interpreted_is_consistent
