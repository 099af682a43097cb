"""Lag in records and in seconds, and the plan of a reset, where the log is not as one hopes."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages, wrap_messages
from protocol.records.markers import Marker, encode_marker
from tests.tools.stored_cluster import StoredCluster, StoredLog
from tools.cluster import TopicPartition
from tools.groups.committed import Committed
from tools.groups.lag import PartitionLag, lag_of_group
from tools.groups.reset import Move, Target, plan

NOW_MS = 1_800_000_000_000
ORDERS = TopicPartition("orders", 0)
RECORDS = [(NOW_MS - age_s * 1000, None, b"value", ()) for age_s in (40, 30, 20, 10)]


def at(offset: int, batch: bytes | bytearray) -> bytes:
    placed = bytearray(batch)
    Batch(memoryview(placed)).place(offset, 0)
    return bytes(placed)


def lag(log: StoredLog | None, offset: int) -> PartitionLag:
    """Of a group that committed this offset."""
    cluster = StoredCluster({} if log is None else {ORDERS: log})
    (row,) = lag_of_group(cluster, {ORDERS: Committed(offset, -1, "")}, [], NOW_MS)
    return row


def told(log: StoredLog | None, offset: int) -> tuple[int | None, int | None, list[str]]:
    row = lag(log, offset)
    return row.lag, row.lag_ms, row.notes


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(("offset", "age_ms"), [(0, 40_000), (2, 20_000), (3, 10_000), (4, 0)])
def test_the_age_is_that_of_the_record_at_the_offset_also_inside_a_batch(
    codec: int, offset: int, age_ms: int
) -> None:
    log = StoredLog(build_batch(RECORDS, codec=codec))
    assert told(log, offset) == (4 - offset, age_ms, [])


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_the_age_is_known_in_format_1_and_not_in_format_0(codec: int) -> None:
    def log(magic: int) -> StoredLog:
        messages = build_messages(RECORDS, magic=magic)
        if codec:
            messages = wrap_messages(messages, codec=codec, magic=magic, offset=3)
        return StoredLog(messages)

    assert told(log(1), 2) == (2, 20_000, [])
    format_0 = "the next record is stored without a timestamp (format 0)"
    assert told(log(0), 2) == (2, None, [format_0])


def test_a_topic_of_log_append_time_has_the_age_since_the_append() -> None:
    batch = bytearray(build_batch(RECORDS))
    Batch(memoryview(batch)).stamp_log_append_time(NOW_MS - 5000)
    assert told(StoredLog(batch), 1) == (3, 5000, [])


def test_the_next_record_is_found_behind_what_compaction_took() -> None:
    log = StoredLog(at(0, build_batch(RECORDS[:1])), at(9, build_batch(RECORDS[2:])))
    assert told(log, 1) == (10, 20_000, [])


def test_the_next_record_is_found_behind_a_marker() -> None:
    marker = encode_marker(7, 0, marker=Marker(True, 0), timestamp_ms=NOW_MS)
    log = StoredLog(at(0, build_batch(RECORDS[:1])), at(1, marker), at(2, build_batch(RECORDS[2:])))
    assert told(log, 1) == (3, 20_000, [])


def test_a_marker_alone_is_nothing_to_read() -> None:
    marker = encode_marker(7, 0, marker=Marker(True, 0), timestamp_ms=NOW_MS)
    log = StoredLog(at(0, build_batch(RECORDS[:1])), at(1, marker))
    assert told(log, 1) == (1, 0, ["only markers of transactions are left to read"])


def test_a_clock_that_is_ahead_is_said_unless_it_is_by_little() -> None:
    def log(ahead_ms: int) -> StoredLog:
        return StoredLog(build_batch([(NOW_MS + ahead_ms, None, b"value", ())]))

    assert told(log(1000), 0) == (1, 0, [])
    future = "the timestamp of the next record is 3.5 s in the future"
    assert told(log(3500), 0) == (1, None, [future])


def test_a_record_without_a_timestamp_has_no_age() -> None:
    log = StoredLog(build_batch([(-1, None, b"value", ())]))
    assert told(log, 0) == (1, None, ["the next record has no timestamp"])


def test_a_damaged_batch_has_no_age() -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[-1] ^= 1
    records, age_ms, (note,) = told(StoredLog(batch), 0)
    assert (records, age_ms) == (4, None)
    assert note.startswith("damaged at offset 0: its checksum is 0x")


def test_below_the_start_the_lag_counts_what_can_still_be_read() -> None:
    log = StoredLog(at(7, build_batch(RECORDS)), start=8)
    assert told(log, 2) == (3, 30_000, ["6 below the log's start 8"])


def test_above_the_end_there_is_no_lag_to_tell() -> None:
    assert told(StoredLog(build_batch(RECORDS)), 6) == (None, None, ["2 above the log's end"])


def test_a_partition_that_is_gone_is_said() -> None:
    assert told(None, 6) == (None, None, ["the partition does not exist any more"])


def test_an_empty_log_is_no_lag() -> None:
    assert told(StoredLog(), 0) == (0, 0, [])


def test_batches_that_are_cut_when_all_are_asked_at_once_are_asked_for_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tools.groups.lag.TOGETHER_BYTES", 100)
    places = [TopicPartition("orders", index) for index in range(5)]
    cluster = StoredCluster({place: StoredLog(build_batch(RECORDS)) for place in places})
    offsets = {place: Committed(place.partition, -1, "") for place in places}
    rows = lag_of_group(cluster, offsets, [], NOW_MS)
    assert [row.lag_ms for row in rows] == [40_000, 30_000, 20_000, 10_000, 0]


def test_a_thousand_partitions_that_are_behind_need_one_fetch() -> None:
    places = [TopicPartition("orders", index) for index in range(1000)]
    cluster = StoredCluster({place: StoredLog(build_batch(RECORDS)) for place in places})
    rows = lag_of_group(cluster, dict.fromkeys(places, Committed(1, -1, "")), [], NOW_MS)
    assert {row.lag_ms for row in rows} == {30_000}
    assert cluster.fetches == 1


def test_an_offset_is_not_taken_for_the_error_code_of_the_same_number() -> None:
    code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    batches = [at(offset, build_batch(RECORDS[:1])) for offset in range(code, code + 2)]
    cluster = StoredCluster({ORDERS: StoredLog(*batches, start=code)})
    assert plan(cluster, [ORDERS], {}, Target("earliest")) == [Move(ORDERS, None, code)]
    (row,) = lag_of_group(cluster, {ORDERS: Committed(code, -1, "")}, [], NOW_MS)
    assert (row.start, row.end, row.lag, row.notes) == (code, code + 2, 2, [])


def test_a_plan_leaves_out_what_is_gone_and_says_so() -> None:
    gone = TopicPartition("gone", 0)
    cluster = StoredCluster({ORDERS: StoredLog(build_batch(RECORDS))})
    committed = {place: Committed(3, -1, "") for place in (ORDERS, gone)}
    assert plan(cluster, committed, committed, Target("shift", -2)) == [
        Move(ORDERS, 3, 1),
        Move(gone, 3, None, "the partition does not exist any more"),
    ]
