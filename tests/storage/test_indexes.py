"""The two indexes: Apache Kafka's bytes, and every way to arrive at them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.offset_index import OffsetIndex
from storage.segment import Segment
from storage.time_index import TimeIndex
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    Vector,
    append,
    batch,
    batches_in,
    decoded,
    file_of,
    new_log,
    opened,
    taken,
    vectors,
)
from tests.support.memory_filesystem import MemoryFilesystem

FORMAT_2 = [v for v in vectors() if v["id"] in ("default-interval", "decreasing-times")]


@pytest.mark.parametrize("vector", FORMAT_2, ids=lambda v: str(v["id"]))
def test_what_kafka_was_given_becomes_the_files_kafka_wrote(vector: Vector) -> None:
    files, log = new_log(Settings(index_interval_bytes=vector["index_interval_bytes"]))

    for given_set in vector["appends"]:
        append(log, decoded(given_set["records"]))
        log.write()
    log.close(clean=True)

    expect = vector["expect"]
    assert file_of(files, ".log") == decoded(expect["log"])
    assert file_of(files, ".index") == decoded(expect["index"])
    assert file_of(files, ".timeindex") == decoded(expect["timeindex"])


def kafka_files(vector: Vector) -> MemoryFilesystem:
    files = MemoryFilesystem()
    base = vector["base_offset"]
    for suffix in ("log", "index", "timeindex"):
        files.write_bytes(f"{FOLDER}/{base:020d}.{suffix}", decoded(vector["expect"][suffix]))
    return files


@pytest.mark.parametrize("vector", vectors(), ids=lambda v: str(v["id"]))
@pytest.mark.parametrize("with_indexes", [True, False])
def test_each_offset_of_a_segment_of_kafka_is_found_where_kafka_finds_it(
    vector: Vector, with_indexes: bool
) -> None:
    files = kafka_files(vector)
    if not with_indexes:
        files.remove(f"{FOLDER}/{vector['base_offset']:020d}.index")
    log = opened(files, Settings(index_interval_bytes=vector["index_interval_bytes"]))

    for wanted in vector["expect"]["read_at"]:
        piece = log.read(wanted["offset"], 1)

        if wanted["position"] is None:
            assert piece is None
            continue
        assert piece is not None
        assert (piece.position, piece.size) == (wanted["position"], wanted["size"])
        assert batches_in(taken(piece))[-1][1] == wanted["lastOffset"]


@pytest.mark.parametrize("vector", vectors(), ids=lambda v: str(v["id"]))
def test_a_time_is_found_where_kafka_finds_it(vector: Vector) -> None:
    log = opened(kafka_files(vector), Settings(index_interval_bytes=vector["index_interval_bytes"]))

    for wanted in vector["expect"]["first_offset_at_or_after"]:
        found = log.offset_for_timestamp(wanted["ts"])

        expected = None if wanted["offset"] is None else (wanted["timestamp"], wanted["offset"])
        assert (found[:2] if found else None) == expected


def test_a_log_without_timestamps_has_none_to_find() -> None:
    vector = next(v for v in vectors() if v["id"] == "only-v0")
    log = opened(kafka_files(vector))

    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None


@given(
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=40),
    times=st.lists(st.integers(-1, 50), min_size=40, max_size=40),
    interval=st.integers(0, 2000),
    write_every=st.integers(1, 5),
)
def test_an_index_built_append_by_append_is_the_one_built_from_the_file(
    sizes: list[int], times: list[int], interval: int, write_every: int
) -> None:
    files, log = new_log(Settings(index_interval_bytes=interval))
    for number, (size, time) in enumerate(zip(sizes, times, strict=False)):
        append(log, batch(bytes(size), timestamp_ms=time))
        if number % write_every == 0:
            log.write()
    log.close(clean=True)

    rebuilt = Segment(files, FOLDER, 0, interval_bytes=interval)
    assert rebuilt.file.size() == rebuilt.written_size
    rebuilt.rebuild()

    assert rebuilt.offsets.encode() == file_of(files, ".index")
    assert rebuilt.times.encode() == file_of(files, ".timeindex")


@given(
    steps=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=20),
    zeros=st.integers(0, 5),
)
def test_an_index_file_with_a_tail_of_zeros_is_read_without_it(
    steps: list[tuple[int, int]], zeros: int
) -> None:
    offsets, times, offset, position = OffsetIndex(), TimeIndex(), 0, 0
    for forward, further in steps:
        offset, position = offset + forward, position + further
        offsets.add(offset, position)
        times.add(position, offset)

    read_offsets = OffsetIndex.decode(offsets.encode() + bytes(8 * zeros), position + 1)
    read_times = TimeIndex.decode(times.encode() + bytes(12 * zeros), offset)

    assert read_offsets is not None
    assert read_times is not None
    assert read_offsets.encode() == offsets.encode()
    assert read_times.encode() == times.encode()
    assert (read_offsets.stored, read_times.stored) == (len(offsets), len(times))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("000000050000006400000005000000c8", "offsets stand still"),
        ("00000005000000640000000900000064", "positions stand still"),
        ("00000005000003e8", "a position at the end of the file"),
        ("8000000500000064", "an offset below the base"),
        ("00000005000000", "a cut entry"),
        ("ffffffff" * 4, "garbage"),
    ],
)
def test_an_offset_index_that_cannot_be_is_refused(data: str, why: str) -> None:
    assert OffsetIndex.decode(bytes.fromhex(data), 1000) is None, why


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("000000000000000500000001000000000000000500000002", "times stand still"),
        ("000000000000000500000003000000000000000600000002", "offsets fall"),
        ("00000000000000050000000100000000", "a cut entry"),
        ("ffffffffffffffff00000001", "a negative time"),
    ],
)
def test_a_time_index_that_cannot_be_is_refused(data: str, why: str) -> None:
    assert TimeIndex.decode(bytes.fromhex(data), 1000) is None, why


def test_an_index_of_another_file_is_built_again_on_first_use() -> None:
    files, log = new_log(Settings(index_interval_bytes=100))
    for number in range(20):
        append(log, batch(bytes(90), timestamp_ms=number))
    state = log.close(clean=True)
    right = file_of(files, ".index")
    wrong = bytes(b ^ 1 if i % 8 == 7 else b for i, b in enumerate(right))
    files.write_bytes(f"{FOLDER}/{0:020d}.index", wrong)

    log = opened(files, Settings(index_interval_bytes=100))

    assert state is not None
    assert [batches_in(taken(log.read(n, 1)))[0][0] for n in range(20)] == list(range(20))
    assert log.next_offset == 20
    assert NOW_MS
