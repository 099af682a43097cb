"""The assignors on the server's side: everything is given, evenly, and little moves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.consumer.assignors import ASSIGNORS, Partitions, Subscriber, range_, uniform

if TYPE_CHECKING:
    from broker.coordinator.consumer.assignors import Assignor

TOPICS = [bytes([number]) * 16 for number in range(5)]
both = pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, Subscriber], dict[bytes, int]]:
    """Members with any subscriptions, and targets of another time: of topics that they have left,
    of partitions that are gone, and of what others have too."""
    counts = {topic: draw(st.integers(1, 12)) for topic in TOPICS}
    topics = st.lists(st.sampled_from(TOPICS), unique=True)
    targets = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 14)))
    members = {
        f"m{number}": Subscriber(draw(topics), draw(targets))
        for number in range(draw(st.integers(1, 7)))
    }
    return members, counts


def load(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def moved(before: dict[str, Partitions], after: dict[str, Partitions]) -> int:
    """Partitions that are somewhere where they were not."""
    return sum(
        len(numbers - before.get(member, {}).get(topic, frozenset()))
        for member, partitions in after.items()
        for topic, numbers in partitions.items()
    )


def with_targets(
    members: dict[str, Subscriber], targets: dict[str, Partitions]
) -> dict[str, Subscriber]:
    return {name: said._replace(target=targets.get(name, {})) for name, said in members.items()}


@both
@given(group=groups())
def test_each_partition_goes_to_exactly_one_subscriber(
    assign: Assignor, group: tuple[dict[str, Subscriber], dict[bytes, int]]
) -> None:
    members, counts = group
    assigned = assign(members, counts)
    assert assigned.keys() == members.keys()
    given_out = [
        (topic, number)
        for member, partitions in assigned.items()
        for topic, numbers in partitions.items()
        for number in numbers
        if topic in members[member].topic_ids
    ]
    subscribed = {topic for said in members.values() for topic in said.topic_ids}
    wanted = [(topic, number) for topic in subscribed for number in range(counts[topic])]
    assert sorted(given_out) == sorted(wanted)
    assert all(numbers for partitions in assigned.values() for numbers in partitions.values())


@given(group=groups())
def test_uniform_leaves_nobody_two_behind_another_who_could_give(
    group: tuple[dict[str, Subscriber], dict[bytes, int]],
) -> None:
    members, counts = group
    assigned = uniform(members, counts)
    for giver, partitions in assigned.items():
        for taker, said in members.items():
            if not partitions.keys().isdisjoint(said.topic_ids):
                assert load(partitions) - load(assigned[taker]) < 2, (giver, taker)


@given(group=groups(), topics=st.lists(st.sampled_from(TOPICS), unique=True))
def test_uniform_is_even_where_all_subscribe_to_the_same(
    group: tuple[dict[str, Subscriber], dict[bytes, int]], topics: list[bytes]
) -> None:
    members, counts = group
    members = {name: said._replace(topic_ids=topics) for name, said in members.items()}
    loads = [load(partitions) for partitions in uniform(members, counts).values()]
    assert max(loads) - min(loads) <= 1


@both
@given(group=groups())
def test_what_is_settled_stays(
    assign: Assignor, group: tuple[dict[str, Subscriber], dict[bytes, int]]
) -> None:
    members, counts = group
    if assign is range_:  # whose order of members is of one set of topics
        members = {name: said._replace(topic_ids=TOPICS) for name, said in members.items()}
    first = assign(members, counts)
    assert assign(with_targets(members, first), counts) == first


@pytest.mark.parametrize("size", [1, 2, 3, 7, 12])
def test_uniform_moves_no_more_than_a_new_member_needs(size: int) -> None:
    counts = {topic: 10 + n for n, topic in enumerate(TOPICS)}
    members = {f"m{n}": Subscriber(TOPICS, {}) for n in range(size)}
    first = uniform(members, counts)
    members["new"] = Subscriber(TOPICS, {})
    second = uniform(with_targets(members, first), counts)
    assert moved(first, second) == load(second["new"]) == sum(counts.values()) // (size + 1)


@pytest.mark.parametrize("size", [2, 3, 7, 12])
def test_uniform_moves_no_more_than_what_a_member_leaves_behind(size: int) -> None:
    counts = {topic: 10 + n for n, topic in enumerate(TOPICS)}
    members = {f"m{n}": Subscriber(TOPICS, {}) for n in range(size)}
    first = uniform(members, counts)
    del members["m0"]
    second = uniform(with_targets(members, first), counts)
    assert moved(first, second) == load(first["m0"])


def test_uniform_takes_from_each_topic_in_turn() -> None:
    counts = {TOPICS[0]: 4, TOPICS[1]: 4}
    first = uniform({"a": Subscriber(TOPICS[:2], {})}, counts)
    members = {"a": Subscriber(TOPICS[:2], first["a"]), "b": Subscriber(TOPICS[:2], {})}
    assert {topic: len(n) for topic, n in uniform(members, counts)["b"].items()} == {
        TOPICS[0]: 2,
        TOPICS[1]: 2,
    }


@given(group=groups())
def test_range_gives_runs_of_neighbours_as_even_as_can_be(
    group: tuple[dict[str, Subscriber], dict[bytes, int]],
) -> None:
    members, counts = group
    assigned = range_(members, counts)
    for topic in TOPICS:
        runs = [
            sorted(assigned[name].get(topic, ()))
            for name, said in members.items()
            if topic in said.topic_ids
        ]
        assert all(run == list(range(run[0], run[-1] + 1)) for run in runs if run)
        assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1


@given(group=groups())
def test_range_gives_the_same_partitions_of_topics_that_are_joined(
    group: tuple[dict[str, Subscriber], dict[bytes, int]],
) -> None:
    members, _ = group
    members = {name: said._replace(topic_ids=TOPICS) for name, said in members.items()}
    for partitions in range_(members, dict.fromkeys(TOPICS, 9)).values():
        assert len(set(partitions.values())) <= 1


def test_range_keeps_the_order_of_members_and_puts_new_ones_last() -> None:
    members = {name: Subscriber([TOPICS[0]], {}) for name in ("m", "z")}
    first = range_(members, {TOPICS[0]: 6})
    assert first["m"] == {TOPICS[0]: {0, 1, 2}}
    members["a"] = Subscriber([TOPICS[0]], {})
    second = range_(with_targets(members, first), {TOPICS[0]: 6})
    assert [second[name][TOPICS[0]] for name in "mza"] == [{0, 1}, {2, 3}, {4, 5}]


def test_range_orders_static_members_by_their_instances() -> None:
    members = {
        "x": Subscriber([TOPICS[0]], {}, "2"),
        "y": Subscriber([TOPICS[0]], {}, "1"),
    }
    assert range_(members, {TOPICS[0]: 2})["y"] == {TOPICS[0]: {0}}


@both
@pytest.mark.parametrize("subscribed", [100, 30])
def test_a_thousand_members_share_ten_thousand_partitions_within_half_a_second(
    assign: Assignor, subscribed: int
) -> None:
    counts = {number.to_bytes(16, "big"): 100 for number in range(100)}
    topics = list(counts)
    members = {
        f"m{n}": Subscriber([topics[(n + k) % 100] for k in range(subscribed)], {})
        for n in range(1000)
    }
    start = time.process_time()
    first = assign(members, counts)
    members["new"] = Subscriber(topics[:subscribed], {})
    assign(with_targets(members, first), counts)
    assert time.process_time() - start < 1  # both
