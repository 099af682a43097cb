"""Offset management: what the document asks of the store of offsets, crash by crash.

"Once an offset is written it can't be lost even if a server crashes or disappears", "all reads
must return the last written value", and no commit of several partitions may be seen in part. The
cases are those of storage.md 15.4, by their numbers.
"""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.effects import Caller
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import OffsetCommitKey, encode_record
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.records.builder import build_batch
from protocol.records.layout import HEADER, HEADER_SIZE
from tests.storage.logs import Settings, append
from tests.storage.message_sets import records_in
from tests.support.memory_filesystem import PowerCut
from tests.support.offset_store import FOLDER, START_MS, OffsetStore

ORDERS, BILLS = ("orders", 0), ("bills", 3)
EVERYWHERE = {("orders", index): 0 for index in range(40)} | {BILLS: 0}
PRODUCER = (7, 0)
LOG = f"{FOLDER}/00000000000000000000.log"


def at(offset: int) -> dict[tuple[str, int], int]:
    """A commit of many partitions, all at one offset."""
    return dict.fromkeys(EVERYWHERE, offset)


def offsets_of(store: OffsetStore, group: str = "g") -> set[int | None]:
    """All offsets that the group has over those partitions; one, if no commit is seen in part."""
    return {store.offset(group, *place) for place in EVERYWHERE}


def torn_by(cut_bytes: int, *commits: int) -> OffsetStore:
    """A store restarted after these commits, the last of which lost its last bytes."""
    store = OffsetStore()
    for offset in commits:
        store.commit("g", at(offset))
    store.sync()
    data = store.files.read_bytes(LOG)
    store.files.write_bytes(LOG, data[:-cut_bytes])
    return store.restarted()


# "a consumer-group/topic/partition/offset ... should not be possible for some to get saved"


def test_o1_a_crash_before_the_write_leaves_the_old_offsets() -> None:
    store = OffsetStore()
    store.commit("g", at(5))
    store.sync()
    store.files.cut_at = store.files.count
    with pytest.raises(PowerCut):
        store.commit("g", at(6))
    store.files.kill()
    assert offsets_of(store.restarted()) == {5}


@pytest.mark.parametrize("cut_bytes", [1, 20, 1000, 2000])
def test_o2_a_torn_commit_is_cut_off_for_all_of_its_partitions(cut_bytes: int) -> None:
    after = torn_by(cut_bytes, 5, 6)
    assert offsets_of(after) == {5}
    assert [report.bytes_cut > 0 for report in after.reports] == [True]


def test_o3_of_two_commits_written_together_the_first_is_whole_and_the_torn_one_is_not_seen() -> (
    None
):
    assert offsets_of(torn_by(1, 5, 6, 7)) == {6}


def test_o4_a_commit_that_was_written_but_not_answered_survives_the_death_of_the_process() -> None:
    store = OffsetStore()
    store.commit("g", at(5))
    store.files.kill()
    assert offsets_of(store.restarted()) == {5}


@pytest.mark.parametrize("seed", range(60))
def test_o5_a_power_cut_before_the_sync_leaves_a_commit_whole_or_not_at_all(seed: int) -> None:
    store = OffsetStore()
    store.commit("g", at(5))
    store.sync()
    store.commit("g", at(6))
    store.commit("h", at(9))
    after = store.restarted(store.files.power_cut(random.Random(seed)))
    assert offsets_of(after) in ({5}, {6})
    assert offsets_of(after, "h") in ({None}, {9})


def test_o5_both_outcomes_happen() -> None:
    """Otherwise the test above says nothing."""
    seen = set()
    for seed in range(60):
        store = OffsetStore()
        store.commit("g", at(5))
        store.sync()
        store.commit("g", at(6))
        seen |= offsets_of(store.restarted(store.files.power_cut(random.Random(seed))))
    assert seen == {5, 6}


@pytest.mark.parametrize("seed", range(30))
def test_o6_what_was_synced_survives_every_power_cut(seed: int) -> None:
    store = OffsetStore()
    store.commit("g", at(5))
    store.sync()
    assert offsets_of(store.restarted(store.files.power_cut(random.Random(seed)))) == {5}


def test_o7_a_full_disk_refuses_the_commit_and_keeps_what_was_there() -> None:
    store = OffsetStore()
    store.commit("g", at(5))
    store.sync()
    size = store.files.size_of(LOG)
    store.files.faults[store.files.count] = errno.ENOSPC
    with pytest.raises(KafkaError) as refused:
        store.commit("g", at(6))
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert offsets_of(store) == {5}
    assert store.files.size_of(LOG) == size
    store.commit("g", at(7))
    store.sync()
    assert offsets_of(store) == offsets_of(store.restarted()) == {7}


def test_o7_while_the_disk_is_known_to_be_full_it_is_not_asked() -> None:
    store = OffsetStore()
    store.disk.full = True
    changes = store.files.count
    with pytest.raises(KafkaError) as refused:
        store.commit("g", at(6))
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert store.files.count == changes


def test_o8_a_damaged_older_commit_costs_itself_and_is_reported() -> None:
    """Below the recovery point nothing is cut, unlike Kafka, which drops all that follows."""
    store = OffsetStore()
    for offset, group in enumerate(("a", "b", "c")):
        store.commit(group, {ORDERS: offset})
    store.sync()
    data = bytearray(store.files.read_bytes(LOG))
    size = len(data) // 3
    data[size + HEADER_SIZE + 5] ^= 1
    store.files.write_bytes(LOG, bytes(data))
    after = store.restarted(recovery_point=3)
    assert after.everything() == {("a", *ORDERS): 0, ("c", *ORDERS): 2}
    skipped = after.loader.report().skipped
    assert [offset for offset, _ in skipped] == [1]


def test_o8_above_the_recovery_point_it_is_cut_with_all_that_follows_and_named() -> None:
    store = OffsetStore()
    for offset, group in enumerate(("a", "b", "c")):
        store.commit(group, {ORDERS: offset})
    store.sync()
    data = bytearray(store.files.read_bytes(LOG))
    torn = len(data) // 3 + HEADER_SIZE + 40
    data[torn : torn + 8] = b"\xff" * 8  # more than one wrong bit, which would cost itself alone
    store.files.write_bytes(LOG, bytes(data))
    after = store.restarted()
    assert after.everything() == {("a", *ORDERS): 0}
    from broker.coordinator.offsets.torn_commits import groups_in

    assert [groups_in(report.head) for report in after.reports] == [["b", "c"]]


def test_o9_the_newest_offsets_survive_a_crash_anywhere_in_a_compaction() -> None:
    def lived(cut_at: int | None) -> OffsetStore:
        store = OffsetStore(settings=Settings(segment_bytes=4000, index_interval_bytes=500))
        for offset in range(12):
            store.commit("g", {ORDERS: offset, BILLS: offset})
            store.commit("h", {ORDERS: offset}, metadata=f"at {offset}")
        store.offsets.remove(store.shard, "h", [ORDERS])
        store.sync()
        store.files.cut_at = cut_at
        return store

    whole = lived(None)
    first = whole.files.count
    size = sum(segment.size for segment in whole.log.segments)
    whole.compact()
    last = whole.files.count
    assert sum(segment.size for segment in whole.log.segments) < size / 2
    expected = {("g", *ORDERS): 11, ("g", *BILLS): 11}
    assert whole.restarted().everything() == whole.everything() == expected
    for cut_at in range(first, last):
        store = lived(cut_at)
        with pytest.raises(PowerCut):
            store.compact()
        after = store.restarted(store.files.power_cut(random.Random(cut_at)))
        assert after.everything() == expected, f"cut at {cut_at}"


def test_o10_a_newer_offset_in_an_open_transaction_does_not_replace_the_older() -> None:
    store = OffsetStore()
    store.commit("g", {ORDERS: 5})
    store.commit("g", {ORDERS: 9}, producer=PRODUCER)
    assert store.log.last_stable_offset == 1
    assert store.offset("g", *ORDERS) == store.restarted().offset("g", *ORDERS) == 5
    store.compact()
    after = store.restarted()
    assert after.offset("g", *ORDERS) == 5
    after.end("g", PRODUCER, commit=True)
    assert after.offset("g", *ORDERS) == 9


def test_o11_an_aborted_transaction_leaves_the_older_offset() -> None:
    store = OffsetStore()
    store.commit("g", {ORDERS: 5})
    store.commit("g", {ORDERS: 9}, producer=PRODUCER)
    store.end("g", PRODUCER, commit=False)
    store.compact()
    after = store.restarted()
    assert store.offset("g", *ORDERS) == after.offset("g", *ORDERS) == 5
    assert not after.state.offsets.is_pending("g", *ORDERS)


def test_o12_a_tombstone_that_was_not_answered_may_stand_and_a_retry_succeeds() -> None:
    store = OffsetStore()
    store.commit("g", {ORDERS: 5})
    store.sync()
    store.offsets.remove(store.shard, "g", [ORDERS])
    store.files.kill()
    after = store.restarted()
    assert after.offset("g", *ORDERS) is None
    after.offsets.remove(after.shard, "g", [ORDERS])
    assert after.everything() == {}


def test_o14_a_load_has_no_side_effects() -> None:
    store = OffsetStore()
    store.commit("g", at(5))
    store.sync()
    before = store.files.read_bytes(LOG)
    first = store.restarted()
    second = first.restarted()
    assert first.everything() == second.everything() == store.everything()
    assert store.files.read_bytes(LOG) == before


@pytest.mark.parametrize("commit", [True, False])
def test_o15_a_transaction_open_at_the_crash_ends_after_it_and_is_unstable_until_then(
    commit: bool,
) -> None:
    store = OffsetStore()
    store.commit("g", {ORDERS: 5, BILLS: 1})
    store.commit("g", {ORDERS: 9}, producer=PRODUCER)
    store.sync()
    after = store.restarted()
    assert after.offset("g", *ORDERS) == 5
    assert after.state.offsets.is_pending("g", *ORDERS)
    assert not after.state.offsets.is_pending("g", *BILLS)
    after.end("g", PRODUCER, commit=commit)
    assert after.offset("g", *ORDERS) == (9 if commit else 5)
    assert after.restarted().everything() == after.everything()


@pytest.mark.parametrize("restart_before_the_marker", [True, False])
def test_o16_a_plain_commit_after_one_in_a_transaction_wins(
    restart_before_the_marker: bool,
) -> None:
    store = OffsetStore()
    store.commit("g", {ORDERS: 9}, producer=PRODUCER)
    store.commit("g", {ORDERS: 12})
    if restart_before_the_marker:
        store = store.restarted()
    store.end("g", PRODUCER, commit=True)
    assert store.offset("g", *ORDERS) == store.restarted().offset("g", *ORDERS) == 12


def test_o17_a_marker_whose_data_compaction_has_removed_means_nothing() -> None:
    store = OffsetStore()
    store.commit("g", {ORDERS: 4}, producer=PRODUCER)
    store.end("g", PRODUCER, commit=True)
    store.commit("g", {ORDERS: 5})
    store.compact()
    piece = store.log.read(store.log.start_offset, 1 << 20)
    assert piece is not None
    assert [record.offset for record in records_in(piece.read())] == [1, 2], (
        "the marker and the newer offset"
    )
    after = store.restarted()
    assert after.everything() == {("g", *ORDERS): 5}
    assert after.state.offsets.pending_producers() == []


def test_o18_a_record_of_another_product_is_skipped_and_nothing_else() -> None:
    store = OffsetStore()
    store.commit("g", {ORDERS: 5})
    key, _ = encode_record((OffsetCommitKey(group="g", topic="bills", partition=3), None))
    foreign = build_batch([(START_MS, key, b"\x00\x63later", ())])
    append(store.log, bytearray(foreign))
    store.log.write()
    store.commit("h", {ORDERS: 6})
    after = store.restarted()
    assert after.everything() == {("g", *ORDERS): 5, ("h", *ORDERS): 6}
    assert [offset for offset, _ in after.loader.report().skipped] == [1]


# "The offset request will never receive a response until the the offset messages are fully
# committed to the log, and an unsuccessful commit must not result in updates to the hashmap."


def test_an_answer_waits_while_what_it_tells_is_not_on_the_disk() -> None:
    store = OffsetStore()
    seen = [store.shard.is_durable]
    store.commit("g", at(5))
    seen.append(store.shard.is_durable)
    store.sync()
    seen.append(store.shard.is_durable)
    assert seen == [True, False, True]


def test_one_commit_is_one_batch_however_many_partitions_it_has() -> None:
    store = OffsetStore()
    store.commit("g", {("orders", index): index for index in range(3000)})
    header = HEADER.unpack_from(store.files.read_bytes(LOG))
    assert header[-1] == 3000
    assert store.restarted().everything() == store.everything()
    assert len(store.everything()) == 3000


def test_a_commit_that_is_larger_than_a_batch_may_be_is_refused_as_a_whole() -> None:
    store = OffsetStore()
    store.commit("g", {ORDERS: 5})
    with pytest.raises(KafkaError) as refused:
        store.commit("g", at(6), metadata="m" * 32_000)
    assert refused.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert store.everything() == {("g", *ORDERS): 5}


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_is_a_prefix_of_the_commits_and_holds_all_that_were_synced(
    seed: int,
) -> None:
    """Commits, transactions, deletions and syncs at whim, over small segments, then a power cut."""
    rng = random.Random(seed)
    store = OffsetStore(settings=Settings(segment_bytes=9000, index_interval_bytes=500))
    states = [store.everything()]
    written = [0]
    synced = 0
    opened: set[int] = set()
    for number in range(60):
        group = rng.choice("gh")
        kind = rng.random()
        producer_id = rng.randrange(1, 4)
        if kind < 0.15 and store.offset(group, *ORDERS) is not None:
            store.offsets.remove(store.shard, group, [ORDERS])
        elif kind < 0.35:
            store.commit(group, {ORDERS: number, BILLS: number}, producer=(producer_id, 0))
            opened.add(producer_id)
        elif kind < 0.5 and opened:
            ended = opened.pop()
            store.end(group, (ended, 0), commit=rng.random() < 0.5)
        else:
            store.commit(group, at(number))
        states.append(store.everything())
        written.append(store.log.written_offset)
        if rng.random() < 0.2:
            store.sync()
            synced = len(states) - 1
    after = store.restarted(store.files.power_cut(rng), compacted=False)
    reached = written.index(after.log.next_offset)
    assert reached >= synced, f"seed {seed}"
    assert after.everything() == states[reached], f"seed {seed}"


def test_offsets_of_a_deleted_topic_go_though_the_disk_was_full_when_it_was_deleted() -> None:
    store = OffsetStore()
    store.commit("g", {ORDERS: 5, BILLS: 1})
    store.commit("h", {ORDERS: 6})
    store.disk.full = True
    store.offsets.topic_deleted("orders")
    assert store.offset("g", *ORDERS) == 5
    store.disk.full = False
    store.offsets.look_for_expired()
    assert store.everything() == store.restarted().everything() == {("g", *BILLS): 1}


def test_a_topic_that_is_made_again_keeps_what_was_committed_for_it_since() -> None:
    store = OffsetStore()
    store.commit("g", {ORDERS: 5})
    store.disk.full = True
    store.offsets.topic_deleted("orders")
    store.disk.full = False
    store.time_ms += 2000
    store.commit("h", {ORDERS: 6})
    store.offsets.look_for_expired()
    assert store.everything() == {("h", *ORDERS): 6}


def test_a_look_for_what_has_expired_forgets_empty_groups_but_not_those_that_await_a_member() -> (
    None
):
    store = OffsetStore()
    groups = {}
    for name, version in (("left", 0), ("awaited", 4)):
        group = ClassicGroup(name, store.state.rules, lambda prefix: f"{prefix}-1")
        store.state.groups[name] = groups[name] = group
        request = JoinGroupRequest(
            group_id=name,
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
        )
        group.join(None, request, Caller("client", "/127.0.0.1", version), 0)
    left = LeaveGroupRequest(group_id="left", member_id="client-1")
    groups["left"].leave(left, Caller("client", "/127.0.0.1", 0), 0)
    store.offsets.look_for_expired()
    assert list(store.state.groups) == ["awaited"]


# "the request could potentially include the current offset and would have the semantics
# 'update the offset to x, iff the current offset is y'"


def conditional(store: OffsetStore, expected: int, offset: int) -> None:
    conditions: list[Any] = [(*ORDERS, expected)]
    store.offsets.require(store.shard, "g", conditions)
    store.commit("g", {ORDERS: offset, BILLS: offset})


def test_a_conditional_commit_replaces_only_what_it_expects() -> None:
    store = OffsetStore(conditional=True)
    conditional(store, -1, 5)
    conditional(store, 5, 6)
    for expected in (-1, 5, 7):
        with pytest.raises(KafkaError) as refused:
            conditional(store, expected, 9)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert store.everything() == {("g", *ORDERS): 6, ("g", *BILLS): 6}


def test_of_two_commits_that_expect_the_same_one_succeeds_though_neither_is_synced() -> None:
    store = OffsetStore(conditional=True)
    conditional(store, -1, 5)
    with pytest.raises(KafkaError):
        conditional(store, -1, 6)
    assert store.offset("g", *ORDERS) == 5


def test_a_conditional_commit_is_refused_where_it_is_not_turned_on() -> None:
    store = OffsetStore()
    with pytest.raises(KafkaError, match=r"offsets\.commit\.conditional\.enable"):
        conditional(store, -1, 5)
