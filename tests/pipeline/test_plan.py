"""From options to ranges: where to begin and end, what each micro-batch gets, what is lost."""

from __future__ import annotations

from itertools import pairwise

import pytest

from client.cluster import EARLIEST, LATEST, TopicPartition
from pipeline.errors import NoSuchTopic, OffsetsGone, WrongUse
from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import (
    Range,
    batch_ranges,
    ending_offsets,
    latest_offsets,
    limited,
    offsets_from_json,
    offsets_to_json,
    split,
    starting_offsets,
    stream_ranges,
)
from pipeline.reading.source import Bound
from tests.support.fake_source import FakeSource

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BOTH = [ORDERS_0, ORDERS_1]


@pytest.fixture
def source() -> FakeSource:
    """orders-0 has offsets 10..29, orders-1 has 0..4; a record per second from second 0 on."""
    source = FakeSource()
    first, second = source.log("orders", 0), source.log("orders", 1)
    for number in range(30):
        first.append(b"x", timestamp_ms=number * 1000)
    first.start = 10
    for number in range(5):
        second.append(b"x", timestamp_ms=number * 1000)
    return source


def parse(streaming: bool | None = None, /, **options: str) -> SourceOptions:
    selected = {} if "subscribePattern" in options else {"subscribe": "orders"}
    fewest = {"kafka.bootstrap.servers": "localhost:9092", **selected}
    return SourceOptions.parse(fewest | options, streaming=streaming)


# Bounds


def test_bounds_for_all_partitions_are_looked_up(source: FakeSource) -> None:
    earliest = starting_offsets(source, BOTH, Bound("startingOffsets", EARLIEST))
    assert earliest == {ORDERS_0: 10, ORDERS_1: 0}
    latest = starting_offsets(source, BOTH, Bound("startingOffsets", LATEST))
    assert latest == ending_offsets(source, BOTH) == {ORDERS_0: 30, ORDERS_1: 5}


def test_bounds_of_partitions_may_mix_offsets_with_earliest_and_latest(source: FakeSource) -> None:
    bound = Bound("startingOffsets", each={ORDERS_0: EARLIEST, ORDERS_1: 3})
    assert starting_offsets(source, BOTH, bound) == {ORDERS_0: 10, ORDERS_1: 3}


def test_bounds_of_partitions_have_to_name_all_of_them_and_no_others(source: FakeSource) -> None:
    with pytest.raises(WrongUse, match="startingOffsets says nothing of orders-1"):
        starting_offsets(source, BOTH, Bound("startingOffsets", each={ORDERS_0: 3}))
    each = dict.fromkeys([*BOTH, TopicPartition("items", 0)], 0)
    with pytest.raises(WrongUse, match="endingOffsets names items-0, which is not there or not"):
        ending_offsets(source, BOTH, Bound("endingOffsets", each=each))


def test_a_time_is_the_first_record_at_or_after_it(source: FakeSource) -> None:
    bound = Bound("startingTimestamp", 3000, is_time=True)
    assert starting_offsets(source, [ORDERS_1], bound) == {ORDERS_1: 3}


def test_a_time_after_the_last_record_fails_unless_latest_is_asked_for(source: FakeSource) -> None:
    bound = Bound("startingTimestamp", 20_000, is_time=True)
    with pytest.raises(WrongUse, match="orders-1 has no record at or after the time"):
        starting_offsets(source, BOTH, bound)
    bound = Bound("startingTimestamp", 20_000, is_time=True, or_latest=True)
    assert starting_offsets(source, BOTH, bound) == {ORDERS_0: 20, ORDERS_1: 5}


def test_a_time_after_the_last_record_ends_at_the_end(source: FakeSource) -> None:
    bound = Bound("endingTimestamp", 20_000, is_time=True)
    assert ending_offsets(source, BOTH, bound) == {ORDERS_0: 20, ORDERS_1: 5}


def test_committed_records_end_where_the_first_open_transaction_begins(source: FakeSource) -> None:
    source.log("orders", 0).stable = 25
    ends = ending_offsets(source, BOTH, committed_only=True)
    assert ends == {ORDERS_0: 25, ORDERS_1: 5}
    bound = Bound("endingOffsets", each={ORDERS_0: 28, ORDERS_1: 2})
    ends = ending_offsets(source, BOTH, bound, committed_only=True)
    assert ends == {ORDERS_0: 25, ORDERS_1: 2}


# Bounded reads


def test_a_bounded_read_has_everything_by_default(source: FakeSource) -> None:
    ranges = batch_ranges(source, parse())
    assert ranges == [Range("orders", 0, 10, 30), Range("orders", 1, 0, 5)]


def test_a_pattern_without_a_match_is_no_empty_read(source: FakeSource) -> None:
    with pytest.raises(NoSuchTopic, match=r"no topic matches subscribePattern 'x\.\*'"):
        batch_ranges(source, parse(subscribePattern="x.*"))


def test_a_start_beyond_its_end_is_refused(source: FakeSource) -> None:
    options = parse(
        startingOffsets='{"orders":{"0":20,"1":0}}', endingOffsets='{"orders":{"0":15,"1":0}}'
    )
    with pytest.raises(WrongUse, match="orders-0 is to be read from offset 20, but only up to 15"):
        batch_ranges(source, options)


def test_offsets_that_are_deleted_are_told_before_anything_is_read(source: FakeSource) -> None:
    options = parse(startingOffsets='{"orders":{"0":3,"1":0}}')
    with pytest.raises(OffsetsGone) as raised:
        batch_ranges(source, options)
    assert str(raised.value) == (
        "orders-0: offsets 3 to 9 were deleted before they were read; "
        "go on without them with onGap=skip (--on-gap skip)"
    )
    nothing = parse(
        startingOffsets='{"orders":{"0":3,"1":0}}', endingOffsets='{"orders":{"0":3,"1":1}}'
    )
    assert batch_ranges(source, nothing) == [Range("orders", 1, 0, 1)]
    skipping = parse(startingOffsets='{"orders":{"0":3,"1":0}}', onGap="skip")
    assert batch_ranges(source, skipping)[0] == Range("orders", 0, 3, 30)


@pytest.mark.parametrize("which", ["starting", "ending"])
def test_offsets_beyond_the_log_are_told_before_anything_is_read(
    source: FakeSource, which: str
) -> None:
    options = parse(**{f"{which}Offsets": '{"orders":{"0":40,"1":5}}'})
    with pytest.raises(OffsetsGone) as raised:
        batch_ranges(source, options)
    assert str(raised.value).startswith(
        "orders-0 ends at offset 30, but is to be read up to 40: it was made again or cut"
    )


# Micro-batches


def test_a_stream_sees_what_came_since(source: FakeSource) -> None:
    start = {ORDERS_0: 20, ORDERS_1: 5}
    assert latest_offsets(source, parse(), start) == {ORDERS_0: 30, ORDERS_1: 5}
    assert stream_ranges(parse(), start, {ORDERS_0: 30, ORDERS_1: 5}) == [
        Range("orders", 0, 20, 30)
    ]


def test_a_new_partition_begins_at_its_earliest_offset_and_is_noted_first(
    source: FakeSource,
) -> None:
    start = {ORDERS_1: 5}
    noted = latest_offsets(source, parse(), start)
    assert noted == {ORDERS_0: 10, ORDERS_1: 5}
    assert stream_ranges(parse(), start, noted) == []
    # What retention does now cannot change the ranges that were noted.
    source.log("orders", 0).start = 15
    following = latest_offsets(source, parse(), noted)
    assert stream_ranges(parse(), noted, following) == [Range("orders", 0, 10, 30)]


def test_a_deleted_topic_stops_a_stream_unless_gaps_are_skipped(source: FakeSource) -> None:
    gone = TopicPartition("gone", 0)
    start = {ORDERS_0: 20, ORDERS_1: 5, gone: 7}
    with pytest.raises(OffsetsGone, match="gone-0 is in the checkpoint and not read any more: it"):
        latest_offsets(source, parse(subscribe="orders,gone"), start)
    skipping = parse(subscribe="orders,gone", onGap="skip")
    latest = latest_offsets(source, skipping, start)
    assert latest == {ORDERS_0: 30, ORDERS_1: 5}
    assert stream_ranges(skipping, start, latest) == [Range("orders", 0, 20, 30)]


def test_a_log_that_ends_below_what_was_read_stops_a_stream(source: FakeSource) -> None:
    start = {ORDERS_0: 30, ORDERS_1: 100}
    with pytest.raises(OffsetsGone, match="orders-1 ends at offset 5, but is to be read up to 100"):
        latest_offsets(source, parse(), start)
    skipping = parse(onGap="skip")
    latest = latest_offsets(source, skipping, start)
    assert latest == {ORDERS_0: 30, ORDERS_1: 5}
    assert stream_ranges(skipping, start, latest) == []


def test_a_stream_of_committed_records_stops_at_an_open_transaction(source: FakeSource) -> None:
    source.log("orders", 0).stable = 22
    options = parse(**{"kafka.isolation.level": "read_committed"})
    assert latest_offsets(source, options, {ORDERS_0: 20, ORDERS_1: 5})[ORDERS_0] == 22


@pytest.mark.parametrize("on_gap", ["fail", "skip"])
def test_a_stream_that_begins_beyond_an_open_transaction_stays_there(
    source: FakeSource, on_gap: str
) -> None:
    source.log("orders", 0).stable = 22
    options = parse(onGap=on_gap, **{"kafka.isolation.level": "read_committed"})
    start = {ORDERS_0: 30, ORDERS_1: 5}
    assert latest_offsets(source, options, start) == start


# Sharing out


def test_a_limit_is_shared_in_proportion_to_the_backlog() -> None:
    start = {ORDERS_0: 100, ORDERS_1: 0}
    assert limited(start, {ORDERS_0: 400, ORDERS_1: 100}, 40) == {ORDERS_0: 130, ORDERS_1: 10}


def test_no_partition_with_a_backlog_starves() -> None:
    start = {ORDERS_0: 0, ORDERS_1: 0}
    assert limited(start, {ORDERS_0: 1_000_000, ORDERS_1: 1}, 10) == {ORDERS_0: 9, ORDERS_1: 1}


def test_a_limit_above_the_backlog_changes_nothing() -> None:
    start, latest = {ORDERS_0: 5, ORDERS_1: 9}, {ORDERS_0: 10, ORDERS_1: 3}
    assert limited(start, latest, 5) == latest
    assert limited(start, latest, None) == latest


def test_a_limit_leaves_new_and_finished_partitions_as_they_are() -> None:
    new = TopicPartition("new", 0)
    latest = {ORDERS_0: 1000, ORDERS_1: 3, new: 50}
    assert limited({ORDERS_0: 0, ORDERS_1: 3}, latest, 100) == {ORDERS_0: 100, ORDERS_1: 3, new: 50}


# Splitting


def test_a_range_for_each_partition_with_anything() -> None:
    assert split({ORDERS_0: 0, ORDERS_1: 7}, {ORDERS_0: 10, ORDERS_1: 7}) == [
        Range("orders", 0, 0, 10)
    ]


def test_large_ranges_are_cut_until_there_are_about_as_many_as_wanted() -> None:
    ranges = split({ORDERS_0: 0, ORDERS_1: 0}, {ORDERS_0: 900, ORDERS_1: 10}, 4)
    assert ranges == [
        Range("orders", 0, 0, 300),
        Range("orders", 0, 300, 600),
        Range("orders", 0, 600, 900),
        Range("orders", 1, 0, 10),
    ]


def test_pieces_cover_the_whole_without_overlap_and_none_is_empty() -> None:
    for size in (1, 2, 3, 7, 100):
        for wanted in (2, 3, 5, 50):
            pieces = split({ORDERS_0: 4}, {ORDERS_0: 4 + size}, wanted)
            edges = [piece.start for piece in pieces] + [pieces[-1].end]
            assert edges[0] == 4
            assert edges[-1] == 4 + size
            assert edges == sorted(set(edges))
            assert len(pieces) == min(wanted, size)
            assert all(one.end == two.start for one, two in pairwise(pieces))


def test_no_range_is_larger_than_asked_for() -> None:
    assert split({ORDERS_0: 0}, {ORDERS_0: 10}, None, 4) == [
        Range("orders", 0, 0, 3),
        Range("orders", 0, 3, 6),
        Range("orders", 0, 6, 10),
    ]
    assert split({ORDERS_0: 0}, {ORDERS_0: 10}, 1, 10) == [Range("orders", 0, 0, 10)]


def test_offsets_are_written_as_the_connector_writes_them() -> None:
    offsets = {ORDERS_1: 7, ORDERS_0: 5, TopicPartition("items", 10): 1}
    value = offsets_to_json(offsets)
    assert list(value.items()) == [("items", {"10": 1}), ("orders", {"0": 5, "1": 7})]
    assert offsets_from_json(value) == offsets
