"""The newest record of each key, as a dictionary would keep it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import CorruptData
from pipeline.left_out import LeftOut
from pipeline.reading.plan import Range
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.upserting import newest
from pipeline.upserting.comparison import compare
from pipeline.upserting.newest import newest_of, with_keys

Pair = tuple[bytes | None, bytes | None]
KEYS = st.sampled_from([b"", b"a", b"b", b"\x00\xff", b"a long key"])
PAIRS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=4))), max_size=40)
WHOLE = Range("users", 0, 0, 1000)


def batch(pairs: list[Pair], first: int = 0) -> pa.RecordBatch:
    rows = [
        {
            "key": key,
            "value": value,
            "topic": "users",
            "partition": 0,
            "offset": first + index,
            "timestamp": first + index,
            "timestampType": 0,
            "headers": None,
        }
        for index, (key, value) in enumerate(pairs)
    ]
    return pa.RecordBatch.from_pylist(rows, RECORDS_AND_HEADERS)


def table(pairs: list[Pair], first: int = 0) -> pa.Table:
    return pa.Table.from_batches([batch(pairs, first)])


def content(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [(row["key"], row["value"], row["offset"]) for row in rows.to_pylist()]


@given(PAIRS, st.integers(1, 7), st.integers(1, 9))
def test_the_last_record_of_each_key_stays_in_the_order_of_offsets(
    pairs: list[Pair], cut: int, reduced: int
) -> None:
    wanted = {key: (key, value, offset) for offset, (key, value) in enumerate(pairs)}
    batches = [batch(pairs[at : at + cut], at) for at in range(0, len(pairs), cut)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest, "REDUCE_ROWS", reduced)
        found = content(newest_of(batches))
    assert found == sorted(wanted.values(), key=lambda row: row[2])


def test_a_record_without_a_key_is_refused_or_counted() -> None:
    rows = batch([(b"a", b"1"), (None, b"2"), (b"b", b"3")], 70)
    with pytest.raises(CorruptData, match=r"users-0 offset 71: a record without a key"):
        list(with_keys([rows], WHOLE, None))
    left_out = LeftOut()
    kept = list(with_keys([rows], WHOLE, left_out))
    assert content(pa.Table.from_batches(kept)) == [(b"a", b"1", 70), (b"b", b"3", 72)]
    assert left_out.offsets_corrupt == 1


@given(PAIRS, PAIRS)
def test_a_table_that_has_taken_everything_in_does_not_differ(
    before: list[Pair], after: list[Pair]
) -> None:
    everything = batch(before + after)
    taken = newest_of([batch(before)])
    rows = taken.filter(pa.compute.is_valid(taken["value"]))
    found = compare(rows, newest_of([everything]), WHOLE, len(before))
    assert found.differences == 0
    assert found.equal + found.written_over == rows.num_rows


def test_each_kind_of_difference_is_counted() -> None:
    topic = newest_of(
        [batch([(b"same", b"1"), (b"lost", b"2"), (b"old", b"3"), (b"dead", None), (b"new", b"4")])]
    )
    rows = pa.concat_tables(
        [
            table([(b"same", b"1")], 0),
            table([(b"old", b"0")], 2),
            table([(b"dead", b"x")], 1),
            table([(b"new", b"3")], 3),
            table([(b"nobody's", b"5")], 9),
        ]
    )
    found = compare(rows, topic, WHOLE._replace(start=0), 4)
    assert (found.equal, found.missing, found.different, found.undeleted, found.unknown) == (
        *(1, 1, 1, 1),
        1,
    )
    assert found.written_over == 1
    assert found.differences == 4
    assert found.examples[0] == "key 'lost', offset 1: missing"
    later = compare(rows, topic, WHOLE._replace(start=10), 4)
    assert (later.unknown, later.before_start) == (0, 1)
