"""The table that holds committed offsets, against a dict. Small limits make its parts come and go
within few steps."""

from __future__ import annotations

import random
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinator.offsets import columns as offset_columns
from broker.coordinator.offsets import table as offset_table
from broker.coordinator.offsets.columns import Columns
from broker.coordinator.offsets.table import OffsetTable

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = 1 << 32
END = 2**64 - 1
NOW_S = 1_700_000_000


class Meeting(str):
    """A group id whose hash is that of all others of its kind."""

    __slots__ = ()

    def __hash__(self) -> int:
        return -3


NAMES = [
    *("", "g", "gruppe-ü", "組", "\U0001f600", "\udc80", "g\udcff\udcfe", "g" * 255, "g" * 256),
    *("ü" * 128, *(f"group-{number:04}" for number in range(300)), *map(Meeting, ("a", "b", "cc"))),
]
Model = dict[str, dict[int, tuple[int, int, int]]]


@pytest.fixture
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_table, "BUCKET_PAGES", 1)
        patch.setattr(offset_table, "FEW_ENTRIES", 5)
        patch.setattr(offset_columns, "PART_ENTRIES", 8)
        yield


class Twins:
    """A table and a dict to which the same is done."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.table = OffsetTable()
        self.model: Model = {}
        names = self.chance.sample(NAMES, self.chance.choice([2, 20, len(NAMES)]))
        self.names = [*names, NAMES[-1], NAMES[-2]]
        self.topics = self.chance.choice([1, 3, 50])

    def key(self) -> int:
        topic = self.chance.randint(1, self.topics) << 32
        near = self.chance.randrange(self.chance.choice([3, 30, 300]))
        return topic + self.chance.choice([near, near, near, 100_000, 2**31 - 1, -1, -(2**31)])

    def entry(self) -> tuple[int, int, int]:
        offset = self.chance.choice([0, -1, 2**63 - 1, self.chance.randrange(10**6)])
        return offset, self.chance.randrange(2**32), self.chance.choice([-1, 0, 2**31 - 1])

    def put(self, group: str) -> None:
        key, entry = self.key(), self.entry()
        self.table.put(group, key, *entry)
        self.model.setdefault(group, {})[key] = entry

    def put_run(self, group: str) -> None:
        first = self.key()
        if self.chance.random() < 0.7:
            keys = list(range(first, first + self.chance.choice([1, 3, 7, 30])))
        else:
            keys = sorted({self.key() for _ in range(20)})
        entries = [self.entry() for _ in keys]
        self.table.put_run(group, Columns.of(keys, *zip(*entries, strict=True)))
        self.model.setdefault(group, {}).update(zip(keys, entries, strict=True))

    def remove(self, group: str) -> None:
        kept = self.model.get(group, {})
        count = self.chance.choice([1, 1, len(kept)])
        keys = [self.key(), *self.chance.sample(sorted(kept), min(count, len(kept)))]
        for key in keys:
            self.table.remove(group, key)
            kept.pop(key, None)
        if not kept:
            self.model.pop(group, None)

    def remove_group(self, group: str) -> None:
        self.table.remove_group(group)
        self.model.pop(group, None)

    def step(self) -> None:
        group = self.chance.choice(self.names)
        steps = (self.put, self.put_run, self.remove, self.remove_group)
        self.chance.choices(steps, weights=(60, 10, 20, 2))[0](group)

    def compare(self) -> None:
        assert len(self.table) == sum(map(len, self.model.values()))
        assert sorted(self.table.groups()) == sorted(self.model)
        first, end = sorted([self.key(), self.key() + 1])
        holding = [group for found in self.table.groups_with(first, end) for group in found]
        assert sorted(holding) == sorted(
            group for group, kept in self.model.items() if any(first <= key < end for key in kept)
        )
        for group in self.names:
            kept = self.model.get(group, {})
            assert (group in self.table) == bool(kept)
            everything = [(key, *kept[key]) for key in sorted(kept)]
            assert self.table.span(group, 0, END, 10**6).entries() == everything
            within = [entry for entry in everything if first <= entry[0] < end]
            assert self.table.span(group, first, end, 7).entries() == within[:7]
            for key in (self.key(), *list(kept)[:3]):
                found = self.table.get(group, key)
                assert found == ((key, *kept[key]) if key in kept else None)


@pytest.mark.usefixtures("small")
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 600))
def test_whatever_is_put_and_removed_the_table_says_what_a_dict_says(seed: int, steps: int) -> None:
    twins = Twins(seed)
    for number in range(steps):
        twins.step()
        if number % 100 == 0:
            twins.compare()
    twins.compare()


@pytest.mark.usefixtures("small")
def test_a_bucket_of_hashes_that_cannot_be_told_apart_is_not_split_for_ever() -> None:
    table = OffsetTable()
    names = [Meeting(f"group-{number}") for number in range(300)]
    for number, name in enumerate(names):
        table.put(name, TOPIC, number, NOW_S, -1)
    assert sorted(table.groups()) == sorted(names)
    assert table.sizes()["buckets"] < 64 * 300
    found = [table.get(name, TOPIC) for name in names]
    assert found == [(TOPIC, number, NOW_S, -1) for number in range(300)]


@pytest.mark.usefixtures("small")
def test_groups_that_stay_come_at_least_once_while_the_table_grows_and_shrinks() -> None:
    table = OffsetTable()
    stay = {f"stay-{number}" for number in range(500)}
    for name in stay:
        table.put(name, TOPIC, 1, NOW_S, -1)
    seen = []
    for number, name in enumerate(table.groups()):
        seen.append(name)
        for other in range(3):
            table.put(f"come-{number}-{other}", TOPIC, 1, NOW_S, -1)
        for partition in range(number % 9):
            table.put(name, TOPIC + partition, 1, NOW_S, -1)
        table.remove_group(f"come-{number - 5}-0")
        if len(seen) > 5000:
            break
    assert stay <= set(seen)


@pytest.mark.parametrize("order", ["ascending", "descending", "by chance", "from both ends"])
def test_partitions_come_one_by_one_in_any_order_and_take_few_bytes(order: str) -> None:
    partitions = list(range(20_000))
    if order == "descending":
        partitions.reverse()
    elif order == "by chance":
        random.Random(1).shuffle(partitions)
    elif order == "from both ends":
        partitions = [
            one for pair in zip(partitions, partitions[::-1], strict=True) for one in pair
        ]
        partitions = partitions[:20_000]
    table = OffsetTable()
    for partition in partitions:
        table.put("group", TOPIC + partition, partition, NOW_S, -1)
    assert table.span("group", 0, END, 30_000).offsets.tolist() == list(range(20_000))
    assert sum(table.sizes().values()) < 20_000 * 64


def test_what_was_removed_is_given_back() -> None:
    table = OffsetTable()
    for number in range(5_000):
        for partition in range(3 if number % 50 else 100):
            table.put(f"group-{number:06}", TOPIC + partition, 1, NOW_S, -1)
    full = sum(table.sizes().values())
    for number in range(5_000):
        if number % 100 != 1:
            table.remove_group(f"group-{number:06}")
    assert len(table) == 150
    assert sum(table.sizes().values()) < full / 10


def test_groups_that_lose_most_of_their_partitions_keep_little_of_their_room() -> None:
    table = OffsetTable()
    keys = range(TOPIC, TOPIC + 50_000)
    table.put_run("group", Columns.of(keys, keys, [NOW_S] * 50_000, [-1] * 50_000))
    for key in keys:
        if key % 50:
            table.remove("group", key)
    assert len(table) == len(table.span("group", 0, END, 50_000)) == 1000
    assert sum(table.sizes().values()) < 64 * 1000


def test_a_commit_for_the_last_partition_there_can_be_takes_no_room_for_those_before() -> None:
    table = OffsetTable()
    tracemalloc.start()
    try:
        for topic in range(1, 1001):
            table.put("group", (topic << 32) + 2**31 - 1, 7, NOW_S, -1)
            table.put("group", topic << 32, 8, NOW_S, -1)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 2000 * 64
    assert table.get("group", TOPIC + 2**31 - 1) == (TOPIC + 2**31 - 1, 7, NOW_S, -1)


@pytest.mark.parametrize(
    ("groups", "partitions"), [(200, 100), (20_000, 1), (2_000, 10), (600, 33)]
)
def test_an_entry_takes_at_most_64_bytes_beside_the_group_id(groups: int, partitions: int) -> None:
    table = OffsetTable()
    for number in range(groups):
        for partition in range(partitions):
            table.put(f"group-{number:016}", TOPIC + partition, number, NOW_S, -1)
    sizes = table.sizes()
    assert len(table) == groups * partitions
    assert sum(sizes.values()) - sizes["group ids"] <= 64 * len(table)
