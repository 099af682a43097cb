from __future__ import annotations

import gzip
import hashlib
import random
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.records.compression import CALLS, DEFAULT_RATIO, NAMES, compress, decompress
from protocol.records.errors import InvalidRecord
from tests.records.bombs import BOMBS
from tests.records.corpus import raw, vectors

CHECKOUT = Path(__file__).resolve().parents[2]
LIMIT = 1 << 27
CODECS = [1, 2, 3, 4]
PLENTY = [b"", b"a", bytes(100_000), random.Random(1).randbytes(200_000), b"ab" * 33_000]


@pytest.mark.parametrize("vector", vectors("codecs.json"), ids=lambda vector: str(vector["id"]))
def test_streams_are_read_or_refused_as_kafka_does(vector: dict[str, Any]) -> None:
    codec, stream = NAMES.index(vector["codec"]), bytes(raw(vector["stream"]))
    magic = vector["magic"]
    if not vector["expect"]["accept"]:
        with pytest.raises(InvalidRecord) as refusal:
            decompress(codec, stream, limit=LIMIT, magic=magic)
        assert refusal.value.code == ErrorCode.INVALID_RECORD
        return
    data = decompress(codec, stream, limit=LIMIT, magic=magic)
    assert len(data) == vector["expect"]["len"]
    assert hashlib.sha256(data).hexdigest() == vector["expect"]["sha256"]


EVERY_USE = [(codec, magic) for magic in (0, 1, 2) for codec in range(5) if codec < 4 or magic == 2]


@pytest.mark.parametrize(("codec", "magic"), EVERY_USE)
@pytest.mark.parametrize("data", PLENTY, ids=["nothing", "a", "zeros", "random", "pattern"])
def test_what_is_compressed_is_read_back(codec: int, magic: int, data: bytes) -> None:
    payload = compress(codec, data, magic=magic)
    assert decompress(codec, payload, limit=len(data), magic=magic) == data
    payload = compress(codec, memoryview(data), magic=magic)
    assert decompress(codec, memoryview(payload), limit=LIMIT, magic=magic) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [(1, (-1, 1, 9)), (3, (1, 3, 9, 12, 17)), (4, (-131_072, -1, 0, 22))]
)
def test_every_level_of_a_setting_is_read_back(codec: int, levels: tuple[int, ...]) -> None:
    text = b" ".join(b"%d" % (number * number) for number in range(9_000))
    for level in levels:
        assert decompress(codec, compress(codec, text, level=level), limit=LIMIT) == text


def test_a_higher_level_makes_less_of_it() -> None:
    text = b" ".join(b"%d" % (number * number % 7919) for number in range(20_000))
    for codec, low, high in ((1, 1, 9), (3, 1, 12), (4, -5, 19)):
        sizes = [len(compress(codec, text, level=level)) for level in (low, high)]
        assert sizes[1] < sizes[0], codec


def test_the_default_levels_are_those_of_kafka() -> None:
    # Kafka's level 9 of lz4 is its fast compressor, which lz4 itself calls 0 (KIP-390).
    text = b" ".join(b"%d" % (number * number % 7919) for number in range(20_000))
    for codec, default in ((1, -1), (1, 6), (3, 9), (4, 3)):
        assert compress(codec, text) == compress(codec, text, level=default)
    assert len(compress(3, text, level=9)) > len(compress(3, text, level=8))


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact_and_named(codec: int) -> None:
    payload = compress(codec, bytes(100_000))
    assert len(decompress(codec, payload, limit=100_000)) == 100_000
    with pytest.raises(InvalidRecord, match=r"99999 bytes \(max.decompressed.batch.bytes") as e:
        decompress(codec, payload, limit=99_999)
    assert e.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_snappy_is_written_in_blocks_of_32_kib_that_every_client_reads() -> None:
    payload = compress(2, random.Random(2).randbytes(70_000))
    assert payload[:16] == bytes.fromhex("82534e41505059000000000100000001")
    position, sizes = 16, []
    while position < len(payload):
        (size,) = struct.unpack_from(">i", payload, position)
        sizes.append(len(decompress(2, payload[position + 4 : position + 4 + size], limit=LIMIT)))
        position += 4 + size
    assert sizes == [32_768, 32_768, 4_464]


def test_lz4_is_written_with_independent_blocks_and_nothing_optional() -> None:
    payload = compress(3, bytes(200_000))
    assert payload[:7] == bytes.fromhex("04224d18604082")
    assert payload[-4:] == bytes(4)


def test_lz4_in_format_0_has_the_broken_checksum_that_its_readers_want() -> None:
    old, new = (compress(3, bytes(200_000), magic=magic) for magic in (0, 1))
    assert old[:7] == bytes.fromhex("04224d1860401a")
    assert new[:7] == bytes.fromhex("04224d18604082")
    assert old[7:] == new[7:]


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_refused_below_format_2(magic: int) -> None:
    with pytest.raises(InvalidRecord, match=f"zstd in format {magic}") as refusal:
        decompress(4, compress(4, b"abc"), limit=LIMIT, magic=magic)
    assert refusal.value.code == ErrorCode.INVALID_RECORD
    with pytest.raises(InvalidRecord, match=f"zstd in format {magic}"):
        compress(4, b"abc", magic=magic)


def test_gzip_is_written_as_one_member_that_python_reads() -> None:
    assert gzip.decompress(compress(1, b"abc" * 1000)) == b"abc" * 1000


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(InvalidRecord, match=f"codec {codec}"):
        decompress(codec, b"", limit=LIMIT)
    with pytest.raises(ValueError, match=f"codec {codec}"):
        compress(codec, b"")


@pytest.mark.parametrize(("codec", "magic"), [use for use in EVERY_USE if use[0]])
def test_a_stream_cut_anywhere_is_refused(codec: int, magic: int) -> None:
    payload = compress(codec, random.Random(3).randbytes(300) + bytes(300), magic=magic)
    whole_enough = {
        2: {16, 17, 18, 19},  # a xerial header alone, and with stray bytes, holds nothing
        4: {0},  # nothing is no frames
    }.get(codec, set())
    for size in range(len(payload)):
        if size in whole_enough:
            assert decompress(codec, payload[:size], limit=LIMIT, magic=magic) == b""
        else:
            with pytest.raises(InvalidRecord):
                decompress(codec, payload[:size], limit=LIMIT, magic=magic)


def test_a_raw_snappy_block_claiming_4_gib_is_refused_by_its_claim() -> None:
    with pytest.raises(InvalidRecord) as refusal:
        decompress(2, b"\xff\xff\xff\xff\x0f" + bytes(20), limit=LIMIT)
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_snappy_claim_that_no_block_of_its_size_can_keep_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="claims to expand to 134217728"):
        decompress(2, b"\x80\x80\x80\x40" + bytes(20), limit=LIMIT, ratio=LIMIT)


def test_a_zstd_claim_beyond_the_limit_is_refused_by_its_claim() -> None:
    frame = bytes.fromhex("28b52ffde0") + struct.pack("<Q", 1 << 40) + bytes.fromhex("010000")
    with pytest.raises(InvalidRecord) as refusal:
        decompress(4, frame, limit=LIMIT)
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("descriptor", ["00a0", "00ff", "e0" + "0000001000000000"])
def test_a_zstd_window_above_128_mib_is_refused(descriptor: str) -> None:
    frame = bytes.fromhex("28b52ffd" + descriptor + "010000")
    with pytest.raises(InvalidRecord, match="wants a window of"):
        decompress(4, frame, limit=1 << 30, ratio=1 << 30)


def test_many_thousand_empty_gzip_members_do_not_take_quadratic_time() -> None:
    payload = gzip.compress(b"") * 20_000
    begin = time.process_time()
    assert decompress(1, payload, limit=LIMIT) == b""
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(("codec", "magic"), [use for use in EVERY_USE if use[0]])
def test_the_ratio_bounds_what_is_larger_than_a_mebibyte(codec: int, magic: int) -> None:
    # given 4 MiB that shrink to a tenth or less
    payload = compress(codec, bytes(1 << 22), magic=magic)
    size = len(payload)
    exact = -(-(1 << 22) // size)
    # then the ratio refuses what it must, and nothing more
    assert len(decompress(codec, payload, limit=LIMIT, ratio=exact, magic=magic)) == 1 << 22
    bound = max(1 << 20, (exact - 1) * size)
    text = rf"{bound} bytes \(max.decompression.ratio {exact - 1} for {size} bytes\)"
    with pytest.raises(InvalidRecord, match=text) as refusal:
        decompress(codec, payload, limit=LIMIT, ratio=exact - 1, magic=magic)
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    # and the size still bounds it where the ratio is generous
    with pytest.raises(InvalidRecord, match=r"3000000 bytes \(max.decompressed.batch.bytes\)"):
        decompress(codec, payload, limit=3_000_000, ratio=LIMIT, magic=magic)


@pytest.mark.parametrize("codec", CODECS)
def test_a_mebibyte_is_free_of_the_ratio(codec: int) -> None:
    payload = compress(codec, bytes(1 << 20))
    assert len(decompress(codec, payload, limit=LIMIT, ratio=1)) == 1 << 20


def test_gzip_never_reaches_the_default_ratio() -> None:
    payload = compress(1, bytes(1 << 25), level=9)
    assert 1_000 < (1 << 25) / len(payload) <= 1032 < DEFAULT_RATIO
    assert len(decompress(1, payload, limit=LIMIT)) == 1 << 25


def test_calls_are_counted_by_codec_and_none_is_not() -> None:
    before = {kind: dict(counters) for kind, counters in CALLS.items()}
    for codec, name in enumerate(NAMES):
        for _ in range(codec):
            payload = compress(codec, name.encode())
        decompress(codec, payload if codec else b"", limit=LIMIT)
    grown = {
        kind: {name: count - before[kind][name] for name, count in counters.items()}
        for kind, counters in CALLS.items()
    }
    assert grown == {
        "compress": {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4},
        "decompress": {"gzip": 1, "snappy": 1, "lz4": 1, "zstd": 1},
    }


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_within_bounded_memory_and_time(codec: int, tmp_path: Path) -> None:
    # given a payload that expands to a gibibyte, and a process that may not have one
    bomb = tmp_path / "bomb"
    bomb.write_bytes(BOMBS[codec]())
    assert bomb.stat().st_size < 1 << 26
    code = f"""
import resource, time
from pathlib import Path
from protocol.records.compression import decompress
from protocol.records.errors import InvalidRecord
decompress({codec}, {compress(codec, b"warm")!r}, limit=100)
data = Path({str(bomb)!r}).read_bytes()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.process_time()
try:
    decompress({codec}, data, limit=1 << 25)
except InvalidRecord as refusal:
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(int(refusal.code), (after - before) // 1024, time.process_time() - begin)
"""
    # when
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    # then
    error, grown_mib, seconds = result.stdout.split()
    assert int(error) == ErrorCode.MESSAGE_TOO_LARGE
    assert int(grown_mib) < 100
    assert float(seconds) < 2
