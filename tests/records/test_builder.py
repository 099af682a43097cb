from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.batch import Batch
from protocol.records.builder import BatchBuilder, batch_of_rows, build_batch
from protocol.records.record import Record
from protocol.records.walk import walk
from tests.records.corpus import reference_crc32c
from tests.records.oracle import DefaultRecordBatchBuilder, MemoryRecords

INT64 = st.integers(-(2**63), 2**63 - 1)
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=20), BYTES), max_size=4).map(tuple)
RECORDS = st.lists(st.tuples(INT64, BYTES, BYTES, HEADERS), min_size=1, max_size=20)
SOME = [
    (1_500_000_000_000, b"key", b"value " * 50, (("a", b"1"), ("a", None), ("", b""))),
    (1_499_999_999_000, None, None, ()),
    (1_500_000_000_900, b"", b"", ()),
]


def batch_of(data: bytes) -> Batch:
    assert [entry[1:] for entry in walk(data)] == [(len(data), 2)]
    return Batch(memoryview(bytearray(data)))


@settings(max_examples=150, deadline=None)
@given(records=RECORDS, codec=st.integers(0, 4), base_offset=st.integers(0, 2**62))
def test_records_come_back_from_a_batch_as_they_went_in(
    records: list[tuple[int, bytes | None, bytes | None, Any]], codec: int, base_offset: int
) -> None:
    batch = batch_of(build_batch(records, codec=codec, base_offset=base_offset))
    assert list(batch.records()) == [
        Record(base_offset + index, timestamp, key, value, headers)
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]
    assert batch.crc == reference_crc32c(bytes(batch.view[21:]))
    assert batch.last_offset == base_offset + len(records) - 1
    assert batch.max_timestamp == max(-1, *(record[0] for record in records))


@pytest.mark.parametrize("codec", range(4))
def test_kafka_python_reads_what_is_built(codec: int) -> None:
    data = build_batch(
        SOME,
        codec=codec,
        base_offset=900,
        producer_id=77,
        producer_epoch=2,
        base_sequence=5,
        leader_epoch=4,
        transactional=True,
    )
    (read,) = MemoryRecords(data)
    assert read.validate_crc()
    assert (read.base_offset, read.leader_epoch, read.compression_type) == (900, 4, codec)
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (77, 2, 5)
    assert read.is_transactional
    assert [
        (record.timestamp, record.key, record.value, tuple(record.headers)) for record in read
    ] == SOME
    assert read.max_timestamp == 1_500_000_000_900


@pytest.mark.parametrize("codec", range(4))
def test_what_kafka_python_builds_is_read_alike(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for index, (timestamp, key, value, headers) in enumerate(SOME):
        builder.append(index, timestamp, key, value, list(headers))
    batch = batch_of(bytes(builder.build()))
    assert list(batch.records()) == [
        Record(index, timestamp, key, value, headers)
        for index, (timestamp, key, value, headers) in enumerate(SOME)
    ]
    assert batch.is_intact()


def test_uncompressed_batches_are_those_of_kafka_python_byte_for_byte() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, 77, 2, 5, 1 << 20)
    for index, (timestamp, key, value, headers) in enumerate(SOME):
        builder.append(index, timestamp, key, value, list(headers))
    ours = build_batch(SOME, producer_id=77, producer_epoch=2, base_sequence=5, leader_epoch=0)
    theirs = bytearray(builder.build())
    theirs[12:16] = bytes(4)
    assert ours == bytes(theirs)


def test_an_end_marker_has_the_bytes_of_a_known_one() -> None:
    # COMMIT at offset 1010 by producer 77, epoch 2, coordinator epoch 3.
    known = bytes.fromhex(
        "00000000000003f2000000420000000402ecfbb99f00300000000000000000000003e700000000000003e7"
        "000000000000004d0002ffffffff00000001"
        "2000000008000000010c00000000000300"
    )
    assert known == build_batch(
        [(999, bytes((0, 0, 0, 1)), bytes((0, 0, 0, 0, 0, 3)), ())],
        base_offset=1010,
        producer_id=77,
        producer_epoch=2,
        leader_epoch=4,
        transactional=True,
        control=True,
    )


def test_a_batch_of_log_append_time_keeps_the_create_times_in_its_deltas() -> None:
    batch = batch_of(build_batch(SOME, log_append_time_ms=42))
    assert [record.timestamp_ms for record in batch.records()] == [42, 42, 42]
    assert batch.base_timestamp == 1_500_000_000_000


def test_timestamps_that_are_all_negative_leave_no_max_timestamp() -> None:
    batch = batch_of(build_batch([(-500, None, None, ()), (-400, None, None, ())]))
    assert batch.max_timestamp == -1
    assert [record.timestamp_ms for record in batch.records()] == [-500, -400]


def test_the_size_told_while_building_is_that_of_the_batch() -> None:
    builder = BatchBuilder()
    for timestamp, key, value, headers in SOME:
        builder.append(timestamp, key, value, headers)
    assert builder.size == len(builder.build())
    assert builder.record_count == 3


def test_header_names_that_are_not_utf8_are_written_back_as_they_were() -> None:
    for name in (b"\xff\x00A", "\udcff\x00A"):
        (record,) = batch_of(build_batch([(0, None, None, [(name, None)])])).records()
        assert record.headers == (("\udcff\x00A", None),)


def test_a_batch_of_nothing_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


def test_many_rows_at_once_are_the_same_bytes_as_one_after_the_other() -> None:
    rows: list[tuple[int, bytes | None, bytes | None, Any]] = [
        (5, b"k", b"v", [("a", b"1"), (b"\xff", None)]),
        (9_000_000, None, None, ()),
        (-1, b"x" * 9_000, b"y" * 20_000, ()),
        (1 << 62, None, b"z", ()),
        (-(1 << 62), None, b"z", ()),
        *[(7, None, b"n", ()) for _ in range(9_000)],
    ]
    assert batch_of_rows(rows) == build_batch(rows)
    for codec in range(5):
        assert batch_of_rows(SOME, codec=codec) == build_batch(SOME, codec=codec)
    with pytest.raises(ValueError, match="at least one record"):
        batch_of_rows([])
