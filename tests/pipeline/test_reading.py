"""Reading a range: what comes out of it, in which pieces, and from which thread."""

from __future__ import annotations

import json
import struct
import threading
import time
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster, TopicPartition
from pipeline.errors import CorruptData, OffsetsGone, Unreachable
from pipeline.left_out import EXAMPLES_MAX
from pipeline.reading.plan import Range
from pipeline.reading.ranges import (
    FETCHES_AHEAD,
    LeftOut,
    Meter,
    batches_of,
    read_range,
    records_of,
)
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages
from protocol.records.walk import walk
from tests.support.fake_source import FakeSource, first_offsets
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker_process import BrokerProcess
    from tests.support.fake_source import FakeLog


@pytest.fixture
def source() -> FakeSource:
    return FakeSource()


@pytest.fixture
def log(source: FakeSource) -> FakeLog:
    return source.log("orders", 0)


def of(start: int, end: int) -> Range:
    return Range("orders", 0, start, end)


# What is read


def test_a_range_is_read_fetch_by_fetch(source: FakeSource, log: FakeLog) -> None:
    for _ in range(20):
        log.append(b"x" * 100, b"y")
    chunks = list(read_range(source, of(0, 40), fetch_bytes=500))
    assert len(chunks) > 3
    assert first_offsets(chunks) == list(range(0, 40, 2))
    assert [chunk.start for chunk in chunks] == [0, *(chunk.end for chunk in chunks[:-1])]
    assert chunks[-1].end == 40


def test_entries_on_the_edges_come_with_both_ranges(source: FakeSource, log: FakeLog) -> None:
    for _ in range(4):
        log.append(b"a", b"b", b"c", b"d")
    left, right = (list(read_range(source, of(*edges))) for edges in ((0, 6), (6, 16)))
    assert first_offsets(left) == [0, 4]
    assert first_offsets(right) == [4, 8, 12]
    assert (left[-1].end, right[0].start) == (6, 6)


def test_whole_entries_belong_to_the_range_of_their_last_offset(
    source: FakeSource, log: FakeLog
) -> None:
    for _ in range(4):
        log.append(b"a", b"b", b"c", b"d")
    edges = [0, 3, 4, 6, 7, 8, 12, 14, 16]
    ranges = [of(*pair) for pair in pairwise(edges)]
    found = [first_offsets(read_range(source, one, whole_entries=True)) for one in ranges]
    assert found == [[], [0], [], [], [4], [8], [], [12]]


def test_messages_of_the_older_formats_are_read(source: FakeSource, log: FakeLog) -> None:
    for magic in (0, 1):
        first = log.end
        wrapper = bytearray(
            build_messages([(1, None, b"v", ())] * 3, magic=magic, codec=1, base_offset=first)
        )
        struct.pack_into(">q", wrapper, 0, first + 2)
        log.put(first, first + 2, bytes(wrapper))
        plain = bytearray(build_messages([(1, None, b"v", ())], magic=magic))
        struct.pack_into(">q", plain, 0, first + 3)
        log.put(first + 3, first + 3, bytes(plain))
    log.append(b"x")
    chunks = list(read_range(source, of(1, 9)))
    assert [magic for chunk in chunks for _, _, magic in walk(chunk.entries)] == [0, 0, 1, 1, 2]
    chunks = list(read_range(source, of(1, 6), whole_entries=True))
    assert [magic for chunk in chunks for _, _, magic in walk(chunk.entries)] == [0, 0]


def test_a_small_range_asks_for_little_and_the_end_of_a_large_one_too(
    source: FakeSource, log: FakeLog
) -> None:
    """Of a hundred records of 100 kB; what comes is a few entries more than the range, at most."""
    for _ in range(100):
        log.append(b"x" * 100_000)
    entry = len(log.entries[0][2])
    for wanted, most in ((of(10, 12), 3), (of(0, 60), 4)):
        source.asked.clear()
        meter = Meter()
        chunks = list(read_range(source, wanted, meter=meter))
        assert first_offsets(chunks) == list(range(wanted.start, wanted.end))
        assert meter.bytes == wanted.size * entry
        assert sum(max(asked, entry) for asked in source.asked) < 1.3 * wanted.size * entry + (
            most * entry
        )
        assert len(source.asked) <= most
    source.asked.clear()
    list(read_range(source, of(0, 100), fetch_bytes=500_000))
    assert max(source.asked) == 500_000


def test_an_entry_on_an_edge_is_metered_once(source: FakeSource, log: FakeLog) -> None:
    for _ in range(20):
        log.append(b"a", b"b", b"c")
    whole = sum(len(raw) for _, _, raw in log.entries)
    for whole_entries in (False, True):
        meters = []
        for start in range(0, 60, 7):
            meters.append(Meter())
            range_ = of(start, min(start + 7, 60))
            list(read_range(source, range_, whole_entries=whole_entries, meter=meters[-1]))
        assert sum(meter.bytes for meter in meters) == whole


def test_an_empty_range_asks_for_nothing(source: FakeSource, log: FakeLog) -> None:
    assert list(read_range(source, of(5, 5))) == []
    assert source.fetches == []


def test_aborted_transactions_are_handed_on(source: FakeSource, log: FakeLog) -> None:
    log.append(b"x")
    log.aborted = ((7, 0),)
    assert [chunk.aborted for chunk in read_range(source, of(0, 1), committed_only=True)] == [
        ((7, 0),)
    ]


# The thread


def test_fetching_is_a_few_fetches_ahead_and_no_more(source: FakeSource, log: FakeLog) -> None:
    for _ in range(20):
        log.append(b"x" * 100)
    with closing(read_range(source, of(0, 20), fetch_bytes=1)) as chunks:
        next(chunks)
        deadline = time.monotonic() + 10
        while len(source.fetches) < 1 + FETCHES_AHEAD and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert len(source.fetches) == 1 + FETCHES_AHEAD


def test_closing_early_ends_the_thread_and_leaves_the_source_open(
    source: FakeSource, log: FakeLog
) -> None:
    for _ in range(20):
        log.append(b"x" * 100)
    before = threading.active_count()
    chunks = read_range(source, of(0, 20), fetch_bytes=1)
    next(chunks)
    assert threading.active_count() == before + 1
    chunks.close()
    assert threading.active_count() == before
    assert not source.closed


def test_what_fails_in_the_thread_is_raised_after_what_was_read(
    source: FakeSource, log: FakeLog
) -> None:
    for _ in range(4):
        log.append(b"x" * 100)

    def fail(offset: int) -> None:
        if offset == 2:
            raise Unreachable("no broker answers at localhost:9092")

    source.before_fetch = fail
    chunks = read_range(source, of(0, 4), fetch_bytes=1)
    assert first_offsets([next(chunks), next(chunks)]) == [0, 1]
    with pytest.raises(Unreachable, match="no broker answers"):
        next(chunks)
    assert not [one for one in threading.enumerate() if one.name.startswith("read ")]


# Rows


def spoil_sum(log: FakeLog, index: int) -> None:
    first, last, raw = log.entries[index]
    log.entries[index] = (first, last, raw[:-1] + b"!")


def test_records_are_those_of_the_range_and_no_others(source: FakeSource, log: FakeLog) -> None:
    for number in range(0, 12, 4):
        log.append(*(b"%d" % offset for offset in range(number, number + 4)))
    found = [
        value.as_py()
        for edges in ((0, 3), (3, 10), (10, 12))
        for rows in records_of(source, of(*edges), fetch_bytes=1)
        for value in rows["value"]
    ]
    assert found == [b"%d" % offset for offset in range(12)]


def test_a_corrupt_batch_stops_records_or_is_counted(source: FakeSource, log: FakeLog) -> None:
    for _ in range(3):
        log.append(b"a", b"b")
    spoil_sum(log, 1)
    with pytest.raises(CorruptData, match="orders-0 offset 2"):
        list(records_of(source, of(0, 6)))
    left_out = LeftOut()
    rows = list(records_of(source, of(0, 6), on_corrupt="skip", left_out=left_out))
    assert [offset.as_py() for batch in rows for offset in batch["offset"]] == [0, 1, 4, 5]
    assert (left_out.batches_corrupt, left_out.offsets_corrupt) == (1, 2)
    assert not [one for one in threading.enumerate() if one.name.startswith("read ")]


def test_batches_of_ranges_are_all_batches_once(source: FakeSource, log: FakeLog) -> None:
    for _ in range(5):
        log.append(b"a", b"b", b"c")
    found = [
        (base.as_py(), last.as_py())
        for edges in ((0, 4), (4, 5), (5, 11), (11, 15))
        for rows in batches_of(source, of(*edges))
        for base, last in zip(rows["base_offset"], rows["last_offset"], strict=True)
    ]
    assert found == [(first, first + 2) for first in range(0, 15, 3)]


# A broker


@pytest.fixture
def cluster(broker: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


def fill(cluster: Cluster, topic: str, batches: int) -> None:
    """A new topic of one partition with batches of ten records."""
    cluster.create_topic(topic, 1)
    rows = [(1000, None, b"x" * 100, ())] * 10
    entries = [build_batch(rows) for _ in range(batches)]
    for entry in entries:
        cluster.produce(TopicPartition(topic, 0), [entry])


def delete_records(broker: BrokerProcess, topic: str, offset: int) -> None:
    asked = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=offset)
    with WireClient("127.0.0.1", broker.port) as client:
        answer = client.call(
            DeleteRecordsRequest(
                topics=[DeleteRecordsRequest.Topic(name=topic, partitions=[asked])],
                timeout_ms=10_000,
            )
        )
    assert answer.topics[0].partitions[0].error_code == 0


def test_a_broker_s_records_are_read_from_any_edge_to_any_edge(cluster: Cluster) -> None:
    fill(cluster, "edges", 30)
    for start, end in ((0, 300), (7, 8), (9, 11), (15, 295), (299, 300)):
        rows = records_of(cluster, Range("edges", 0, start, end), fetch_bytes=5000)
        found = [offset.as_py() for batch in rows for offset in batch["offset"]]
        assert found == list(range(start, end))
    edges = [0, 95, 100, 105, 300]
    batches = [
        base.as_py()
        for pair in pairwise(edges)
        for rows in batches_of(cluster, Range("edges", 0, *pair))
        for base in rows["base_offset"]
    ]
    assert batches == list(range(0, 300, 10))


def test_records_deleted_at_the_broker_while_they_are_read_are_a_gap(
    cluster: Cluster, broker: BrokerProcess
) -> None:
    for topic, on_gap in (("retained-1", "skip"), ("retained-2", "fail")):
        fill(cluster, topic, 30)
        left_out = LeftOut()
        range_ = Range(topic, 0, 0, 300)
        with closing(
            read_range(cluster, range_, on_gap=on_gap, left_out=left_out, fetch_bytes=3000)
        ) as chunks:
            read = [next(chunks).end]
            delete_records(broker, topic, 255)
            if on_gap == "fail":
                with pytest.raises(
                    OffsetsGone, match=rf"{topic}-0: offsets \d+ to 254 were deleted"
                ):
                    list(chunks)
                continue
            found = list(chunks)
        ahead = [chunk for chunk in found if chunk.end <= 254]
        assert len(ahead) <= FETCHES_AHEAD + 1
        assert found[len(ahead)].start == 255
        assert found[-1].end == 300
        assert left_out.offsets_missing == 255 - max([*read, *(chunk.end for chunk in ahead)])


def test_what_is_left_out_is_added_up_and_few_of_it_described() -> None:
    total = LeftOut()
    assert not total
    for number in range(30):
        one = LeftOut()
        one.missing(of(0, 9), number, number + 2)
        one.corrupt(of(0, 9), 5, 8, "checksum")
        total.add(one)
    assert (total.offsets_missing, total.batches_corrupt, total.offsets_corrupt) == (60, 30, 120)
    assert len(total.examples) == EXAMPLES_MAX
    assert str(total) == (
        "60 missing offsets and 30 corrupt batches (120 offsets), "
        "the first: orders-0 offsets 0 to 1: deleted"
    )
    assert LeftOut.of_json(json.loads(json.dumps(total.as_json()))) == total
    assert LeftOut.of_json({"records": 3}) == LeftOut()
    assert total + LeftOut(1) == LeftOut(61, 30, 120, total.examples)
