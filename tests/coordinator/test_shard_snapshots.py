"""Snapshots of groups and offsets: a start with one knows what a start without it knows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from broker.coordinator.classic.gathering import SIGNS_MS
from broker.coordinator.loading import restoring
from broker.coordinator.loading.restoring import Restoring, UnusableSnapshot
from broker.coordinator.loading.snapshot_records import Origin, records_of
from broker.coordinator.offsets import columns as offset_columns
from broker.coordinator.offsets import table as offset_table
from broker.coordinator.offsets.blocks import interpreted_look_into, interpreted_place
from tests.coordinator.group_history import History, Process, facts, replayed
from tests.support import offset_store
from tests.support.memory_filesystem import PowerCut
from tests.support.offset_store import FOLDER, OffsetStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.memory_filesystem import MemoryFilesystem


@pytest.fixture
def small() -> Iterator[None]:
    """Parts and buckets that come and go within few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_table, "BUCKET_PAGES", 1)
        patch.setattr(offset_table, "FILLED_BYTES", 3000)
        patch.setattr(offset_table, "FEW_ENTRIES", 5)
        patch.setattr(offset_columns, "PART_ENTRIES", 8)
        yield


def snapshots_in(files: MemoryFilesystem) -> list[str]:
    return sorted(name for name in files.list_dir(FOLDER) if ".checkpoint" in name)


@pytest.fixture(params=["as it is", "interpreted"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compiled loops, if there are any, and without."""
    if request.param == "interpreted":
        monkeypatch.setattr(restoring, "look_into", interpreted_look_into)
        monkeypatch.setattr(offset_table, "place", interpreted_place)


@pytest.mark.usefixtures("small", "loops")
@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_and_what_comes_after_it_say_what_the_whole_log_says(seed: int) -> None:
    history = History(seed)
    chance = history.chance
    used = 0
    for number in range(400):
        history.step()
        if chance.random() < 0.03:
            history.store.snapshot()
        if number % 80 == 79:
            store = history.store.restarted()
            used += store.loading.found is not None
            assert facts(store.state) == facts(replayed(store.log)), f"seed {seed}, step {number}"
            history.go_on_with(store)
    assert used or seed  # of many, at least in the first


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(8))
def test_what_changes_while_a_snapshot_is_written_is_not_in_it(seed: int) -> None:
    history = History(1000 + seed)
    for _ in range(300):
        history.step()
    store = history.store
    snapshots, snapshot_id = store.shard.snapshots, store.shard.snapshots.next_id()
    assert snapshot_id is not None
    origin, shared = snapshots.origin(snapshot_id.end_offset), store.state.share()
    expected = facts(replayed(store.log))
    at_once = list(records_of(shared, origin))
    history.kinds = [kind for kind in history.kinds if kind not in (history.restart,)]
    for _ in range(200):
        history.step()
    assert list(records_of(shared, origin)) == at_once, f"seed {seed}"
    snapshots.write(snapshot_id, origin, shared, now_ms=store.time_ms)
    store.state.offsets.unshare()
    alone = OffsetStore().state
    filling = Restoring(alone, origin, now_ms=0)
    for records in at_once:
        filling.take(records)
    filling.finish()
    assert facts(alone) == expected, f"seed {seed}"
    again = store.restarted()
    assert facts(again.state) == facts(replayed(again.log)), f"seed {seed}"


def test_members_amid_a_rebalance_are_what_the_log_says_of_them() -> None:
    history = History(5)
    first = history.processes[0]
    history.processes = [first]
    history.classic()  # and is sent back for its id
    history.classic()
    group: Any = history.store.state.groups[first.group]
    history.sync(first, group)
    history.time.pass_s((SIGNS_MS + 1) / 1000)
    assert group.state.value == "Stable"
    stable = facts(replayed(history.store.log))
    history.processes = [Process(first.group)]
    history.classic()
    history.classic()
    assert group.state.value == "PreparingRebalance"
    history.store.snapshot()
    store = history.store.restarted()
    assert store.loading.found is not None
    assert facts(store.state) == stable
    assert store.state.groups[first.group].state.value == "Stable"  # type: ignore[union-attr]


# What is no good


def a_store() -> OffsetStore:
    store = OffsetStore()
    for number in range(300):
        store.commit(f"g{number}", {("t", 0): number}, metadata="m" if number % 3 else "")
    store.commit("wide", {("t", number): number for number in range(200)})
    store.commit("late", {("t", 1): 5}, producer=(7, 0))
    store.sync()
    return store


def test_a_shard_is_loaded_from_its_snapshot_and_reads_only_what_comes_after() -> None:
    store = a_store()
    name = store.snapshot()
    store.commit("g1", {("t", 0): 1000})
    store.files.reads.clear()
    again = store.restarted()
    assert again.loading.found is not None
    assert again.loading.found.file_name == name
    assert again.loader.records == 1
    assert again.everything() == store.everything()
    assert again.state.offsets.get("g1", "t", 0) == store.state.offsets.get("g1", "t", 0)
    assert again.state.offsets.is_pending("late", "t", 1)


@pytest.mark.usefixtures("loops")
def test_topics_that_have_other_numbers_now_keep_their_offsets() -> None:
    first = OffsetStore()
    for number in range(60):
        first.commit(f"g{number}", {("a", 0): number, ("b", number): 2}, metadata="m")
        first.commit(f"many{number % 3}", {("c", n): number for n in range(50)})
    origin = Origin(b"x" * 16, "n", 5, 6)
    entries = [entry for some in records_of(first.state.share(), origin) for entry in some]
    second = OffsetStore()
    second.commit("other", {("b", 1): 1, ("c", 1): 1, ("a", 1): 1})  # numbers 1, 2, 3
    state = second.state
    state.offsets.remove_group("other")
    filling = Restoring(state, origin, now_ms=0)
    filling.take(entries)
    filling.finish()
    assert facts(state) == facts(first.state)


def test_a_newer_snapshot_takes_the_place_of_the_older() -> None:
    store = a_store()
    older = store.snapshot()
    assert store.snapshot() is None
    store.commit("g1", {("t", 0): 1000})
    newer = store.snapshot()
    assert newer != older
    assert snapshots_in(store.files) == [newer]
    assert store.restarted().loader.records == 0


def test_a_snapshot_that_is_ahead_of_the_log_is_removed() -> None:
    store = a_store()
    files = store.files.power_cut(random.Random(1))  # which takes what is not synced
    store.commit("g1", {("t", 0): 1000})
    store.snapshot()
    name = snapshots_in(store.files)[0]
    data = store.files.read_bytes(f"{FOLDER}/{name}")
    files.write_atomic(f"{FOLDER}/{name}", data)
    again = store.restarted(files)
    assert again.loading.found is None
    assert snapshots_in(files) == []
    assert again.offset("g1", "t", 0) == 1


def test_a_snapshot_of_batches_that_were_replaced_under_another_epoch_is_removed() -> None:
    store = a_store()
    store.snapshot()
    log = store.log
    end, name = log.written_offset, snapshots_in(store.files)[0]
    other = OffsetStore()
    other.log.set_leader_epoch(2)
    while other.log.written_offset < end:
        other.commit("other", {("t", 0): 9})
    data = store.files.read_bytes(f"{FOLDER}/{name}")
    other.files.write_atomic(f"{FOLDER}/{name}", data)
    again = other.restarted()
    assert again.loading.found is None
    assert set(again.everything()) == {("other", "t", 0)}
    assert snapshots_in(other.files) == []


def test_a_snapshot_of_batches_that_were_replaced_under_the_same_epoch_is_removed() -> None:
    store = a_store()
    store.snapshot()
    end, name = store.log.written_offset, snapshots_in(store.files)[0]
    other = OffsetStore()
    other.time_ms += 5
    while other.log.written_offset < end:
        other.commit("other", {("t", 0): 9})
    other.files.write_atomic(f"{FOLDER}/{name}", store.files.read_bytes(f"{FOLDER}/{name}"))
    again = other.restarted()
    assert again.loading.found is None
    assert set(again.everything()) == {("other", "t", 0)}


def test_a_snapshot_stays_good_when_what_it_was_made_of_is_compacted() -> None:
    store = a_store()
    store.snapshot()
    store.compact()
    again = store.restarted()
    assert again.loading.found is not None
    assert again.everything() == store.everything()


def test_a_removal_after_the_snapshot_that_compaction_has_forgotten_is_not_undone() -> None:
    store = a_store()
    store.end("late", (7, 0), commit=False)
    store.snapshot()
    store.offsets.remove(store.shard, "g5", [("t", 0)])
    store.commit("g6", {("t", 0): 1})
    store.compact()
    store.time_ms += 10 * 24 * 3_600_000
    for _ in range(3):  # the tombstone goes with the second pass
        store.commit("g6", {("t", 0): 2})
        store.compact()
        store.time_ms += 10 * 24 * 3_600_000
    again = store.restarted()
    assert again.offset("g5", "t", 0) is None
    assert again.loading.found is None
    assert again.everything() == store.everything()


@pytest.mark.parametrize("seed", range(60))
def test_a_flipped_bit_costs_the_snapshot_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    store = a_store()
    name = store.snapshot()
    path = f"{FOLDER}/{name}"
    data = bytearray(store.files.read_bytes(path))
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    store.files.write_atomic(path, bytes(data))
    again = store.restarted()
    assert again.loading.found is None, f"seed {seed}"
    assert snapshots_in(again.files) == []
    assert again.everything() == store.everything()


@pytest.mark.parametrize("cut", [0, 1, 100, 5000, -1, -80])
def test_a_snapshot_that_is_cut_is_not_used(cut: int) -> None:
    store = a_store()
    path = f"{FOLDER}/{store.snapshot()}"
    data = store.files.read_bytes(path)
    store.files.write_atomic(path, data[:cut])
    again = store.restarted()
    assert again.loading.found is None
    assert again.everything() == store.everything()


def test_the_snapshot_of_another_topic_is_not_used() -> None:
    store = a_store()
    store.snapshot()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_store, "TOPIC_ID", bytes(16))
        other = store.restarted()
    assert other.loading.found is None
    assert other.everything() == store.everything()


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("seed", range(80))
def test_records_that_make_no_sense_under_a_right_checksum_are_refused_whole(seed: int) -> None:
    """As a fault of ours would leave them. Either all is refused, or nothing is found that breaks
    whoever asks."""
    chance = random.Random(seed)
    store = a_store()
    origin = Origin(b"x" * 16, "n", 5, 6)
    entries = [entry for some in records_of(store.state.share(), origin) for entry in some]
    number = chance.randrange(len(entries))
    key, value = entries[number]
    assert key is not None
    raw = [bytearray(key), bytearray(value)]
    which = chance.choice([0, 1, 1, 1, 1]) if value else 0
    if chance.random() < 0.2:
        del raw[which][chance.randrange(len(raw[which])) :]
    else:
        for _ in range(chance.choice([1, 1, 10])):
            raw[which][chance.randrange(min(len(raw[which]), 700))] = chance.randrange(256)
    entries[number] = bytes(raw[0]), bytes(raw[1])
    if chance.random() < 0.1:
        chance.shuffle(entries)
    state = OffsetStore().state
    filling = Restoring(state, origin, now_ms=0)
    try:
        filling.take(entries)
        filling.finish()
    except UnusableSnapshot:
        return
    for group in list(state.offsets.groups()):
        assert list(state.offsets.entries(group))
        state.offsets.commit(group, "t", 0, 1, 1, "", 5)
        state.offsets.remove(group, "t", 0)
    state.offsets.complete(7, commit=True)
    assert list(records_of(state.share(), origin))


# Crashes while it is written


def test_a_crash_at_any_step_of_writing_a_snapshot_loses_nothing() -> None:
    def lived(cut_at: int | None) -> OffsetStore:
        store = a_store()
        store.snapshot()
        store.commit("g1", {("t", 0): 1000})
        store.sync()
        if cut_at is not None:
            store.files.cut_at = store.files.count + cut_at
        return store

    whole = lived(None)
    before = whole.files.count
    whole.snapshot()
    steps = whole.files.count - before
    assert steps > 8
    used = set()
    for cut_at in range(steps):
        for seed in range(4):
            store = lived(cut_at)
            with pytest.raises(PowerCut):
                store.snapshot()
            again = store.restarted(store.files.power_cut(random.Random(seed)))
            assert again.everything() == whole.everything(), f"cut at {cut_at}, seed {seed}"
            used.add(again.loading.found)
            left = snapshots_in(again.files)
            assert left == [found.file_name for found in [again.loading.found] if found]
    assert len(used) >= 2


def test_a_full_disk_leaves_the_older_snapshot_and_nothing_of_the_newer() -> None:
    store = a_store()
    older = store.snapshot()
    store.commit("g1", {("t", 0): 1000})
    store.files.capacity = store.files.used_bytes() + 2000
    with pytest.raises(OSError, match="No space"):
        store.snapshot()
    assert snapshots_in(store.files) == [older]
