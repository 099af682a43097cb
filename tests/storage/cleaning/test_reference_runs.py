"""Small logs cleaned by Apache Kafka's cleaner (storage.md 16.5, 16.6) and by ours.

Ours keeps a header of the last batch below the end; in these runs that batch stays anyway.
"""

from __future__ import annotations

import pytest

from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.layout import DELETE_HORIZON_BIT, MAX_TIMESTAMP, NO_TIMESTAMP
from protocol.records.legacy import Message, build_messages, read_messages
from protocol.records.walk import walk
from storage.offset_index import OffsetIndex
from storage.time_index import TimeIndex
from storage.transaction_index import AbortedTransaction
from tests.storage.cleaning.partition import (
    NOW_MS,
    Partition,
    batch,
    empty_of,
    marker,
    rules,
)

TOMBSTONE = bytes.fromhex(
    "00000000000000030000003c000000000293e073b4004000000000000001a1f8a5901d000001a1f86e92a7"
    "ffffffffffffffffffffffffffff000000011400ebf5b7030002610100"
)
TOMBSTONE_AND_VALUE = bytes.fromhex(
    "00000000000000070000004800000000022c3bec6c004000000001000001a1f8a5901d000001a1f86e92c8"
    "ffffffffffffffffffffffffffff000000021400a9f5b70300026501001600aff5b703020263023200"
)
EMPTIED = bytes.fromhex(
    "000000000000000100000031000000000200200982000000000001ffffffffffffffff000001a1f86e9294"
    "00000000000001f400020000000100000000"
)
HORIZON_MS = 0x1A1F8A5901D
RETENTION_MS = 3_600_000
CLEANED_MS = HORIZON_MS - RETENTION_MS


def time_of(entry: bytes, index: int) -> int:
    return list(Batch(memoryview(entry)).records())[index].timestamp_ms


def run_a() -> Partition:
    first = time_of(TOMBSTONE, 0)
    times = [time_of(TOMBSTONE_AND_VALUE, index) for index in (0, 1)]
    last = build_batch(
        [(times[0], b"e", None, ()), (times[1], b"c", b"2", ())], base_offset=7, leader_epoch=0
    )
    return (
        Partition()
        .segment(
            batch(0, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), timestamp_ms=first - 5),
            batch(3, (b"a", None), timestamp_ms=first),
            batch(4, (b"d", b"1"), (b"b", b"2"), timestamp_ms=first + 9),
        )
        .segment(
            batch(6, (b"e", b"1"), timestamp_ms=first + 20),
            last,
        )
    )


@pytest.mark.parametrize("retention_ms", [RETENTION_MS, 0])
def test_run_a_tombstones_get_a_horizon_and_values_stay_as_they_were(retention_ms: int) -> None:
    partition = run_a()
    values = partition.entries()[2]
    partition.end = 9

    cleaning = partition.clean(
        partition.plan(rules(delete_retention_ms=retention_ms), now_ms=HORIZON_MS - retention_ms)
    )

    assert partition.bases == [0]
    assert partition.entries() == [TOMBSTONE, values, TOMBSTONE_AND_VALUE]
    assert len(partition.file(0)) == 235
    assert cleaning.cleaned_to == 9
    times = TimeIndex.decode(partition.file(0, ".timeindex"), 9)
    assert times is not None
    assert times.last_relative_offset == 8
    assert times.last_timestamp == partition.headers()[2][MAX_TIMESTAMP]
    index = OffsetIndex.decode(partition.file(0, ".index"), 235)
    assert index is not None
    assert index.last_relative_offset == 8, "there are offsets missing before each batch"


def test_run_a_again_after_the_horizon_the_tombstones_are_gone() -> None:
    partition = run_a()
    values = partition.entries()[2]
    how = rules(delete_retention_ms=0)
    partition.clean(partition.plan(how, now_ms=HORIZON_MS))
    before = partition.clean(partition.plan(how, now_ms=HORIZON_MS - 1))
    assert before.stats.records_kept == before.stats.records_read == 5

    partition.clean(partition.plan(how, now_ms=HORIZON_MS))

    first, last = partition.entries()
    assert first == values
    assert partition.rows() == {4: (b"d", b"1"), 5: (b"b", b"2"), 8: (b"c", b"2")}
    kept = Batch(memoryview(last))
    assert (kept.base_offset, kept.last_offset, kept.base_timestamp) == (7, 8, HORIZON_MS)
    assert kept.attributes & DELETE_HORIZON_BIT
    assert next(iter(kept.records())).timestamp_ms == time_of(TOMBSTONE_AND_VALUE, 1)


def test_run_b_the_last_batch_of_a_producer_stays_as_a_header() -> None:
    when = 0x1A1F86E9294
    of_500 = batch(1, (b"y", b"1"), (b"z", b"1"), timestamp_ms=when - 1, producer=(500, 2, 1))
    of_501 = batch(3, (b"u", b"1"), (b"v", b"1"), producer=(501, 0, 0))
    rest = [
        batch(5, (b"x", b"2"), (b"y", b"2"), (b"z", b"2")),
        batch(8, (b"u", b"2"), (b"v", b"2")),
    ]
    partition = Partition().segment(
        batch(0, (b"x", b"1"), producer=(500, 2, 0)), of_500, of_501, *rest
    )

    partition.clean(partition.plan(producers={500: (2, 2), 501: (0, 4)}))

    assert partition.entries() == [EMPTIED, empty_of(of_501), *rest]


def run_c() -> Partition:
    return Partition().segment(
        batch(0, (b"k", b"1"), (b"l", b"1"), producer=(600, 0, 0), transactional=True),
        marker(2, 600, commit=False),
        batch(3, (b"k", b"2"), producer=(601, 0, 0), transactional=True),
        marker(4, 601, commit=True),
        batch(5, (b"k", b"3")),
        aborted=[AbortedTransaction(600, 0, 2, 3)],
    )


def test_run_c_markers_stay_as_long_as_a_batch_of_their_transaction() -> None:
    partition = run_c()
    aborted, abort, committed, commit, value = partition.entries()

    partition.clean(partition.plan(producers={600: (0, 1), 601: (0, 3)}))

    assert partition.entries() == [empty_of(aborted), abort, empty_of(committed), commit, value]
    assert partition.aborted(0) == [AbortedTransaction(600, 0, 2, 3)]


def test_run_c_once_the_producers_are_forgotten_their_markers_wait_and_go() -> None:
    partition = run_c()
    _, abort, _, commit, value = partition.entries()
    partition.clean()
    # In the run that takes the batches away they were met, so the markers are still needed.
    assert partition.entries() == [abort, commit, value]
    assert partition.aborted(0) == [AbortedTransaction(600, 0, 2, 3)]

    partition.clean()
    late_abort, late_commit, same = partition.headers()
    assert (late_abort[5], late_commit[5]) == (0x70, 0x70)
    assert late_abort[7] == NOW_MS + 86_400_000
    assert late_abort[8] == Batch(memoryview(abort)).max_timestamp
    assert same == Batch(memoryview(value)).header()
    assert not partition.files.exists("/data/cmp-0/00000000000000000000.txnindex")

    partition.clean(partition.plan(now_ms=NOW_MS + 86_400_000 - 1))
    assert len(partition.entries()) == 3
    partition.clean(partition.plan(now_ms=NOW_MS + 86_400_000))
    assert partition.entries() == [value]


def wrapper(magic: int, codec: int, base_offset: int, *rows: tuple[bytes, bytes | None]) -> bytes:
    return build_messages(
        [(1_700_000_000_000 + index, *row, ()) for index, row in enumerate(rows)],
        magic=magic,
        codec=codec,
        base_offset=base_offset,
    )


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_run_d_wrappers_are_filtered_one_by_one(codec: int) -> None:
    rows = [(key.encode(), b"1") for key in "abcde"]
    partition = (
        Partition()
        .segment(
            wrapper(1, codec, 0, *rows),
            wrapper(1, codec, 5, (b"b", b"2"), (b"z", None)),
            wrapper(0, codec, 7, (b"m", b"1"), (b"n", b"1"), (b"o", b"1")),
            wrapper(1, 0, 10, (b"e", b"2")),
        )
        .segment(
            wrapper(1, 0, 11, (b"d", b"2")),
            wrapper(0, 0, 12, (b"m", b"2")),
            wrapper(0, 0, 13, (b"o", b"2")),
        )
    )
    before = partition.entries()

    partition.clean()

    assert partition.bases == [0]
    entries = partition.entries()
    assert entries[1] == before[1]
    assert entries[3:] == before[3:]
    kept = [Message(memoryview(entry)) for entry in (entries[0], entries[2])]
    assert [(message.offset, message.codec) for message in kept] == [(2, codec), (8, codec)]
    inside = [message.payload() for message in kept]
    assert [inside[0][at : at + 8] for at, _, _ in walk(inside[0])] == [bytes(8), bytes(7) + b"\2"]
    assert [inside[1][at : at + 8] for at, _, _ in walk(inside[1])] == [bytes(7) + b"\x08"]
    assert [(record.offset, record.key) for record in read_messages(entries[0])] == [
        (0, b"a"), (2, b"c"),
    ]  # fmt: skip
    assert kept[0].timestamp_ms == 1_700_000_000_002
    assert kept[1].timestamp_ms == NO_TIMESTAMP
    index = OffsetIndex.decode(partition.file(0, ".index"), 1 << 20)
    assert index is not None
    assert [index.relative_of(number) for number in range(len(index))] == [2, 6, 8, 10, 13]
