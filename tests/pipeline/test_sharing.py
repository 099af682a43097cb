"""Ranges that share a partition of Spark's."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from pipeline.errors import WrongUse
from pipeline.reading.connections import Connections
from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import Range
from pipeline.reading.sharing import SHARED_LEAST, SHARED_RANGES, SMALL_OFFSETS, shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.reading.sharing import Share


def options(**given: str) -> SourceOptions:
    return SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "orders", **given})


def of_sizes(sizes: Sequence[int]) -> list[Range]:
    return [Range("orders", number, 10, 10 + size) for number, size in enumerate(sizes)]


def assert_each_once(found: list[Share], ranges: list[Range]) -> None:
    assert sorted(itertools.chain.from_iterable(found)) == ranges
    assert all(found)


def test_few_or_large_ranges_have_a_partition_each() -> None:
    for ranges in (of_sizes([5] * SHARED_LEAST), of_sizes([SMALL_OFFSETS] * 100)):
        assert shares(ranges, options()) == [[range_] for range_ in ranges]


def test_many_small_ranges_share_partitions_beside_large_ones() -> None:
    ranges = of_sizes([50] * 400 + [SMALL_OFFSETS] * 3)
    found = shares(ranges, options())
    assert len(found) == SHARED_LEAST + 3
    assert {len(share) for share in found} == {50, 1}
    assert_each_once(found, ranges)


def test_partitions_do_not_get_more_offsets_the_more_ranges_there_are() -> None:
    ranges = of_sizes([SMALL_OFFSETS - 1] * 10_000)
    found = shares(ranges, options())
    assert {len(share) for share in found} == {10, 11}
    assert_each_once(found, ranges)


def test_partitions_do_not_get_more_fetches_the_more_ranges_there_are() -> None:
    ranges = of_sizes([1] * 10_000)
    found = shares(ranges, options())
    assert {len(share) for share in found} == {SHARED_RANGES}
    assert_each_once(found, ranges)


def test_with_min_partitions_no_ranges_share_one() -> None:
    ranges = of_sizes([50] * 400)
    assert len(shares(ranges, options(minPartitions="2"))) == 400


def test_max_partitions_is_kept_and_the_work_is_about_the_same() -> None:
    ranges = of_sizes([1_000_000, 400_000, 300_000, 290_000, *[1] * 40])
    found = shares(ranges, options(maxPartitions="2"))
    assert len(found) == 2
    work = [sum(range_.size for range_ in share) for share in found]
    assert max(work) - min(work) <= 250_000
    assert_each_once(found, ranges)
    assert len(shares(ranges[:1], options(maxPartitions="8"))) == 1
    assert shares([], options(maxPartitions="8")) == []


def test_the_same_ranges_are_shared_out_in_the_same_way_in_order() -> None:
    ranges = of_sizes([50, 7, 50, 90] * 30)
    found = shares(ranges, options())
    assert found == shares(list(reversed(ranges)), options())
    assert found == sorted(sorted(share) for share in found)


def test_min_partitions_above_max_partitions_is_refused() -> None:
    with pytest.raises(WrongUse, match="minPartitions is 9, and maxPartitions only 3"):
        options(minPartitions="9", maxPartitions="3")


class Client:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_what_a_task_connects_to_is_made_once_and_closed_with_it() -> None:
    with Connections() as connections:
        source = connections.get("source", Client)
        other = connections.get("destination", Client)
        assert connections.get("source", Client) is source
        assert other is not source
        assert source.closed == 0
    assert (source.closed, other.closed) == (1, 1)
