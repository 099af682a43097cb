"""Subscriptions by a regular expression: what they match, and when it is looked at."""

from __future__ import annotations

import sys
import time

import pytest

from broker import regular_expressions
from broker.coordinator.consumer.topic_patterns import matching
from protocol.errors import ErrorCode, KafkaError
from tests.coordinator.consumer_world import (
    ConsumerWorld,
    FakeTopics,
    assignment_of,
    key_versions,
)


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld(FakeTopics(orders=2, orders_old=1, other=4))


def test_an_expression_must_match_the_whole_name(world: ConsumerWorld) -> None:
    assert world.given(world.join("A", regex="orders")) == {"orders": [0, 1]}
    assert world.group.subscribed_topics() == {"orders"}


def test_what_an_expression_matches_is_written(world: ConsumerWorld) -> None:
    world.join("A", regex="orders.*")
    assert key_versions(world.written) == [5, 16, 4, 3, 7, 6, 8]
    world.restart()
    assert world.group.resolved == {"orders.*": {"orders", "orders_old"}}
    assert world.heartbeat("A", 1).assignment is None
    assert world.written == []


def test_a_new_topic_that_matches_is_read(world: ConsumerWorld) -> None:
    world.join("A", regex="orders.*")
    world.topics.create("orders_new", 1)
    answer = world.heartbeat("A", 1)
    assert world.given(answer) == {"orders": [0, 1], "orders_old": [0], "orders_new": [0]}
    assert key_versions(world.written) == [16, 4, 3, 7, 6, 8]


def test_a_new_topic_that_does_not_match_disturbs_nobody(world: ConsumerWorld) -> None:
    world.join("A", regex="orders.*")
    world.topics.create("invoices", 1)
    assert world.heartbeat("A", 1).member_epoch == 1
    assert world.written == []


def test_names_and_an_expression_add_up(world: ConsumerWorld) -> None:
    answer = world.join("A", "other", "orders", regex="ord.*s")
    assert world.given(answer) == {"other": [0, 1, 2, 3], "orders": [0, 1]}


def test_an_expression_that_nobody_uses_any_more_is_forgotten(world: ConsumerWorld) -> None:
    world.join("A", regex="orders.*")
    world.join("B", regex="orders.*")
    told = world.heartbeat("A", 1, regex="")
    assert world.group.resolved.keys() == {"orders.*"}
    world.heartbeat("A", 1, owned=assignment_of(told))
    world.heartbeat("B", -1)
    assert key_versions(world.written) == [-8, -7, -5, -16, 4, 3]
    assert (world.group.resolved, world.group.metadata) == ({}, {})


def test_members_of_one_expression_share_its_topics(world: ConsumerWorld) -> None:
    world.join("A", regex="orders.*")
    world.join("B", regex="orders.*")
    targets = [world.group.targets[member] for member in "AB"]
    assert sum(len(numbers) for target in targets for numbers in target.values()) == 3
    assert world.group.describe(world.topics).members[0].subscribed_topic_regex == "orders.*"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("(", "missing ): (."),
        ("a(?=b)", "invalid perl operator: (?=."),
        ("\udc80", "it is not UTF-8."),
        ("(?:)" * 2001, "it has 8004 characters, 8000 are allowed."),
        ("(.?.?){1000}", "it needs 18004 instructions, 10000 are allowed."),
    ],
)
def test_an_expression_that_is_not_re2_is_refused_with_the_reason(
    world: ConsumerWorld, expression: str, reason: str
) -> None:
    world.join("B", regex="other")
    with pytest.raises(KafkaError) as error:
        world.join("A", regex=expression)
    assert error.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    shown = expression if len(expression) <= 200 else f"{expression[:200]}..."
    assert str(error.value) == (
        f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}"
    )
    assert set(world.group.members) == {"B"}


def test_without_the_engine_an_expression_is_refused_and_says_what_is_missing(
    world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.join("A", regex="orders.*")
    monkeypatch.setitem(sys.modules, "re2", None)
    regular_expressions._compiled.cache_clear()
    with pytest.raises(KafkaError, match="the broker has no google-re2") as error:
        world.join("B", regex="oth.*")
    assert error.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    # What it matched when the engine was there goes on.
    world.topics.create("orders_new", 1)
    assert world.heartbeat("A", 1).member_epoch == 1
    world.join("C", "other")
    assert world.group.resolved == {"orders.*": {"orders", "orders_old"}}


@pytest.mark.parametrize("expression", ["(x+x+)+y", "(.?){1000}", "(.*.*.*.*.*.*)*z"])
def test_no_expression_holds_up_the_broker(expression: str) -> None:
    names = [f"{'x' * 200}{number}" for number in range(1000)]
    start = time.process_time()
    matching(expression, names)
    assert time.process_time() - start < 0.5
