"""Sizes and progress for readers whose records are converted, Fetch v0 to v9."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.handlers.fetch import CONVERTED_MAX_BYTES
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, ZSTD
from protocol.records.legacy import Message, build_messages
from protocol.records.walk import walk
from tests.support.caller import Target, by_partition, fetch_request
from tests.support.old_reader import Shelf, magics_of, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW_MS = 1_700_000_000_000


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    with Shelf(tmp_path / "data") as shelf:
        shelf.topic("t", max_message_bytes="10000000")
        yield shelf


def batch(count: int, size: int = 100, codec: int = 0) -> bytes:
    return build_batch([(NOW_MS, None, b"%0*d" % (size, n), ()) for n in range(count)], codec=codec)


def run(magic: int, count: int, size: int = 100) -> bytes:
    return build_messages(
        [(NOW_MS, None, b"%0*d" % (size, n), ()) for n in range(count)], magic=magic
    )


SETS = {
    "batch": lambda: batch(40),
    "run of format 1": lambda: run(1, 40),
    "run of format 0": lambda: run(0, 40),
}


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_size_of_a_partition_is_obeyed_to_the_byte(
    shelf: Shelf, kind: str, version: int
) -> None:
    """Case 28: as many whole messages as fit, and the beginning of the first where none does."""
    shelf.store("t", SETS[kind]())
    whole = bytes(shelf.fetch("t", version=version).records)
    ends = [position + size for position, size, _ in walk(whole)]
    assert len(ends) == 40

    for max_bytes in (0, 1, 11, 50, ends[0] - 1, ends[0], ends[0] + 1, ends[1], 1000, len(whole)):
        found = bytes(shelf.fetch("t", version=version, max_bytes=max_bytes).records)
        fitting = max([0, *(end for end in ends if end <= max_bytes)])
        assert found == whole[: fitting or max_bytes], max_bytes


@pytest.mark.parametrize("version", [0, 2])
def test_a_cut_is_made_where_the_fetch_begins(shelf: Shelf, version: int) -> None:
    shelf.store("t", batch(40))
    whole = bytes(shelf.fetch("t", 7, version=version).records)

    assert bytes(shelf.fetch("t", 7, version=version, max_bytes=30).records) == whole[:30]


@pytest.mark.parametrize("version", [0, 2])
def test_a_wrapper_that_does_not_fit_comes_as_plain_messages(shelf: Shelf, version: int) -> None:
    shelf.store("t", batch(400, codec=GZIP), batch(2))
    wrapper = bytes(shelf.fetch("t", version=version).records)
    assert magics_of(wrapper)[0] == min(version, 1)
    limit = 500
    assert Message(memoryview(wrapper)).size > limit

    records = records_of(shelf.fetch("t", version=version, max_bytes=limit).records)
    all_records = shelf.read_all("t", version=version, max_bytes=limit)
    cut = shelf.fetch("t", 5, version=version, max_bytes=20)

    assert [record.offset for record in records] == list(range(len(records)))
    assert 0 < len(records) < 5
    assert [record.offset for record in all_records] == list(range(402))
    assert len(cut.records) == 20
    # The wrapper and its plain form, and the last batch; whatever the number of fetches.
    assert shelf.conversions.converted_entries == 3


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("max_bytes", [130, 1000, 10_000])
def test_small_sizes_get_through_a_log_of_everything(
    shelf: Shelf, version: int, max_bytes: int
) -> None:
    for _ in range(3):
        shelf.store("t", batch(30, 40), run(1, 30, 40), batch(30, 40, GZIP), run(0, 30, 40))
    shelf.store("t", batch(30, 40, ZSTD))

    records = shelf.read_all("t", version=version, max_bytes=max_bytes)

    offsets = dict.fromkeys(record.offset for record in records)
    assert list(offsets) == list(range(390))


# Version 3 and later


def test_the_first_partition_with_data_gives_a_whole_entry_and_the_others_obey(
    shelf: Shelf,
) -> None:
    """Case 29."""
    shelf.topic("p", partitions=3)
    for partition in (1, 2):
        shelf.store("p", batch(3, 500, GZIP), batch(3), partition=partition)
    wanted = [Target("p", 0, p, partition_max_bytes=20) for p in range(3)]

    answer = shelf.reader().fetch(fetch_request(*wanted), 3)

    entries = by_partition(answer)
    found = [[r.offset for r in records_of(entries["p", p].records)] for p in range(3)]
    assert found == [[], [0, 1, 2], []]
    assert [entries["p", p].high_watermark for p in range(3)] == [0, 6, 6]
    assert len(entries["p", 2].records) == 0


@pytest.mark.parametrize("size", [0, -1])
@pytest.mark.parametrize("count", [1, 5000])
def test_a_size_of_nothing_does_not_stall_a_reader(shelf: Shelf, size: int, count: int) -> None:
    shelf.store("t", batch(count, codec=GZIP))

    entry = shelf.fetch("t", version=3, max_bytes=size)
    wanted = Target("t", 0, 0, partition_max_bytes=size)
    limited = shelf.reader().fetch(fetch_request(wanted, max_bytes=size), 3)

    assert len(records_of(entry.records)) == count
    assert len(records_of(limited.responses[0].partitions[0].records)) == count
    assert len(shelf.fetch("t", version=2, max_bytes=size).records) == 0


@pytest.mark.parametrize("codec", [0, GZIP])
def test_the_size_of_an_answer_is_shared_by_the_partitions_in_their_order(
    shelf: Shelf, codec: int
) -> None:
    shelf.topic("p", partitions=2)
    for partition in range(2):
        shelf.store("p", *[batch(10, codec=codec)] * 10, partition=partition)
    one = len(shelf.fetch("p", version=3).records)
    wanted = [Target("p", 0, p) for p in (1, 0)]

    answer = shelf.reader().fetch(fetch_request(*wanted, max_bytes=one + one // 2), 3)

    first, second = answer.responses[0].partitions
    assert (first.partition_index, len(first.records)) == (1, one)
    assert one // 3 < len(second.records) <= one // 2


@pytest.mark.parametrize("version", [4, 9])
def test_a_first_batch_of_zstd_comes_whole_whatever_the_limits(shelf: Shelf, version: int) -> None:
    shelf.store("t", batch(40, codec=ZSTD), batch(40, codec=ZSTD))

    records = records_of(shelf.fetch("t", version=version, max_bytes=1).records)

    assert [record.offset for record in records] == list(range(40))


# The bound of what one answer has in memory


@pytest.mark.parametrize("version", [0, 2, 3])
def test_converted_records_of_one_answer_are_bounded_and_every_partition_gets_its_turn(
    shelf: Shelf, version: int
) -> None:
    shelf.topic("p", partitions=6, max_message_bytes="10000000")
    for partition in range(6):
        shelf.store("p", batch(4000, 100), batch(4000, 100), partition=partition)
    reader = shelf.reader()
    offsets = dict.fromkeys(range(6), 0)

    rounds = 0
    while min(offsets.values()) < 8000:
        rounds += 1
        wanted = [Target("p", offsets[p], p) for p in range(6)]
        entries = by_partition(reader.fetch(fetch_request(*wanted), version))
        total = sum(len(entry.records) for entry in entries.values())
        assert 0 < total <= CONVERTED_MAX_BYTES
        for (_, partition), entry in entries.items():
            records = records_of(entry.records)
            if records:
                assert records[0].offset == offsets[partition]
                offsets[partition] = records[-1].offset + 1
        if rounds == 8:
            assert min(offsets.values()) > 0, "a partition is starved"
    assert rounds < 16


def test_one_entry_above_the_bound_comes_alone(shelf: Shelf) -> None:
    shelf.topic("p", partitions=2, max_message_bytes="10000000")
    for partition in range(2):
        shelf.store("p", batch(2, 3_000_000), partition=partition)

    answers = [
        by_partition(
            shelf.reader().fetch(
                fetch_request(
                    *(Target("p", 0, p, partition_max_bytes=5_000_000) for p in (first, 1 - first))
                ),
                2,
            )
        )
        for first in range(2)
    ]

    for entries in answers:
        sizes = sorted(len(entry.records) for entry in entries.values())
        assert sizes == [0, 3_000_034]
