"""Decoding against the plain readers: records of every format, codec and shape, mixed."""

from __future__ import annotations

import os
import random
import sys
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.columns import decode, record_fields
from pipeline.columns.decode import decode_pieces
from pipeline.errors import CodecMissing, CorruptData
from pipeline.schemas import RECORDS, RECORDS_AND_HEADERS
from protocol.records.builder import build_batch
from protocol.records.compression import DEFAULT_RATIO, compress
from protocol.records.layout import HEADER_SIZE, INT32, INT64, UINT32
from protocol.records.legacy import build_messages
from protocol.records.markers import Marker, encode_marker
from protocol.records.starts import interpreted_record_starts
from tests.fuzz.test_mutated_sets import seeds, spoiled
from tests.pipeline.plain_rows import arrow_rows, plain_rows
from tests.records.corpus import raw, reseal, sets, vectors
from tests.records.loop_inputs import record, varint

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from tests.pipeline.plain_rows import Row

INT64_MAX = 2**63 - 1
MOMENT = 1_700_000_000_000
SEED = int(os.environ.get("FUZZ_SEED", "20261122"))
MUTANTS = 800 * int(os.environ.get("TEST_FUZZ_FACTOR", "1"))


def rows(entries: bytes, start: int = 0, end: int = INT64_MAX, **options: Any) -> list[Row]:
    pieces = decode_pieces(
        entries, topic="orders", partition=3, start=start, end=end, headers=True, **options
    )
    return [row for piece in pieces for row in arrow_rows(piece)]


def rows_and_faults(
    entries: bytes, start: int = 0, end: int = INT64_MAX
) -> tuple[list[Row], list[tuple[int, int, str]]]:
    told: list[tuple[int, int, str]] = []
    return rows(entries, start, end, left_out=lambda *fault: told.append(fault)), told


def faults(entries: bytes, start: int = 0, end: int = INT64_MAX) -> list[tuple[int, int]]:
    """First and last offsets."""
    return [fault[:2] for fault in rows_and_faults(entries, start, end)[1]]


def sealed(records: bytes, count: int, attributes: int = 0) -> bytes:
    """A batch with exactly these bytes for records."""
    batch = bytearray(build_batch([(MOMENT, b"", b"", ())]))[:HEADER_SIZE] + records
    INT32.pack_into(batch, 8, len(batch) - 12)
    INT32.pack_into(batch, 57, count)
    INT32.pack_into(batch, 23, max(count - 1, 0))
    batch[22] = attributes
    return bytes(reseal(batch))


# Whatever is written.

TIMESTAMPS = st.one_of(
    st.just(-1),
    st.integers(MOMENT, MOMENT + 5_000),
    st.integers(-(2**62), 2**62),
    st.sampled_from([0, INT64_MAX, -(2**63), INT64_MAX // 1000, INT64_MAX // 1000 + 1]),
)
BLOBS = st.one_of(
    st.none(),
    st.binary(max_size=4),
    st.integers(60, 70).map(bytes),
    st.integers(8_180, 8_200).map(bytes),
)
NAMES = st.one_of(st.just(b"trace"), st.binary(max_size=3))
HEADERS = st.one_of(
    st.just(()),
    st.lists(st.tuples(NAMES, st.one_of(st.none(), st.binary(max_size=3))), max_size=3),
    st.just([(b"n", b"v")] * 70),
)
RECORDS_OF_ANY_KIND = st.lists(st.tuples(TIMESTAMPS, BLOBS, BLOBS, HEADERS), min_size=1, max_size=6)


@st.composite
def some_entries(draw: DrawFn) -> bytes:
    parts = []
    offset = draw(st.sampled_from([0, 7, 2**31, 2**53]))
    for _ in range(draw(st.integers(1, 4))):
        records = draw(RECORDS_OF_ANY_KIND)
        magic = draw(st.sampled_from([0, 1, 2, 2, 2]))
        codec = draw(st.sampled_from([0, 0, 1, 2, 3, 4][: 6 if magic == 2 else 5]))
        stamp = draw(st.sampled_from([None, None, MOMENT]))
        if magic == 2:
            made = build_batch(records, base_offset=offset, codec=codec, log_append_time_ms=stamp)
        else:
            made = build_messages(
                records, magic=magic, base_offset=offset, codec=codec, append_time_ms=stamp
            )
        parts.append(made)
        offset += len(records) + draw(st.integers(0, 3))
    return b"".join(parts)


@settings(max_examples=70, deadline=None)
@given(some_entries(), st.integers(0, 12), st.integers(0, 12))
def test_entries_of_all_formats_decode_as_the_plain_readers_read_them(
    entries: bytes, start: int, length: int
) -> None:
    assert (rows(entries), []) == plain_rows(entries)
    end = start + length
    assert (rows(entries, start, end), []) == plain_rows(entries, start, end)


@pytest.mark.parametrize("vector", sets(0, 1, 2), ids=lambda vector: str(vector["id"]))
def test_sets_of_real_clients_decode_as_the_plain_readers_read_them(vector: dict[str, Any]) -> None:
    entries = bytes(raw(vector["bytes"]))
    wanted, bad = plain_rows(entries)
    assert rows(entries) == wanted
    assert len(faults(entries)) == len(bad) == 0


def test_everything_that_was_converted_and_stored_decodes_too() -> None:
    for vector in vectors("downconvert.json"):
        entries = bytes(raw(vector["stored"]))
        wanted, bad = plain_rows(entries)
        found, told = rows_and_faults(entries)
        assert (found, len(told)) == (wanted, len(bad)), vector["id"]


def test_a_mixed_run_keeps_its_order() -> None:
    three = [(MOMENT, b"k", b"%d" % number, ()) for number in range(3)]
    entries = b"".join(
        build_batch(three, base_offset=3 * place, codec=place % 5)
        if place % 2
        else build_messages(three, magic=place // 2 % 2, base_offset=3 * place, codec=place % 4)
        for place in range(40)
    )
    found = rows(entries)
    assert [row[0] for row in found] == list(range(120))
    assert found == plain_rows(entries)[0]


# What a row says.


def test_columns_are_those_of_the_schemas() -> None:
    batch = build_batch([(MOMENT, b"k", b"v", [("h", None)])], base_offset=5)
    options: dict[str, Any] = {"topic": "orders", "partition": 3, "start": 0, "end": 9}
    (plain,) = decode_pieces(batch, **options)
    assert plain.schema == RECORDS
    (with_headers,) = decode_pieces(batch, **options, headers=True)
    assert with_headers.schema == RECORDS_AND_HEADERS
    assert not list(decode_pieces(b"", **options))
    (row,) = plain.to_pylist()
    assert row["timestamp"].timestamp() * 1000 == MOMENT
    del row["timestamp"]
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 3,
        "offset": 5,
        "timestampType": 0,
    }


def test_a_name_that_is_not_utf8_is_shown_with_replacements() -> None:
    pairs: list[tuple[str | bytes, bytes | None]] = [
        (b"\xff\xfe", b"1"),
        ("trace", b"2"),
        (b"caf\xc3\xa9", None),
        (b"\xff\xfe", b""),
    ]
    entries = build_batch([(MOMENT, None, None, pairs), (MOMENT, None, None, ())])
    found = [row[5] for row in rows(entries)]
    assert found[0] == [
        ("\ufffd\ufffd", b"1"),
        ("trace", b"2"),
        ("café", None),
        ("\ufffd\ufffd", b""),
    ]
    assert found[1] is None


def test_log_append_time_is_the_time_of_every_record() -> None:
    entries = build_batch([(5, None, b"", ()), (7, None, b"", ())], log_append_time_ms=MOMENT)
    assert [row[1:3] for row in rows(entries)] == [(MOMENT, 1), (MOMENT, 1)]


def test_format_0_has_no_timestamps_and_no_type() -> None:
    entries = build_messages([(5, None, b"a", ())], magic=0)
    assert [row[1:3] for row in rows(entries)] == [(None, -1)]


def test_control_batches_are_left_out() -> None:
    marker = encode_marker(7, 0, marker=Marker(True, 1), timestamp_ms=MOMENT)
    assert rows(build_batch([(1, b"k", b"v", ())]) + bytes(marker)) == [(0, 1, 0, b"k", b"v", None)]


def test_offsets_of_a_compacted_batch_keep_their_holes() -> None:
    records = record(0, 2, b"a", b"1") + record(0, 9, b"b", None) + record(0, 10, b"c", b"3")
    batch = bytearray(sealed(records, 3))
    INT32.pack_into(batch, 23, 12)
    entries = bytes(reseal(batch)) + build_batch([(1, b"k", b"v", ())], base_offset=13)
    assert [row[0] for row in rows(entries)] == [2, 9, 10, 13]
    assert [row[0] for row in rows(entries, 9, 13)] == [9, 10]


def test_an_emptied_batch_has_no_rows() -> None:
    assert rows(sealed(b"", 0) + build_batch([(1, b"k", b"v", ())], base_offset=9)) == [
        (9, 1, 0, b"k", b"v", None)
    ]
    assert rows(sealed(b"", 0)) == []


def test_an_entry_that_is_cut_is_the_end() -> None:
    batch = build_batch([(1, b"k", b"v", ())])
    assert len(rows(batch + batch[:-1])) == 1


def test_entries_out_of_the_range_are_not_looked_at() -> None:
    damaged = bytearray(build_batch([(1, b"k", b"v", ())] * 5))
    damaged[-1] ^= 1
    good = build_batch([(1, b"k", b"v", ())] * 5, base_offset=5)
    assert [row[0] for row in rows(bytes(damaged) + good, 5, 8)] == [5, 6, 7]
    later = good + bytes(damaged).replace(b"\0" * 8, INT64.pack(10), 1)
    assert [row[0] for row in rows(later, 5, 10)] == [5, 6, 7, 8, 9]


def test_pieces_are_the_whole_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "GROUP_BYTES", 400)
    monkeypatch.setattr(decode, "PIECE_ROWS", 7)
    monkeypatch.setattr(record_fields, "BLOCK_RECORDS", 5)
    three = [
        (MOMENT + number, b"k", b"%d" % number, [("h", b"1")] * (number % 3))
        for number in range(20)
    ]
    entries = b"".join(
        build_batch(three, base_offset=20 * place, codec=place % 5) for place in range(6)
    ) + build_messages(three, magic=1, base_offset=120, codec=1)
    options: dict[str, Any] = {"topic": "t", "partition": 0, "start": 3, "end": 133}
    pieces = list(decode_pieces(entries, **options, headers=True))
    assert max(piece.num_rows for piece in pieces) == 7
    assert [row for piece in pieces for row in arrow_rows(piece)] == plain_rows(entries, 3, 133)[0]


# Transactions that were aborted.


def transaction(producer: int, offset: int, count: int = 2) -> bytes:
    return build_batch(
        [(MOMENT, None, b"%d" % producer, ())] * count,
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def ended(producer: int, offset: int, *, commit: bool) -> bytes:
    batch = encode_marker(producer, 0, marker=Marker(commit, 1), timestamp_ms=MOMENT)
    INT64.pack_into(batch, 0, offset)
    return bytes(batch)


def test_aborted_transactions_are_left_out_up_to_their_markers() -> None:
    entries = b"".join(
        (
            transaction(7, 0),
            transaction(8, 2),
            build_batch([(MOMENT, None, b"plain", ())], base_offset=4),
            transaction(7, 5),
            ended(7, 7, commit=False),
            transaction(7, 8),
            ended(8, 10, commit=True),
            ended(7, 11, commit=True),
            transaction(8, 12),
            ended(8, 14, commit=False),
        )
    )
    found = [row[0] for row in rows(entries, aborted=[(8, 12), (7, 0)])]
    assert found == [2, 3, 4, 8, 9]
    assert [row[0] for row in rows(entries)] == [0, 1, 2, 3, 4, 5, 6, 8, 9, 12, 13]
    # A transaction that began before the first entry here; its marker lies before what is wanted.
    assert [row[0] for row in rows(entries[:], 7, 12, aborted=[(7, 0)])] == [8, 9]


# What is refused.


def test_a_wrong_checksum_says_where_and_what() -> None:
    batch = bytearray(build_batch([(1, b"k", b"v", ())] * 3, base_offset=8123))
    stated = UINT32.unpack_from(batch, 17)[0]
    batch[-2] ^= 1
    with pytest.raises(CorruptData) as raised:
        rows(bytes(batch))
    assert str(raised.value).startswith(
        f"orders-3 offset 8123: checksum is {stated:#010x}, the bytes have 0x"
    )
    assert faults(bytes(batch)) == [(8123, 8125)]


BAD_RECORDS = {
    "a length beyond the end": b"\x40" + record(0, 0, b"k", b"v")[1:],
    "a length of nothing": b"\0" + record(0, 0, b"k", b"v"),
    "a negative length": b"\1" + record(0, 0, b"k", b"v")[1:],
    "bytes left": record(0, 0, b"k", b"v") + b"\0",
    "a key that runs out": b"\x10" + b"\0\0\0\x7ek\2v\0",
    "a value that runs out": b"\x10" + b"\0\0\0\2k\x7ev\0",
    "a huge key": b"\x16" + b"\0\0\0" + varint(2**31 - 1) + b"k\2v",
    "a varint of six bytes": b"\x1a" + b"\0\0" + b"\x80\x80\x80\x80\x80\0" + b"\2k\2v\0",
    "a length of six bytes": b"\x90\x80\x80\x80\x80\0" + record(0, 0, b"k", b"v")[1:],
    "a varlong of eleven bytes": b"\x24" + b"\0" + b"\x80" * 10 + b"\0\0\2k\2v\0",
    "a negative header count": b"\x10" + b"\0\0\0\2k\2v\1",
    "headers that are not there": b"\x10" + b"\0\0\0\2k\2v\2",
    "a huge header count": b"\x18" + b"\0\0\0\2k\2v" + varint(2**31 - 1),
    "a header without a name": b"\x14" + b"\0\0\0\2k\2v\2\1\0",
    "a header name that runs out": b"\x14" + b"\0\0\0\2k\2v\2\4\0",
    "a header value that runs out": b"\x14" + b"\0\0\0\2k\2v\2\0\2",
    "a byte after the headers": b"\x16" + b"\0\0\0\2k\2v\2\0\1\0",
}


@pytest.mark.parametrize("what", BAD_RECORDS)
@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize("few", [0, 32])
def test_bad_records_lose_their_batch_and_no_other(
    what: str, codec: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_fields, "FEW_RECORDS", few)
    good = record(0, 0, b"first", b"1", [(b"h", b"v")])
    bad = good + BAD_RECORDS[what]
    batch = bytearray(sealed(compress(codec, bad), 2, codec))
    assert plain_rows(bytes(batch))[1] == [0], "the plain reader refuses it"
    INT64.pack_into(batch, 0, 10)
    before = build_batch([(MOMENT, b"k", b"v", [("a", None)])] * 10)
    after = build_batch([(MOMENT, b"k", b"v", [("b", None)])] * 2, base_offset=12)
    found, told = rows_and_faults(before + bytes(batch) + after)
    assert found == plain_rows(before)[0] + plain_rows(after)[0]
    assert [fault[:2] for fault in told] == [(10, 11)]
    with pytest.raises(
        CorruptData, match=r"^orders-3 offset 10: .*(record|bytes are left|varint|varlong|header)"
    ):
        rows(before + bytes(batch) + after)


def test_lengths_that_lead_backwards_are_refused() -> None:
    # Two records: one from byte 0 to -1, whose header count is wrong; one from -1 to the end.
    records = bytes([0x03, 0, 0, 1, 1, 2, 0, 0x18]) + bytes(11) + bytes([2 * 20])
    batch = sealed(records, 2)
    assert plain_rows(batch) == ([], [0])
    found, told = rows_and_faults(batch)
    assert not found
    assert [fault[:2] for fault in told] == [(0, 1)]


def test_counts_are_not_believed() -> None:
    for count in (3, 2**31 - 1, -1):
        batch = sealed(record(0, 0, b"k", b"v"), count)
        assert len(faults(batch)) == 1
    with_headers = b"\0\0\0\1\1" + varint(8_000) + bytes(15_900)
    batch = sealed(varint(len(with_headers)) + with_headers, 1)
    tracemalloc.start()
    try:
        assert len(faults(batch)) == 1
        assert tracemalloc.get_traced_memory()[1] < 200 * len(batch)
    finally:
        tracemalloc.stop()


def test_a_bomb_is_one_bad_batch() -> None:
    bomb = compress(4, bytes(200 << 20))
    found, told = rows_and_faults(sealed(bomb, 5, 4))
    assert not found
    ((first, last, reason),) = told
    assert (first, last) == (0, 4)
    assert "expands beyond" in reason


def test_what_compresses_very_well_is_no_bomb() -> None:
    # Beyond the default of max.decompression.ratio, which brokers of Kafka do not have.
    zeros = bytes(3 << 20)
    batch = build_batch([(MOMENT, None, zeros, ())], codec=4)
    assert len(batch) * DEFAULT_RATIO < len(zeros)
    assert [row[4] for row in rows(batch)] == [zeros]


def test_what_is_no_entry_ends_the_run() -> None:
    good = build_batch([(1, b"k", b"v", ())] * 3, base_offset=5)
    for tail in (good[:8] + b"\0\0\0\1" + good[12:], good[:16] + b"\7" + good[17:]):
        assert len(rows_and_faults(good + tail)[0]) == 3
        assert faults(good + tail, 0, 100) == [(8, 99)]


def test_one_bad_message_of_a_run_is_left_out() -> None:
    run = bytearray(build_messages([(1, b"k", b"v", ())] * 5, magic=1, base_offset=20))
    run[-1] ^= 1
    run[60] ^= 1
    found, told = rows_and_faults(bytes(run))
    assert [row[0] for row in found] == [20, 22, 23]
    assert [fault[:2] for fault in told] == [(21, 21), (24, 24)]


def test_a_bad_wrapper_is_told_with_the_offsets_after_the_entry_before_it() -> None:
    records = [(1, b"k", b"v", ())] * 5
    wrappers = [
        bytearray(build_messages(records, magic=1, codec=1, base_offset=offset))
        for offset in (0, 5, 10)
    ]
    wrappers[1][-1] ^= 1
    entries = b"".join(wrappers)
    assert faults(entries) == [(5, 9)]
    assert faults(entries, 7, 9) == [(7, 8)]


def test_damaged_offsets_do_not_count_more_than_there_are() -> None:
    batch = bytearray(build_batch([(1, b"k", b"v", ())] * 3, base_offset=5))
    INT32.pack_into(batch, 23, 2**31 - 1)
    after = build_batch([(1, b"k", b"v", ())], base_offset=8)
    assert faults(bytes(batch) + after) == [(5, 7)]
    assert faults(bytes(batch), 6, 20) == [(6, 19)]


def test_a_codec_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = build_batch([(1, b"k", b"v", ())], codec=4)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(CodecMissing, match="codec zstd needs the Python package cramjam"):
        rows(batch)


def test_mutants_are_read_and_refused_as_the_plain_readers_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the loop in C, where it is built, and without; headers read together, and one by one."""
    rng = random.Random(SEED)
    corpus = seeds()
    accepted = refused = 0
    for number in range(MUTANTS):
        with monkeypatch.context() as patch:
            if number % 2:
                patch.setattr(decode, "record_starts", interpreted_record_starts)
            patch.setattr(record_fields, "FEW_RECORDS", number % 3)
            entries = b"".join(bytes(spoiled(rng, corpus)) for _ in range(rng.choice((1, 1, 2, 4))))
            wanted, bad = plain_rows(entries)
            found, told = rows_and_faults(entries)
        assert (found, len(told)) == (wanted, len(bad)), f"seed {SEED}: {entries.hex()}"
        accepted += bool(wanted)
        refused += bool(bad)
    assert min(accepted, refused) > MUTANTS * 0.2


# Shapes that would be slow if anything were done per batch, or per record, that need not be.


def test_no_shape_of_the_same_bytes_is_slow() -> None:
    tiny = record(0, 0, None, b"")
    shapes = {
        "one batch of tiny records": sealed(tiny * 100_000, 100_000),
        "batches of one record": sealed(tiny, 1) * 10_000,
        "records of a megabyte": build_batch([(0, None, bytes(1 << 20), ())] * 4),
        "a record of many headers": sealed(record(0, 0, None, None, [(b"", None)] * 30_000), 1),
        "formats by turns": (sealed(tiny, 1) + build_messages([(0, None, b"", ())], magic=1))
        * 3_000,
    }
    for name, entries in shapes.items():
        started = time.process_time()  # a tenth of a second here, or less
        assert list(decode_pieces(entries, topic="t", partition=0, start=0, end=INT64_MAX))
        assert time.process_time() - started < 3, name
