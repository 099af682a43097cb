"""The facts from the headers of batches, and the findings on them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from pipeline.jobs.audit_facts import PRODUCERS_MAX, Facts, joined, of_json
from pipeline.jobs.audit_findings import LOSES, NOTE, STOPS, findings, old_before_ms
from pipeline.jobs.audit_times import STRETCHES_MAX
from pipeline.schemas import BATCHES

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
DAY_AGO_MS = NOW_MS - 24 * HOUR_MS


def entry(
    base: int | None, last: int, time_ms: int | None = DAY_AGO_MS, **more: Any
) -> dict[str, Any]:
    """A row of BATCHES; a wrapper where there is no base offset."""
    return {
        **dict.fromkeys(BATCHES.names),
        "topic": "orders",
        "partition": 0,
        "base_offset": base,
        "last_offset": last,
        "records": None if base is None else last - base + 1,
        "magic": 2,
        "codec": "lz4",
        "timestamp_type": 0,
        "max_timestamp": None if time_ms is None else time_ms * 1000,
        "transactional": False,
        "control": False,
        "crc": 0,
        "size": 100,
        "batch": b"",
        **more,
    }


def facts(*entries: dict[str, Any], **options: Any) -> Facts:
    made = Facts("orders", 0)
    made.add(pa.RecordBatch.from_pylist(list(entries), schema=BATCHES), **options)
    return made


STORED = [
    entry(10, 19, DAY_AGO_MS),
    entry(20, 20, None, magic=0, codec="none", timestamp_type=-1, size=40),
    entry(None, 25, DAY_AGO_MS + 5000, magic=1, codec="gzip", size=300),
    entry(30, 39, DAY_AGO_MS + 1000, producer_id=7, transactional=True),
    entry(40, 40, DAY_AGO_MS + 1500, producer_id=7, control=True, size=78),
    entry(50, 59, DAY_AGO_MS + 9000, producer_id=3, timestamp_type=1, codec="zstd"),
]


def test_entries_are_counted_by_format_codec_and_kind() -> None:
    made = facts(*STORED)
    assert (made.entries, made.records, made.unopened, made.bytes) == (6, 31, 1, 718)
    assert made.formats == {"0": 1, "1": 1, "2": 4}
    assert made.format_bytes == {"0": 40, "1": 300, "2": 378}
    assert made.codecs == {"lz4": 3, "none": 1, "gzip": 1, "zstd": 1}
    assert (made.transactional, made.control, made.log_append_time) == (1, 1, 1)
    assert made.producers == [3, 7]
    assert made.largest == 300


def test_holes_are_what_lies_between_entries_whose_offsets_are_known() -> None:
    made = facts(*STORED)
    assert (made.first_offset, made.last_offset) == (10, 59)
    assert (made.holes, made.offsets_in_holes) == (2, 4 + 9)


def test_time_that_goes_backwards_is_counted_and_measured() -> None:
    made = facts(*STORED)
    assert (made.backwards, made.backwards_ms) == (2, 4000)
    assert (made.earliest_ms, made.latest_ms) == (DAY_AGO_MS, DAY_AGO_MS + 9000)
    assert made.without_time == 1


def test_gaps_are_the_times_between_what_was_newest_and_what_comes_next() -> None:
    spans = [(0, 2000), (5000, 6000), (3000, 3500), (90_000, 90_000), (91_000, 95_000)]
    entries = [
        entry(10 * n, 10 * n + 9, DAY_AGO_MS + last, first_timestamp=(DAY_AGO_MS + first) * 1000)
        for n, (first, last) in enumerate(spans)
    ]
    wanted = [(6000, 90_000), (2000, 5000), (90_000, 91_000)]
    for cut in range(len(entries)):
        made = joined([facts(*entries[:cut]), facts(*entries[cut:])])
        assert made.gaps == [(DAY_AGO_MS + begin, DAY_AGO_MS + end) for begin, end in wanted]


def test_records_by_time_are_in_few_stretches_which_cover_all_of_them() -> None:
    entries = [entry(10 * n, 10 * n + 9, DAY_AGO_MS + n * 60_000) for n in range(2000)]
    made = facts(*entries)
    bars = made.times.bars()
    assert STRETCHES_MAX / 4 < len(bars) <= STRETCHES_MAX
    assert sum(count for _, _, count in bars) == made.records == 20_000
    assert bars[0][0] <= DAY_AGO_MS
    assert bars[-1][1] > DAY_AGO_MS + 1999 * 60_000
    assert joined([facts(*entries[:77]), facts(*entries[77:])]).times == made.times


def test_entries_are_counted_by_the_power_of_two_that_their_bytes_reach() -> None:
    sizes = (1024, 1023, 2047, 2048, 100)
    assert facts(*(entry(n, n, size=size) for n, size in enumerate(sizes))).sizes == {
        "64": 1,
        "512": 1,
        "1024": 2,
        "2048": 1,
    }


@pytest.mark.parametrize("cut", range(1, len(STORED)))
def test_the_parts_of_a_partition_add_up_to_it(cut: int) -> None:
    whole = facts(*STORED)
    parts = joined([facts(*STORED[:cut]), facts(*STORED[cut:])])
    told = {**parts.as_json(), "backwards": 2}  # known within a part only
    assert told == whole.as_json()
    # One task counts fetch by fetch.
    fetched = Facts("orders", 0)
    for first, last in pairwise((0, cut, len(STORED))):
        rows = STORED[first:last]
        fetched.add(pa.RecordBatch.from_pylist(rows, schema=BATCHES))
    assert fetched == whole


def test_a_part_without_anything_changes_nothing() -> None:
    whole = facts(*STORED)
    nothing = facts()
    assert joined([nothing, whole, nothing]) == whole
    assert joined([nothing]) == nothing


def test_facts_come_back_from_json() -> None:
    made = facts(*STORED)
    assert of_json(json.loads(json.dumps(made.as_json()))) == made


def test_producers_are_told_apart_up_to_a_bound() -> None:
    many = [entry(number, number, producer_id=number) for number in range(PRODUCERS_MAX + 500)]
    assert len(facts(*many).producers) == PRODUCERS_MAX


def said(made: Facts, configs: dict[str, str] | None = None) -> list[tuple[str, str]]:
    return [(one.kind, one.line) for one in findings(made, configs or {}, NOW_MS)]


def test_nothing_is_said_of_a_topic_that_can_move_as_it_is() -> None:
    assert said(facts(entry(0, 9), entry(10, 19))) == []


def test_a_topic_that_is_still_written_in_an_old_format_does_not_move() -> None:
    (first, second) = said(facts(entry(0, 9), entry(10, 10, magic=1)))
    assert first[0] == STOPS
    assert first[1].startswith("the last entry of a partition has format 1: who produces there")
    assert second == (
        NOTE,
        "50.0% of the bytes are of formats 1, which Kafka 4 reads and never writes; an archive and "
        "a replay make format 2 of them",
    )
    assert [kind for kind, _ in said(facts(entry(0, 0, magic=0), entry(1, 9)))] == [NOTE]


@pytest.mark.parametrize(
    ("version", "stops"), [("0.10.2", True), ("0.8.2-IV0", True), ("0.11.0", False), ("3.0", False)]
)
def test_a_setting_of_an_old_format_does_not_move(version: str, stops: bool) -> None:
    told = said(facts(entry(0, 9)), {"message.format.version": version})
    assert [kind for kind, _ in told] == [STOPS] * stops


def test_a_setting_that_only_triglot_has_does_not_move() -> None:
    (told,) = said(facts(entry(0, 9)), {"retention.min.timestamp": "0"})
    assert told == (
        STOPS,
        "setting retention.min.timestamp, which only triglot has: remove it",
    )
    assert said(facts(entry(0, 9)), {"retention.min.timestamp": "-1"}) == []


def test_records_that_retention_by_time_will_take_are_counted_before() -> None:
    configs = {"retention.ms": str(HOUR_MS), "cleanup.policy": "delete"}
    limit = old_before_ms(configs, NOW_MS)
    made = facts(entry(0, 9), entry(10, 19, NOW_MS), old_before_ms=limit)
    (told,) = said(made, configs)
    assert told[0] == LOSES
    assert told[1].startswith("1 of 2 entries are older than retention.ms=3600000")


@pytest.mark.parametrize(
    "configs", [{}, {"retention.ms": "-1"}, {"retention.ms": "5", "cleanup.policy": "compact"}]
)
def test_no_record_is_too_old_where_time_does_not_count(configs: dict[str, str]) -> None:
    assert old_before_ms(configs, NOW_MS) is None


def test_a_clock_that_is_ahead_is_told() -> None:
    (told,) = said(facts(entry(0, 9, NOW_MS + 2 * HOUR_MS)))
    assert told[0] == STOPS
    assert "up to 7,200 s ahead of now" in told[1]


def test_an_entry_above_the_limit_of_messages_is_told() -> None:
    big = facts(entry(0, 9, size=2_000_000))
    assert [kind for kind, _ in said(big)] == [STOPS]
    assert said(big, {"max.message.bytes": "2000000"}) == []
