"""Committed offsets as the coordinator sees them, against plain dicts."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinator.offsets.commit import Committed
from broker.coordinator.offsets.committed import CommittedOffsets, TopicNumbers

NOW_MS = 1_700_000_000_123
SECOND_MS = 1_700_000_000_000

GROUPS = ["g", "other", "\udcc3", "名前", "long" * 80]
TOPICS = ["t", "u", "\udcfe\udcff", "ñ"]
PARTITIONS = st.one_of(st.integers(0, 40), st.integers(-(2**31), 2**31 - 1))
TIMES = st.integers(0, 2**32 * 1000 - 1)
COMMITTED = st.builds(
    Committed,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.sampled_from(["", "", "m", "\udcff", "m" * 4096]),
    TIMES,
    st.one_of(st.just(-1), TIMES),
)
PLACES = st.tuples(st.sampled_from(GROUPS), st.sampled_from(TOPICS), PARTITIONS)
STEPS = st.one_of(
    st.tuples(st.just("commit"), PLACES, COMMITTED),
    st.tuples(st.just("run"), PLACES, st.lists(PARTITIONS, max_size=60)),
    st.tuples(st.just("remove"), PLACES, st.none()),
    st.tuples(st.just("remove group"), PLACES, st.none()),
    st.tuples(st.just("pending"), PLACES, st.tuples(st.integers(1, 4), COMMITTED)),
    st.tuples(st.just("complete"), PLACES, st.tuples(st.integers(1, 4), st.booleans())),
)


def in_seconds(committed: Committed) -> Committed:
    return committed._replace(commit_ms=committed.commit_ms // 1000 * 1000)


class Log:
    """The offsets by the rule (storage.md 8.4), worked out from log offsets: the newest wins of all
    that is in force, removals included."""

    def __init__(self) -> None:
        self.newest: dict[tuple[str, str, int], tuple[int, Committed | None]] = {}
        self.removed_groups: dict[str, int] = {}
        self.pending: dict[int, dict[tuple[str, str, int], tuple[int, Committed]]] = {}

    def set(self, place: tuple[str, str, int], at: int, committed: Committed | None) -> None:
        known = max(self.newest.get(place, (-1, None))[0], self.removed_groups.get(place[0], -1))
        if at > known:
            self.newest[place] = at, committed

    def remove_group(self, group: str, at: int) -> None:
        self.removed_groups[group] = at
        for place in [place for place in self.newest if place[0] == group]:
            self.newest[place] = at, None

    def drop(self, group: str, *place: object) -> None:
        """A removal leaves nothing pending behind it, here or in the whole group."""
        for producer_id, kept in list(self.pending.items()):
            for one in [one for one in kept if one[: 1 + len(place)] == (group, *place)]:
                del kept[one]
            if not kept:
                del self.pending[producer_id]

    def complete(self, producer_id: int, *, commit: bool) -> None:
        for place, (at, committed) in self.pending.pop(producer_id, {}).items():
            if commit:
                self.set(place, at, committed)

    def entries(self, group: str) -> dict[tuple[str, int], Committed]:
        return {
            place[1:]: in_seconds(committed)
            for place, (_, committed) in self.newest.items()
            if place[0] == group and committed is not None
        }


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=60))
def test_what_is_in_force_is_the_newest_by_its_place_in_the_log(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    offsets, log = CommittedOffsets(), Log()
    for at, (step, place, what) in enumerate(steps):
        if step == "commit":
            offsets.commit(*place, *what)
            log.set(place, at, what)
        elif step == "run":
            group, topic, _ = place
            offsets.commit_run(group, topic, what, range(len(what)), [3] * len(what), NOW_MS)
            for number, partition in enumerate(what):
                log.newest[(*place[:2], partition)] = at, Committed(number, 3, "", NOW_MS)
        elif step == "remove":
            offsets.remove(*place)
            log.set(place, at, None)
            log.drop(*place)
        elif step == "remove group":
            offsets.remove_group(place[0])
            log.remove_group(place[0], at)
            log.drop(place[0])
        elif step == "pending":
            group, topic, partition = place
            offsets.add_pending(what[0], at, group, topic, partition, what[1])
            log.pending.setdefault(what[0], {})[place] = at, what[1]
        else:
            offsets.complete(what[0], commit=what[1])
            log.complete(what[0], commit=what[1])
    same(offsets, log)


def same(offsets: CommittedOffsets, log: Log) -> None:
    for group in GROUPS:
        entries = log.entries(group)
        assert {(topic, one): found for topic, one, found in offsets.entries(group)} == entries
        assert (group in offsets) == bool(entries)
        by_topic = {
            topic: sorted(partition for name, partition in entries if name == topic)
            for topic in {topic for topic, _ in entries}
        }
        assert offsets.topics(group) == by_topic
        places = {place[1:] for kept in log.pending.values() for place in kept if place[0] == group}
        assert sorted(offsets.pending(group)) == sorted(places)
        for topic in TOPICS:
            asked = [0, 1, 2, 3, 40, 7, 7, 2**31 - 1, *by_topic.get(topic, [])]
            wanted = [entries.get((topic, partition)) for partition in asked]
            assert offsets.fetch(group, topic, asked) == wanted
            assert [offsets.get(group, topic, partition) for partition in asked] == wanted
            assert [offsets.is_pending(group, topic, one) for one in asked] == [
                (topic, one) in places for one in asked
            ]
    assert sorted(offsets.groups()) == sorted(group for group in GROUPS if log.entries(group))
    assert len(offsets) == sum(len(log.entries(group)) for group in GROUPS)
    assert sorted(offsets.pending_producers()) == sorted(log.pending)
    for topic in TOPICS:
        here = {group for group in GROUPS if any(name == topic for name, _ in log.entries(group))}
        here |= {place[0] for kept in log.pending.values() for place in kept if place[1] == topic}
        assert set(chain.from_iterable(offsets.find_topic(topic))) == here


def committed_at(offsets: CommittedOffsets) -> int | None:
    found = offsets.get("g", "t", 0)
    return None if found is None else found.offset


def test_a_plain_commit_wins_over_an_older_one_of_a_transaction_that_commits_later() -> None:
    offsets = CommittedOffsets()
    offsets.add_pending(7, 10, "g", "t", 0, Committed(100))
    offsets.commit("g", "t", 0, 120, -1, "", NOW_MS)
    assert offsets.is_pending("g", "t", 0)
    offsets.complete(7, commit=True)
    assert committed_at(offsets) == 120
    assert not offsets.is_pending("g", "t", 0)


def test_a_commit_of_a_transaction_wins_over_an_older_plain_one() -> None:
    offsets = CommittedOffsets()
    offsets.commit("g", "t", 0, 120, -1, "old", NOW_MS, 5)
    offsets.add_pending(7, 10, "g", "t", 0, Committed(100, 3, "new", NOW_MS))
    assert committed_at(offsets) == 120
    offsets.complete(7, commit=True)
    assert offsets.get("g", "t", 0) == Committed(100, 3, "new", SECOND_MS)


def test_of_two_transactions_the_one_that_wrote_later_wins_whichever_ends_first() -> None:
    for first, second in [(7, 8), (8, 7)]:
        offsets = CommittedOffsets()
        offsets.add_pending(7, 10, "g", "t", 0, Committed(100))
        offsets.add_pending(8, 11, "g", "t", 0, Committed(200))
        offsets.complete(first, commit=True)
        assert offsets.is_pending("g", "t", 0)
        offsets.complete(second, commit=True)
        assert committed_at(offsets) == 200


def test_of_two_transactions_the_older_comes_into_force_if_the_newer_aborts() -> None:
    for first in (7, 8):
        offsets = CommittedOffsets()
        offsets.add_pending(7, 10, "g", "t", 0, Committed(100))
        offsets.add_pending(8, 11, "g", "t", 0, Committed(200))
        for producer_id in (first, 15 - first):
            offsets.complete(producer_id, commit=producer_id == 7)
        assert committed_at(offsets) == 100


def test_an_aborted_transaction_leaves_what_was_there() -> None:
    offsets = CommittedOffsets()
    offsets.commit("g", "t", 0, 120, -1, "", NOW_MS)
    offsets.add_pending(7, 10, "g", "t", 0, Committed(100))
    offsets.complete(7, commit=False)
    assert committed_at(offsets) == 120
    assert not offsets.pending("g")


def test_a_transaction_open_at_the_end_of_the_log_stays_pending_and_unseen() -> None:
    offsets = CommittedOffsets()
    offsets.add_pending(7, 10, "g", "t", 0, Committed(100))
    assert committed_at(offsets) is None
    assert "g" not in offsets
    assert offsets.pending_producers() == [7]


def test_a_marker_whose_data_was_compacted_away_changes_nothing() -> None:
    offsets = CommittedOffsets()
    offsets.commit("g", "t", 0, 120, -1, "", NOW_MS)
    offsets.complete(7, commit=True)
    assert committed_at(offsets) == 120


def test_a_group_that_was_removed_does_not_come_back_with_a_transaction_from_before() -> None:
    offsets = CommittedOffsets()
    offsets.add_pending(7, 10, "g", "t", 0, Committed(100))
    offsets.remove_group("g")
    offsets.complete(7, commit=True)
    assert "g" not in offsets


def test_a_commit_without_metadata_or_time_to_expire_takes_those_before_away() -> None:
    offsets = CommittedOffsets()
    offsets.commit("g", "t", 0, 1, -1, "m", NOW_MS, 5)
    assert offsets.get("g", "t", 0) == Committed(1, -1, "m", SECOND_MS, 5)
    offsets.commit("g", "t", 0, 2, -1, "", NOW_MS)
    assert offsets.get("g", "t", 0) == Committed(2, -1, "", SECOND_MS, -1)
    assert offsets.groups_with_expire_times() == []


@pytest.mark.parametrize(("ms", "kept"), [(-1, 0), (2**62, (2**32 - 1) * 1000)])
def test_a_commit_time_that_no_column_holds_is_moved_to_the_nearest_one(ms: int, kept: int) -> None:
    offsets = CommittedOffsets()
    offsets.commit("g", "t", 0, 1, -1, "", ms)
    offsets.commit_run("g", "t", [1], [1], [-1], [ms])
    assert [found.commit_ms for _, _, found in offsets.entries("g")] == [kept, kept]


def test_group_ids_that_are_not_utf8_are_told_apart_and_come_back() -> None:
    names = [
        raw.decode("utf-8", "surrogateescape") for raw in (b"\xff", b"\xfe", b"\xc3\xa9", b"\xe9")
    ]
    offsets = CommittedOffsets()
    for number, name in enumerate(names):
        offsets.commit(name, name, 0, number, -1, name, NOW_MS)
    assert sorted(offsets.groups()) == sorted(names)
    for number, name in enumerate(names):
        assert list(offsets.entries(name)) == [(name, 0, Committed(number, -1, name, SECOND_MS))]


def test_fetch_of_a_few_partitions_among_very_many_does_not_read_them_all() -> None:
    offsets = CommittedOffsets()
    offsets.commit_run("g", "t", range(100_000), range(100_000), [-1] * 100_000, NOW_MS)
    asked = [99_999, 0, 50_000, 7, 100_000, 8]
    found = [each and each.offset for each in offsets.fetch("g", "t", asked)]
    assert found == [99_999, 0, 50_000, 7, None, 8]


def test_entries_of_a_group_may_be_removed_while_they_are_read() -> None:
    offsets = CommittedOffsets()
    offsets.commit_run("g", "t", range(5_000), range(5_000), [-1] * 5_000, NOW_MS)
    seen = []
    for topic, partition, _ in offsets.entries("g"):
        seen.append(partition)
        offsets.remove("g", topic, partition)
    assert seen == list(range(5_000))
    assert "g" not in offsets


def test_tables_filled_by_several_threads_share_the_numbers_of_topics() -> None:
    topics = TopicNumbers()
    names = [f"topic-{number}" for number in range(500)]

    def fill(seed: int) -> CommittedOffsets:
        offsets = CommittedOffsets(topics)
        for name in random.Random(seed).sample(names, len(names)):
            offsets.commit("g", name, 0, int(name[6:]), -1, "", NOW_MS)
        return offsets

    with ThreadPoolExecutor(4) as threads:
        tables = list(threads.map(fill, range(8)))
    for offsets in tables:
        found = {topic: each.offset for topic, _, each in offsets.entries("g")}
        assert found == {name: int(name[6:]) for name in names}
    assert sorted(topics.names.values()) == sorted(names)
