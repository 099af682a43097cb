"""Single rules of survival, merging and grouping (storage.md 7.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import compressobj

import pytest

from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.layout import MAGIC_POSITION
from protocol.records.legacy import Message, build_messages, read_messages
from protocol.records.lz4_frame import with_broken_checksum
from storage.cleaning.cleaning import Cleaning
from storage.offset_index import OffsetIndex
from storage.transaction_index import AbortedTransaction
from tests.storage.cleaning.partition import (
    NOW_MS,
    RETENTION_MS,
    Partition,
    batch,
    empty_of,
    marker,
    records_of,
    rules,
    with_payload,
)

if TYPE_CHECKING:
    from protocol.records.builder import RecordFields

MERGING = rules(max_message_bytes=1 << 20)
CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


def wrapped(magic: int, codec: int, offset: int, *rows: tuple[bytes, bytes | None]) -> bytes:
    return build_messages(
        [(1000 + index, *row, ()) for index, row in enumerate(rows)],
        magic=magic,
        codec=codec,
        base_offset=offset,
    )


# Batches


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("stamp", [None, 5_000])
def test_a_thinned_batch_keeps_codec_time_type_producer_and_both_ends(
    codec: int, stamp: int | None
) -> None:
    before = batch(
        10, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), codec=codec, producer=(7, 3, 11),
        log_append_time_ms=stamp, leader_epoch=4,
    )  # fmt: skip
    partition = Partition().segment(before, batch(13, (b"a", b"2"), (b"c", b"2")))
    partition.clean()
    old, new = Batch(memoryview(before)).header(), partition.headers()[0]
    assert new[:1] + new[2:4] + new[5:8] + new[9:12] == old[:1] + old[2:4] + old[5:8] + old[9:12]
    assert new[12] == 1
    assert new[8] == (old[8] - 1 if stamp is None else stamp)
    (record,) = records_of(partition.entries()[0])
    assert (record.offset, record.key, record.value) == (11, b"b", b"1")
    assert record.timestamp_ms == (old[7] + 1 if stamp is None else stamp)


def test_a_batch_of_which_all_stays_is_the_same_bytes_even_if_compressed_in_another_way() -> None:
    plain = batch(0, (b"a", b"1"), (b"b", b"1"))
    made = compressobj(1, 8, 31, 1)
    entry = with_payload(plain, made.compress(plain[61:]) + made.flush(), 1)
    partition = Partition().segment(entry, batch(2, (b"c", b"1")))
    partition.clean()
    assert partition.entries()[0] == entry


def test_headers_of_records_survive_a_rewrite() -> None:
    rows: list[RecordFields] = [
        (5, b"a", b"1", [("h", b"x"), ("h", None)]),
        (9, b"b", None, [("t", b"y")]),
    ]
    partition = Partition().segment(build_batch(rows), batch(2, (b"c", b"1")))
    before = partition.records()
    partition.clean()
    assert partition.headers()[0][5] == 0x40
    assert partition.records() == before


def test_a_record_without_a_key_goes_and_is_counted() -> None:
    partition = Partition().segment(
        batch(0, (None, b"1"), (b"", b"empty is a key")), batch(2, (b"z", b"1"))
    )
    done = partition.clean()
    assert partition.rows().keys() == {1, 2}
    assert done.stats.without_key == 1


def test_what_lies_above_the_end_stays_even_without_a_key() -> None:
    partition = Partition().segment(
        batch(0, (b"a", b"1")), batch(1, (b"a", b"2")), batch(2, (b"a", b"3"), (None, b"4"))
    )
    done = partition.clean(partition.plan(end=2))
    assert partition.rows().keys() == {1, 2, 3}
    assert done.cleaned_to == 2


def test_the_last_batch_below_the_end_stays_as_a_header() -> None:
    last = batch(1, (None, b"2"), codec=1)
    partition = Partition().segment(batch(0, (b"a", b"1")), last)
    partition.clean()
    assert partition.entries()[1] == empty_of(last)
    assert partition.entries()[1][61:] == b""
    # Once there is something after it, it has done its duty.
    partition.segment(batch(2, (b"b", b"1")))
    partition.clean(partition.plan(first_dirty=2))
    assert partition.rows().keys() == {0, 2}
    assert len(partition.entries()) == 2


def test_the_last_message_below_the_end_stays_because_it_cannot_be_emptied() -> None:
    for entry in (wrapped(1, 0, 1, (b"b", None)), wrapped(0, 1, 1, (b"b", None))):
        partition = (
            Partition()
            .segment(batch(0, (b"a", b"1")), modified_ms=NOW_MS)
            .segment(entry, modified_ms=NOW_MS - RETENTION_MS)
        )
        partition.clean(partition.plan(first_dirty=1))
        assert partition.entries()[-1] == entry


def test_entries_wholly_below_the_log_start_go() -> None:
    partition = Partition().segment(
        batch(0, (b"a", b"1")), batch(1, (b"b", b"1"), (b"c", b"1")), wrapped(1, 0, 3, (b"d", b"1"))
    )
    partition.segment(batch(4, (b"e", b"1")))
    partition.clean(partition.plan(start_offset=2, first_dirty=2))
    assert partition.rows().keys() == {1, 2, 3, 4}


def test_a_marker_of_the_last_epoch_of_a_producer_stays_empty_after_its_time() -> None:
    end = marker(0, 9, 4, commit=True)
    partition = Partition().segment(end, batch(1, (b"a", b"1")))
    known = {9: (4, -1)}
    partition.clean(partition.plan(producers=known))
    assert partition.headers()[0][5] == 0x70
    later = NOW_MS + RETENTION_MS
    partition.clean(partition.plan(producers=known, now_ms=later))
    assert partition.entries()[0] == empty_of(end)
    assert partition.headers()[0][5] == 0x30
    partition.clean(partition.plan(producers=known, now_ms=later))
    assert partition.entries()[0] == empty_of(end)
    partition.clean(partition.plan(producers={9: (5, -1)}, now_ms=later))
    assert len(partition.entries()) == 1


def test_an_aborted_record_does_not_replace_an_older_one_wherever_its_marker_is() -> None:
    lost = batch(1, (b"k", b"lost"), producer=(6, 0, 0), transactional=True)
    entry = AbortedTransaction(6, 1, 3, 4)
    for behind in (False, True):
        partition = Partition().segment(batch(0, (b"k", b"1")), lost)
        if not behind:
            partition.segment(batch(2, (b"z", b"1")), marker(3, 6, commit=False), aborted=[entry])
        partition.clean(partition.plan(aborted=[entry] if behind else []))
        assert partition.rows().get(0) == (b"k", b"1")
        assert 1 not in partition.rows()


# Messages


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_tombstones_of_messages_go_with_the_age_of_their_segment(magic: int, codec: int) -> None:
    for age_ms, kept in ((RETENTION_MS - 1, True), (RETENTION_MS, False)):
        partition = (
            Partition()
            .segment(
                wrapped(magic, codec, 0, (b"a", None), (b"b", b"1")), modified_ms=NOW_MS - age_ms
            )
            .segment(wrapped(magic, codec, 2, (b"c", b"1")), modified_ms=NOW_MS)
            .segment(wrapped(magic, codec, 3, (b"d", b"1")), modified_ms=NOW_MS + 5)
        )
        partition.clean(partition.plan(first_dirty=3))
        assert partition.rows().keys() == ({0, 1, 2, 3} if kept else {1, 2, 3})


def test_lz4_of_format_0_keeps_the_wrong_checksum_that_its_readers_want() -> None:
    partition = Partition().segment(
        wrapped(0, 3, 0, (b"a", b"1"), (b"b", b"1")), wrapped(1, 3, 2, (b"a", b"2"), (b"c", b"1")),
        wrapped(1, 3, 4, (b"c", b"2")),
    )  # fmt: skip
    partition.clean()
    old, new, _ = (Message(memoryview(entry)).value for entry in partition.entries())
    assert old is not None
    assert new is not None
    assert old[:7].hex() == "04224d1860401a"
    assert new[:7].hex() == "04224d18604082"
    assert with_broken_checksum(new)[:7] == old[:7]
    assert partition.rows().keys() == {1, 2, 4}


# Joining


def singles(codec: int, count: int, *, offset: int = 0) -> list[bytes]:
    return [
        batch(offset + n, (b"k%d" % (offset + n), bytes(90)), codec=codec, timestamp_ms=9000 - n)
        for n in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_small_neighbours_become_one_batch_with_all_their_records(codec: int) -> None:
    partition = Partition().segment(*singles(codec, 2000))
    before = partition.records()
    done = partition.clean(partition.plan(MERGING))
    assert partition.records() == before
    headers = partition.headers()
    assert len(headers) == done.stats.batches_written == 4
    assert done.stats.batches_merged == 2000
    assert {header[5] for header in headers} == {codec}
    assert [header[9:12] for header in headers] == [(-1, -1, -1)] * 4
    assert all(header[6] == header[12] - 1 for header in headers)
    sizes = [len(Batch(memoryview(entry)).payload()) for entry in partition.entries()]
    assert all(60_000 < size < 70_000 for size in sizes[:-1])
    image = partition.entries()
    assert partition.clean(partition.plan(MERGING)).stats.batches_merged == 0
    assert partition.entries() == image


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_small_wrappers_become_one_wrapper(magic: int, codec: int) -> None:
    entries = [wrapped(magic, codec, n, (b"k%d" % n, b"v")) for n in range(40)]
    partition = Partition().segment(*entries, batch(40, (b"k7", b"new")))
    partition.clean(partition.plan(MERGING))
    joined, _ = partition.entries()
    assert joined[MAGIC_POSITION] == magic
    assert Message(memoryview(joined)).codec == codec
    assert [record.offset for record in read_messages(joined)] == [*range(7), *range(8, 40)]


def test_plain_messages_stay_plain() -> None:
    entries = [wrapped(1, 0, n, (b"k%d" % n, b"v")) for n in range(40)]
    partition = Partition().segment(*entries)
    partition.clean(partition.plan(MERGING))
    assert partition.entries() == entries


def test_batches_that_differ_in_what_they_say_of_their_records_are_not_joined() -> None:
    row = (b"%d", b"v")
    pairs = [
        ({}, {"codec": 1}),
        ({}, {"leader_epoch": 1}),
        ({}, {"log_append_time_ms": 5}),
        ({"log_append_time_ms": 4}, {"log_append_time_ms": 5}),
        ({}, {"producer": (7, 0, 0)}),
        ({"producer": (8, 0, 0), "transactional": True}, {"producer": (8, 0, 0)}),
    ]
    for first, second in pairs:
        partition = Partition().segment(
            batch(0, (b"0", row[1]), **first),  # type: ignore[arg-type]
            batch(1, (b"1", row[1]), **second),  # type: ignore[arg-type]
            batch(2, (b"2", None)),
            batch(3, (b"3", b"v")),
        )
        partition.clean(partition.plan(MERGING, producers={7: (0, 99), 8: (0, 99)}))
        assert len(partition.entries()) == 4, (first, second)
    same = [batch(n, (b"%d" % n, b"v"), producer=(7, 0, n)) for n in range(2)]
    partition = Partition().segment(*same, batch(2, (b"2", b"v"), log_append_time_ms=5))
    partition.segment(batch(3, (b"3", b"v"), log_append_time_ms=5))
    partition.clean(partition.plan(MERGING))
    assert [header[0] for header in partition.headers()] == [0, 2]


def test_nothing_joined_is_larger_than_a_message_may_be() -> None:
    partition = Partition().segment(*singles(0, 300))
    before = partition.records()
    partition.clean(partition.plan(rules(max_message_bytes=2000)))
    assert partition.records() == before
    sizes = [len(entry) for entry in partition.entries()]
    assert 900 < max(sizes) <= 2000


# Segments


def test_segments_are_grouped_by_their_size_index_and_offsets() -> None:
    def grouped(**how: int) -> list[int]:
        partition = Partition()
        for n in range(6):
            partition.segment(batch(n, (b"k%d" % n, bytes(930))))
        assert len(partition.entries()[0]) == 1001 + 1
        partition.clean(partition.plan(rules(**how)))
        assert len(partition.rows()) == 6
        return partition.bases

    assert grouped() == [0]
    assert grouped(segment_bytes=2004) == [0, 2, 4]
    assert grouped(segment_bytes=2003) == [0, 1, 2, 3, 4, 5]
    assert grouped(index_interval_bytes=501, segment_index_bytes=72) == [0, 2, 4]


def test_offsets_too_far_apart_are_not_put_into_one_segment() -> None:
    for gap, bases in ((2**31 - 2, [0]), (2**31 - 1, [0, 2**31])):
        partition = Partition().segment(batch(0, (b"a", b"1")), batch(1, (b"b", b"1")))
        partition.segment(batch(gap + 1, (b"c", b"1")), base=gap + 1)
        partition.clean()
        assert partition.bases == bases
        assert len(partition.rows()) == 3


def test_a_segment_that_begins_with_another_format_begins_a_segment() -> None:
    partition = (
        Partition()
        .segment(wrapped(0, 0, 0, (b"a", b"1")))
        .segment(wrapped(0, 1, 1, (b"b", b"1")))
        .segment(wrapped(1, 1, 2, (b"c", b"1")))
        .segment(batch(3, (b"d", b"1")))
        .segment(batch(4, (b"e", b"1")))
    )
    partition.clean()
    assert partition.bases == [0, 2, 3]


def test_a_group_of_which_nothing_stays_has_no_files() -> None:
    partition = Partition().segment(batch(0, (b"a", b"1"))).segment(batch(1, (b"a", b"2")))
    how = rules(segment_bytes=1)
    first, second = Cleaning(partition.files, partition.plan(how)).groups()
    assert (first.empty, first.size, first.sources) == (True, 0, [0])
    assert (second.empty, second.sources, second.modified_ms) == (False, [1], NOW_MS - 1000)
    assert [name for name in partition.files.list_dir("/data/cmp-0") if "cleaned" in name] == [
        f"{1:020d}{suffix}.cleaned" for suffix in (".log", ".index", ".timeindex")
    ]


def test_the_offset_index_of_a_cleaned_segment_leads_to_its_batches() -> None:
    partition = Partition().segment(*(batch(n, (b"k%d" % (n % 50), bytes(500))) for n in range(99)))
    partition.clean()
    data = partition.file(0)
    index = OffsetIndex.decode(partition.file(0, ".index"), len(data))
    assert index is not None
    assert len(index) == 8, "one for each interval, and for the first and the last batch"
    for offset in range(49, 99):
        position = index.floor(offset)
        assert int.from_bytes(data[position : position + 8]) <= offset
