"""Encoding, read back by the plain readers and held against the plain builders."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.columns import encode
from pipeline.columns.decode import decode_pieces
from pipeline.columns.encode import encode_records
from pipeline.columns.varints import varint_sizes, write_varints
from pipeline.errors import CodecMissing, WrongUse
from pipeline.schemas import HEADERS, RECORDS_AND_HEADERS, TIMESTAMP
from protocol.records.batch import Batch
from protocol.records.builder import build_batch, encode_varint
from protocol.records.layout import NO_PRODUCER_ID
from protocol.records.legacy import Message, build_messages
from protocol.records.prepare import prepare
from protocol.records.validate import ProduceRules, Validation
from protocol.records.walk import walk
from tests.pipeline.plain_rows import plain_rows
from tests.records.appending import NEXT_OFFSET, placed, read

if TYPE_CHECKING:
    from collections.abc import Sequence

INT64_MAX = 2**63 - 1
MOMENT = 1_700_000_000_000
FORMS = [(magic, codec) for magic in (0, 1, 2) for codec in range(4 + magic // 2)]
"""Every format with every codec that it knows."""

Record = tuple[int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def arrow(records: Sequence[Record]) -> pa.RecordBatch:
    """As a data frame gives them: microseconds, null for no timestamp and for no headers."""
    moments = [None if moment is None else moment * 1000 + 7 for moment, _, _, _ in records]
    headers = [
        None if pairs is None else [{"key": name, "value": value} for name, value in pairs]
        for _, _, _, pairs in records
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([key for _, key, _, _ in records], pa.binary()),
            pa.array([value for _, _, value, _ in records], pa.binary()),
            pa.array(moments, TIMESTAMP),
            pa.array(headers, HEADERS),
        ],
        names=["key", "value", "timestamp", "headers"],
    )


def built(records: Sequence[Record]) -> list[Any]:
    """The same for the plain builders."""
    return [
        (-1 if moment is None else moment, key, value, pairs or ())
        for moment, key, value, pairs in records
    ]


BLOBS = st.one_of(
    st.none(),
    st.binary(max_size=4),
    st.integers(60, 70).map(bytes),
    st.integers(8_180, 8_200).map(bytes),
)
RECORDS = st.lists(
    st.tuples(
        st.one_of(
            st.none(), st.integers(MOMENT, MOMENT + 5_000), st.integers(-(2**53), 2**53)
        ).filter(lambda moment: moment != -1),
        BLOBS,
        BLOBS,
        st.one_of(
            st.none(),
            st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=70)))),
        ),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=70, deadline=None)
@given(RECORDS)
def test_a_batch_is_what_the_plain_builder_makes(records: list[Record]) -> None:
    (made,) = encode_records(arrow(records))
    assert made == build_batch(built(records))


@settings(max_examples=70, deadline=None)
@given(
    RECORDS,
    st.sampled_from(FORMS),
    st.integers(1, 9_000),
    st.integers(1, 4),
)
def test_whatever_is_encoded_reads_back_the_same(
    records: list[Record], form: tuple[int, int], max_bytes: int, max_records: int
) -> None:
    magic, codec = form
    rows = arrow(records)
    options: dict[str, Any] = {"max_bytes": max_bytes, "max_records": max_records}
    made = encode_records(rows, magic=magic, codec=codec, **options)
    assert made == encode_records(rows, magic=magic, codec=codec, **options)
    found = []
    for entries in made:
        part, bad = plain_rows(entries)
        assert not bad
        assert 1 <= len(part) <= max_records
        assert len(entries) <= max_bytes or len(part) == 1
        assert [row[0] for row in part] == list(range(len(part)))
        assert {found_magic for _, _, found_magic in walk(entries)} == {magic}
        found += [row[1:] for row in part]
    assert found == [
        (
            moment if magic else None,
            0 if magic else -1,
            key,
            value,
            (pairs or None) if magic == 2 else None,
        )
        for moment, key, value, pairs in records
    ]


def test_headers_of_batches_are_those_of_a_producer_without_an_id() -> None:
    records: list[Record] = [(MOMENT + delta, None, b"v", None) for delta in (5, 0, 9, 3)]
    (made,) = encode_records(arrow(records))
    batch = Batch(memoryview(made))
    assert batch.is_intact()
    assert (batch.base_timestamp, batch.max_timestamp) == (MOMENT + 5, MOMENT + 9)
    assert (batch.base_offset, batch.last_offset_delta, batch.record_count) == (0, 3, 4)
    assert (batch.producer_id, batch.base_sequence) == (NO_PRODUCER_ID, -1)


@pytest.mark.parametrize(("magic", "codec"), FORMS)
def test_a_broker_takes_what_is_made(magic: int, codec: int) -> None:
    records: list[Record] = [(MOMENT + n, b"key", b"value %d" % n, None) for n in range(500)]
    for entries in encode_records(arrow(records), magic=magic, codec=codec, max_bytes=2_000):
        rules = ProduceRules(
            magic=magic,
            codec=None,
            validation=Validation.STRICT,
            max_message_bytes=2_000,
            before_max_ms=INT64_MAX,
        )
        prepared = prepare(
            memoryview(bytearray(entries)),
            rules,
            version=9 if magic == 2 else 2,
            now_ms=MOMENT,
            next_offset=NEXT_OFFSET,
        )
        assert prepared is not None
        assert not prepared.rebuilt or (magic == 0 and codec)  # absolute offsets inside
        assert read(placed(prepared))


def test_wrappers_have_the_last_offset_and_the_newest_timestamp() -> None:
    records: list[Record] = [(MOMENT + delta, None, b"v" * 50, None) for delta in (5, 0, 9, 3)]
    (made,) = encode_records(arrow(records), magic=1, codec=1)
    wrapper = Message(memoryview(made))
    assert (wrapper.offset, wrapper.timestamp_ms, wrapper.codec) == (3, MOMENT + 9, 1)
    assert made == build_messages(built(records), magic=1, codec=1)
    (plain,) = encode_records(arrow(records), magic=0)
    assert plain == build_messages(built(records), magic=0)


def test_what_does_not_become_smaller_is_not_compressed() -> None:
    noise = np.random.default_rng(1).bytes(5_000)
    for magic in (0, 1, 2):
        (made,) = encode_records(arrow([(MOMENT, None, noise, None)]), magic=magic, codec=3)
        (plain,) = encode_records(arrow([(MOMENT, None, noise, None)]), magic=magic)
        assert made == plain


def test_compressed_batches_of_noise_stay_within_their_size() -> None:
    noise = np.random.default_rng(1)
    rows = arrow([(MOMENT, None, noise.bytes(1_000), None) for _ in range(300)])
    for codec in range(5):
        made = encode_records(rows, codec=codec, max_bytes=100_000)
        assert len(made) == 4
        assert max(len(batch) for batch in made) <= 100_000


def test_a_level_makes_other_bytes_and_the_same_records() -> None:
    rows = arrow([(MOMENT, None, b"%d value" % (n % 77) * 9, None) for n in range(900)])
    for codec, level in ((1, 9), (3, 12), (4, 15)):
        default, asked = (
            encode_records(rows, codec=codec),
            encode_records(rows, codec=codec, level=level),
        )
        assert default != asked
        assert plain_rows(asked[0]) == plain_rows(default[0])


def test_batches_are_filled() -> None:
    rows = arrow([(MOMENT + n, b"k", bytes(100), None) for n in range(10_000)])
    sizes = [len(batch) for batch in encode_records(rows, max_bytes=16_384)]
    assert min(sizes[:-1]) > 16_384 * 0.95
    assert max(sizes) <= 16_384
    assert len(encode_records(rows, max_records=1_000)) == 10


def test_groups_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs: list[tuple[str, bytes | None]] = [("h", b"1"), ("", None)]
    rows = arrow([(MOMENT + n, b"k", bytes(n % 50), pairs[: n % 3]) for n in range(500)])
    at_once = encode_records(rows, max_bytes=700)
    monkeypatch.setattr(encode, "GROUP_BYTES", 2_000)
    assert encode_records(rows, max_bytes=700) == at_once


# Columns.


def one(**columns: pa.Array) -> Any:
    """The only record, as the plain reader sees it."""
    (entries,) = encode_records(pa.RecordBatch.from_pydict(columns))
    ((row,), bad) = plain_rows(entries)
    assert not bad
    return row


def test_a_value_is_enough() -> None:
    assert one(value=pa.array([b"v"])) == (0, None, 0, None, b"v", None)


def test_strings_are_written_as_utf8_and_wide_types_as_they_are() -> None:
    kinds = [pa.string(), pa.large_string(), pa.string_view()]
    for kind in kinds:
        assert one(value=pa.array(["é"], kind))[4] == "é".encode()
    for kind in (pa.large_binary(), pa.binary(2), pa.binary_view()):
        assert one(value=pa.array([b"ab"], kind), key=pa.array([b"ab"], kind))[3:5] == (
            b"ab",
            b"ab",
        )
    assert (
        one(value=pa.nulls(1), key=pa.nulls(1), timestamp=pa.nulls(1), headers=pa.nulls(1))[4]
        is None
    )


@pytest.mark.parametrize(("unit", "ticks"), [("s", 1), ("ms", 1_000), ("us", 10**6), ("ns", 10**9)])
def test_timestamps_of_any_unit_are_rounded_to_the_past(unit: str, ticks: int) -> None:
    value = pa.array([b"v"])
    column = pa.array([3 * ticks + ticks // 1500], pa.int64()).cast(pa.timestamp(unit))
    assert one(value=value, timestamp=column)[1] == 3_000
    column = pa.array([-3 * ticks - ticks // 1500], pa.int64()).cast(pa.timestamp(unit))
    assert one(value=value, timestamp=column)[1] == (-3_001 if ticks > 1_000 else -3_000)


def test_a_slice_of_a_frame_is_written_and_nothing_else() -> None:
    pairs: list[tuple[str, bytes | None]] = [("h", b"1"), ("i", None)]
    records: list[Record] = [
        (MOMENT + n, b"k" * n, b"v%d" % n, pairs[: n % 3] or None) for n in range(20)
    ]
    (whole,) = encode_records(arrow(records[5:12]))
    (part,) = encode_records(arrow(records).slice(5, 7))
    assert part == whole


def test_decoded_rows_are_encoded_as_they_were() -> None:
    pairs: list[tuple[str, bytes | None]] = [("h", b"1"), ("", None)]
    records: list[Record] = [
        (
            MOMENT + n if n % 4 else None,
            b"k" if n % 3 else None,
            None if n % 5 else b"v",
            pairs[: n % 3],
        )
        for n in range(60)
    ]
    batch = build_batch(built(records), codec=4)
    (decoded,) = decode_pieces(batch, topic="t", partition=0, start=0, end=99, headers=True)
    assert decoded.schema == RECORDS_AND_HEADERS
    assert encode_records(decoded, codec=4) == [batch]


def test_no_rows_are_no_batches() -> None:
    assert encode_records(arrow([])) == []


# What is refused.


def test_what_cannot_be_written_is_told_in_a_line() -> None:
    value = pa.array([b"v", b"w"])

    def refusal(**options: Any) -> str:
        columns = {"value": value, **options.pop("columns", {})}
        with pytest.raises(WrongUse) as raised:
            encode_records(pa.RecordBatch.from_pydict(columns), **options)
        return str(raised.value)

    assert refusal(magic=3) == "message format 3, known are 0, 1 and 2"
    assert refusal(codec=5) == "codec 5, known are 0 to 4"
    assert refusal(codec=4, magic=1) == "zstd in message format 1, it needs format 2"
    assert refusal(columns={"value": pa.array([1, 2])}) == (
        "column 'value' has type int64, wanted binary or string"
    )
    assert refusal(columns={"timestamp": pa.array([1, 2])}) == (
        "column 'timestamp' has type int64, wanted a timestamp"
    )
    assert refusal(columns={"headers": pa.array([["a"], []])}).startswith(
        "column 'headers' has type list<"
    )
    nameless = pa.array([[], [{"key": "a", "value": b""}, {"key": None, "value": b""}]], HEADERS)
    assert refusal(columns={"headers": nameless}) == "row 1 of 2 has a header without a key"
    with pytest.raises(WrongUse, match="no column 'value' among key"):
        encode_records(pa.RecordBatch.from_pydict({"key": value}))


def test_a_record_that_no_field_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "RECORD_BYTES", 1_000)
    rows = arrow([(MOMENT, None, b"v", None), (MOMENT, b"k", bytes(1_000), None)])
    with pytest.raises(WrongUse, match=r"row 1 has 10.. bytes, a record has at most 1000"):
        encode_records(rows)


def test_a_codec_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    for magic in (1, 2):
        with pytest.raises(CodecMissing, match="codec lz4 needs the Python package lz4"):
            encode_records(arrow([(MOMENT, None, bytes(500), None)]), codec=3, magic=magic)


# Varints.


@settings(max_examples=70, deadline=None)
@given(st.lists(st.integers(-(2**63), INT64_MAX), min_size=1, max_size=9))
def test_varints_are_those_of_the_plain_builder(numbers: list[int]) -> None:
    column = np.array(numbers, dtype=np.int64)
    sizes = varint_sizes(column)
    out = np.zeros(int(sizes.sum()), dtype=np.uint8)
    write_varints(out, np.cumsum(sizes) - sizes, column, sizes)
    assert out.tobytes() == b"".join(encode_varint(number) for number in numbers)
