"""A large payload is made rows a slice at a time: the same rows, and a bound on the memory.

python -m tests.pipeline.test_decode_memory KIND       # the MB that decoding added, at its peak
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.columns import decode
from pipeline.columns.decode import decode_pieces
from pipeline.errors import CorruptData
from protocol.records.builder import build_batch, encode_varint, wrap_records
from protocol.records.compression import GZIP, NONE, ZSTD
from protocol.records.legacy import build_messages
from tests.support.broker_process import CHECKOUT

PAYLOAD_MB = 40
BOUND_MB = {"tiny": 250, "headers": 500}
"""Decoded as a whole, tiny records took 400 MB and headers 1700."""
HEADERS = 200
"""Of a record."""

ROWS = [
    (
        1_700_000_000_000 + number,
        None if number % 5 == 0 else b"key %d" % number,
        None if number % 7 == 0 else b"x" * (number % 300),
        tuple((f"name {index}", b"v") for index in range(number % 4)),
    )
    for number in range(400)
]
PLAIN_ROWS = [(time, key, value, ()) for time, key, value, _ in ROWS]


def bomb(kind: str) -> bytes:
    """A batch of a few kilobytes, of PAYLOAD_MB once it is opened."""
    if kind == "tiny":
        record = bytes([12, 0, 0, 0, 1, 1, 0])
    else:
        body = bytes([0, 0, 0, 1, 1]) + encode_varint(HEADERS) + bytes([0, 1]) * HEADERS
        record = encode_varint(len(body)) + body
    count = (PAYLOAD_MB << 20) // len(record)
    made = wrap_records(record * count, count, attributes=ZSTD, base_timestamp=1, max_timestamp=1)
    return bytes(made)


def table(entries: bytes, *, start: int = 0, end: int = 1 << 40) -> pa.Table:
    return pa.Table.from_batches(
        decode_pieces(entries, topic="t", partition=0, start=start, end=end, headers=True)
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every payload here is large."""
    monkeypatch.setattr(decode, "GROUP_BYTES", 100)
    monkeypatch.setattr(decode, "SLICE_BYTES", 1_000)


ENTRIES = {
    "batches": b"".join(
        build_batch(ROWS, base_offset=400 * number, codec=codec)
        for number, codec in enumerate((NONE, ZSTD, GZIP))
    ),
    "format 1": build_messages(PLAIN_ROWS, magic=1, codec=GZIP, base_offset=0)
    + build_messages(PLAIN_ROWS, magic=1, base_offset=400),
    "format 0": build_messages(PLAIN_ROWS, magic=0, codec=GZIP, base_offset=0)
    + build_messages(PLAIN_ROWS, magic=0, base_offset=400),
}


@pytest.mark.parametrize("kind", ENTRIES)
def test_rows_of_slices_are_those_of_the_whole(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [table(ENTRIES[kind]), table(ENTRIES[kind], start=150, end=733)]
    monkeypatch.setattr(decode, "GROUP_BYTES", 100)
    monkeypatch.setattr(decode, "SLICE_BYTES", 1_000)
    sliced = [table(ENTRIES[kind]), table(ENTRIES[kind], start=150, end=733)]
    assert [one.to_pylist() for one in sliced] == [one.to_pylist() for one in whole]
    assert whole[0].num_rows >= 800
    assert sliced[0]["offset"].num_chunks > whole[0]["offset"].num_chunks


def test_of_a_batch_with_a_bad_record_no_slice_is_given(small: None) -> None:
    good = build_batch(ROWS)
    payload = bytearray(memoryview(good)[61:])
    # The count of headers of the last record, whose length leads to the end all the same.
    last = len(payload) - 1 - 3 * len(b"\x0cname 0\x02v")
    assert payload[last] == 6
    payload[last] = 8
    bad = wrap_records(payload, 400, attributes=NONE, base_timestamp=1, max_timestamp=1)
    found: list[tuple[int, int]] = []
    pieces = decode_pieces(
        bytes(bad) + build_batch(ROWS, base_offset=400),
        topic="t", partition=0, start=0, end=1000, headers=True,
        left_out=lambda first, last, reason: found.append((first, last)),
    )  # fmt: skip
    offsets = [offset for piece in pieces for offset in piece["offset"].to_pylist()]
    assert offsets == list(range(400, 800))
    assert found == [(0, 399)]
    with pytest.raises(CorruptData, match="t-0 offset 0"):
        table(bytes(bad))


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells the peak")
@pytest.mark.parametrize("kind", ["tiny", "headers"])
def test_what_a_bomb_takes_is_bounded_by_its_payload(kind: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.test_decode_memory", kind],
        cwd=CHECKOUT, capture_output=True, text=True, check=True, timeout=110,
    )  # fmt: skip
    assert int(ran.stdout) < BOUND_MB[kind]


def peak_mb() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) // 1024 for line in status.splitlines() if "VmHWM" in line)


if __name__ == "__main__":
    entries_of = bomb(sys.argv[1])
    table(build_batch(ROWS))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = peak_mb()
    for rows in decode_pieces(
        entries_of, topic="t", partition=0, start=0, end=1 << 40, headers=True
    ):
        assert rows.num_rows
    print(peak_mb() - before)
