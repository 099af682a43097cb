"""The events that `triglot groups history` finds in a log of `__consumer_offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.logdata.offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    commit_batch,
    encode_record,
)
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages
from protocol.records.markers import Marker, encode_marker
from tests.tools.stored_cluster import StoredCluster, StoredLog
from tools.cluster import TopicPartition
from tools.errors import NotDone
from tools.groups.history import Change, History, Transaction, Unreadable
from tools.groups.records import GroupEvent
from tools.groups.show import event_text, history_rows

if TYPE_CHECKING:
    from protocol.logdata.offsets import Record

NOW_MS = 1_800_000_000_000
LOG = TopicPartition("__consumer_offsets", 0)
ORDERS = TopicPartition("orders", 0)


def at(offset: int, batch: bytes | bytearray) -> bytes:
    """The batch with its place in the log."""
    placed = bytearray(batch)
    Batch(memoryview(placed)).place(offset, 0)
    return bytes(placed)


def set_to(
    offset: int, *, at_offset: int, group: str = "g", producer_id: int = -1, partition: int = 0
) -> bytes:
    entries = [("orders", partition, offset, -1, None, -1)]
    epoch = 0 if producer_id >= 0 else -1
    batch = commit_batch(
        group, entries, now_ms=NOW_MS, producer_id=producer_id, producer_epoch=epoch
    )
    return at(at_offset, batch)


def record_at(offset: int, record: Record, codec: int = 0) -> bytes:
    key, value = encode_record(record)
    return at(offset, build_batch([(NOW_MS, key, value, ())], codec=codec))


def removed(*, at_offset: int) -> bytes:
    key = OffsetCommitKey(group="g", topic="orders", partition=0)
    return record_at(at_offset, (key, None))


def marker(producer_id: int, *, commit: bool, at_offset: int) -> bytes:
    batch = encode_marker(producer_id, 0, marker=Marker(commit, 0), timestamp_ms=NOW_MS)
    return at(at_offset, batch)


def history_of(log: StoredLog) -> History:
    return History(StoredCluster({LOG: log}), "g")


def changes_of(log: StoredLog) -> list[tuple[int | None, int | None, bool]]:
    """Old, new, and whether it took effect."""
    return [
        (event.old, event.new, event.is_effective)
        for event in history_of(log)
        if isinstance(event, Change)
    ]


def texts_of(log: StoredLog) -> list[str]:
    """What follows the time in the lines."""
    return [event_text(event, {}).split("  ", 1)[1] for event in history_of(log)]


def test_each_commit_replaces_the_one_before() -> None:
    log = StoredLog(
        set_to(5, at_offset=0),
        set_to(9, at_offset=1),
        set_to(7, at_offset=2),
        removed(at_offset=3),
        set_to(1, at_offset=4),
    )
    assert texts_of(log) == [
        "@0  orders-0: none -> 5",
        "@1  orders-0: 5 -> 9 (+4)",
        "@2  orders-0: 9 -> 7 (-2)",
        "@3  orders-0: 7 -> none (deleted or expired)",
        "@4  orders-0: none -> 1",
    ]


def test_other_groups_are_left_out_also_those_with_a_name_that_begins_alike() -> None:
    log = StoredLog(
        set_to(5, at_offset=0, group="gg"),
        set_to(6, at_offset=1, group="g"),
        set_to(7, at_offset=2, group="h"),
    )
    assert changes_of(log) == [(None, 6, True)]


def test_a_topic_with_the_name_of_the_group_is_not_the_group() -> None:
    entries = [("g", 0, 5, -1, None, -1)]
    log = StoredLog(commit_batch("other", entries, now_ms=NOW_MS), set_to(6, at_offset=1))
    assert changes_of(log) == [(None, 6, True)]


def test_records_of_one_request_are_known_by_their_batch() -> None:
    entries = [("orders", partition, 5, 3, "note", -1) for partition in (0, 1)]
    log = StoredLog(set_to(1, at_offset=0), at(1, commit_batch("g", entries, now_ms=NOW_MS)))
    _, first, second = history_of(log)
    assert isinstance(first, Change)
    assert isinstance(second, Change)
    assert (first.log_offset, second.log_offset) == (1, 2)
    assert first.batch == second.batch == 1
    assert (first.leader_epoch, first.metadata, first.time_ms) == (3, "note", NOW_MS)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_compressed_batches_are_opened(codec: int) -> None:
    key = GroupMetadataKey(group="g")
    value = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol=None, leader=None, members=[]
    )
    log = StoredLog(record_at(0, (key, value), codec))
    assert texts_of(log) == ["@0  generation 3: no members"]


def test_a_transaction_sets_offsets_when_it_commits() -> None:
    log = StoredLog(
        set_to(5, at_offset=0),
        set_to(8, at_offset=1, producer_id=7),
        set_to(6, at_offset=2, partition=1),
        marker(7, commit=True, at_offset=3),
    )
    assert texts_of(log) == [
        "@0  orders-0: none -> 5",
        "@2  orders-1: none -> 6",
        "@1  orders-0: 5 -> 8 (+3), producer 7 committed @3",
    ]


def test_an_aborted_and_an_open_transaction_set_nothing() -> None:
    log = StoredLog(
        set_to(5, at_offset=0),
        set_to(8, at_offset=1, producer_id=7),
        set_to(9, at_offset=2, producer_id=8),
        marker(7, commit=False, at_offset=3),
        set_to(6, at_offset=4),
    )
    assert texts_of(log) == [
        "@0  orders-0: none -> 5",
        "@1  orders-0: 8 not set: producer 7 aborted @3",
        "@4  orders-0: 5 -> 6 (+1)",
        "@2  orders-0: 9 not set yet: the transaction of producer 8 is open",
    ]


def test_a_later_plain_commit_wins_over_a_transaction_that_ends_after_it() -> None:
    log = StoredLog(
        set_to(8, at_offset=0, producer_id=7),
        set_to(6, at_offset=1),
        marker(7, commit=True, at_offset=2),
        set_to(7, at_offset=3),
    )
    assert texts_of(log) == [
        "@1  orders-0: none -> 6",
        "@0  orders-0: 8 not set: producer 7 committed @2, after a later commit @1",
        "@3  orders-0: 6 -> 7 (+1)",
    ]


def test_a_marker_ends_the_transaction_of_its_own_producer_only() -> None:
    log = StoredLog(
        set_to(8, at_offset=0, producer_id=7),
        marker(8, commit=True, at_offset=1),
        marker(7, commit=True, at_offset=2),
    )
    (change,) = history_of(log)
    assert isinstance(change, Change)
    assert change.transaction == Transaction(7, "committed", 2)


def test_after_a_gap_the_offset_before_is_not_known_and_no_longer_taken_for_none() -> None:
    log = StoredLog(
        set_to(5, at_offset=0),
        set_to(6, at_offset=3, partition=1),
        set_to(8, at_offset=4),
        set_to(9, at_offset=5, partition=1),
    )
    history = history_of(log)
    assert [event_text(event, {}).split("  ", 1)[1] for event in history] == [
        "@0  orders-0: none -> 5",
        "@3  orders-1: ? -> 6",
        "@4  orders-0: 5 -> 8 (+3)",
        "@5  orders-1: 6 -> 9 (+3)",
    ]
    assert (history.missing, history.complete_from) == (2, 3)
    assert history_rows(history, 0) == [
        "__consumer_offsets-0, offsets 0 to 5: below @3 some records are gone "
        "(compaction keeps the last of each partition)"
    ]


def test_a_batch_that_lost_records_is_a_gap() -> None:
    whole = build_batch([(NOW_MS, b"k", None, ())])
    emptied = bytearray(at(0, whole))
    emptied[23:27] = (4).to_bytes(4)  # the last offset delta: there were five
    Batch(memoryview(emptied)).rewrite(0, NOW_MS)
    history = history_of(StoredLog(emptied, set_to(6, at_offset=5)))
    (change,) = history
    assert isinstance(change, Change)
    assert not change.old_known
    assert (history.missing, history.complete_from) == (4, 5)


def test_a_log_that_begins_later_has_lost_what_was_before() -> None:
    history = history_of(StoredLog(set_to(6, at_offset=100), start=100))
    (change,) = history
    assert isinstance(change, Change)
    assert not change.old_known
    assert (history.missing, history.complete_from) == (100, 100)


def test_offsets_taken_at_the_end_of_the_log_end_the_reading() -> None:
    history = history_of(StoredLog(set_to(6, at_offset=0), end=9))
    assert len(list(history)) == 1
    assert (history.missing, history.complete_from) == (8, 9)


def test_a_log_larger_than_a_fetch_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.groups.history.PIECE_BYTES", 400)
    log = StoredLog(*(set_to(offset, at_offset=offset) for offset in range(50)))
    cluster = StoredCluster({LOG: log})
    done: list[int] = []
    news = [event.new for event in History(cluster, "g", done.append) if isinstance(event, Change)]
    assert news == list(range(50))
    assert cluster.fetches > 10
    assert sum(done) == 50


def test_what_cannot_be_understood_is_a_line_and_the_rest_is_read() -> None:
    key, _ = encode_record((OffsetCommitKey(group="g", topic="orders", partition=0), None))
    damaged = bytearray(set_to(5, at_offset=1))
    damaged[-3] ^= 1
    log = StoredLog(
        at(0, build_batch([(NOW_MS, key, b"\x00\x63", ())])), damaged, set_to(6, at_offset=2)
    )
    foreign, broken, change = history_of(log)
    assert isinstance(foreign, Unreadable)
    assert (foreign.log_offset, "version 99" in foreign.reason) == (0, True)
    assert isinstance(broken, Unreadable)
    assert (broken.log_offset, "checksum" in broken.reason) == (1, True)
    assert isinstance(change, Change)


@pytest.mark.parametrize("magic", [0, 1])
def test_logs_of_old_formats_are_read(magic: int) -> None:
    key, value = encode_record(
        (
            GroupMetadataKey(group="g"),
            GroupMetadataValue(
                protocol_type="consumer", generation=1, protocol=None, leader=None, members=[]
            ),
        )
    )
    messages = build_messages([(NOW_MS, key, value, ())], magic=magic)
    history = history_of(StoredLog(messages, set_to(6, at_offset=1)))
    first, _ = history
    assert isinstance(first, GroupEvent)
    assert first.facts["generation"] == 1
    assert history.missing == 0


def test_members_of_a_generation_are_named() -> None:
    member = GroupMetadataValue.Member(
        member_id="m-1",
        group_instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=1,
        session_timeout=1,
        subscription=b"",
        assignment=b"",
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=2, protocol="range", leader="m-1", members=[member]
    )
    log = StoredLog(
        record_at(0, (GroupMetadataKey(group="g"), value)),
        record_at(1, (GroupMetadataKey(group="g"), None)),
    )
    assert texts_of(log) == [
        "@0  generation 2: range, 1 member: m-1 /127.0.0.1",
        "@1  group removed",
    ]


def test_a_cluster_that_never_stored_an_offset_has_no_history() -> None:
    with pytest.raises(NotDone, match="there is no topic __consumer_offsets"):
        History(StoredCluster({}), "g")
