"""The expiry of offsets: storage.md 8.5, KIP-211."""

from __future__ import annotations

import pytest

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.effects import GroupRules
from broker.coordinator.expiry import STEP, expired_groups
from broker.coordinator.offsets.commit import Committed
from broker.coordinator.shard_state import ShardState
from protocol.logdata.membership import Subscription
from protocol.logdata.offsets import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    GroupMetadataValue,
)
from tests.support.subscriptions import encode_subscription

HOUR_MS = 3_600_000
COMMIT_MS = 1_700_000_000_000
EMPTY_MS = COMMIT_MS + 5 * HOUR_MS
DAY_MS = 24 * HOUR_MS
OFF = -1
RULES = GroupRules()


def fresh_id(prefix: str) -> str:
    return f"{prefix}-1"


@pytest.fixture
def state() -> ShardState:
    """Group "g" has committed one offset for each of two topics."""
    state = ShardState(RULES, fresh_id)
    for topic in ("read", "left"):
        state.offsets.commit("g", topic, 0, 7, -1, "", COMMIT_MS)
    return state


def gone(state: ShardState, now_ms: int, retention_ms: int = DAY_MS) -> list[str]:
    found = [each for each in expired_groups(state, now_ms, retention_ms) if each is not None]
    assert {group for group, _ in found} <= {"g"}
    return sorted(topic for _, places in found for topic, _ in places)


def classic(
    protocol_type: str = "consumer",
    *,
    members: int = 0,
    since_ms: int = EMPTY_MS,
    says: bytes = b"",
) -> ClassicGroup:
    member = GroupMetadataValue.Member
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation=3,
        protocol="range" if members else None,
        leader="m0" if members else None,
        current_state_timestamp=since_ms,
        members=[
            member(
                member_id=f"m{number}",
                group_instance_id=None,
                client_id="c",
                client_host="/127.0.0.1",
                rebalance_timeout=60_000,
                session_timeout=10_000,
                subscription=says or encode_subscription(Subscription(["read"])),
                assignment=b"",
            )
            for number in range(members)
        ],
    )
    return ClassicGroup.from_record("g", value, RULES, fresh_id, 0)


def test_offsets_of_a_group_without_members_ever_expire_by_their_commit(state: ShardState) -> None:
    assert gone(state, COMMIT_MS + DAY_MS - 1) == []
    assert gone(state, COMMIT_MS + DAY_MS) == ["left", "read"]


def test_offsets_of_an_empty_group_expire_by_the_time_it_became_empty(state: ShardState) -> None:
    state.groups["g"] = classic()
    assert gone(state, EMPTY_MS + DAY_MS - 1) == []
    assert gone(state, EMPTY_MS + DAY_MS) == ["left", "read"]


def test_an_empty_group_that_does_not_know_since_when_goes_by_the_commits(
    state: ShardState,
) -> None:
    state.groups["g"] = classic(since_ms=-1)
    assert gone(state, COMMIT_MS + DAY_MS - 1) == []
    assert gone(state, COMMIT_MS + DAY_MS) == ["left", "read"]


def test_a_stable_group_loses_the_topics_that_no_member_reads(state: ShardState) -> None:
    state.groups["g"] = classic(members=2)
    assert gone(state, COMMIT_MS + DAY_MS - 1) == []
    assert gone(state, COMMIT_MS + DAY_MS) == ["left"]


def test_a_group_that_rebalances_loses_nothing(state: ShardState) -> None:
    group = state.groups["g"] = classic(members=2)
    group.state = type(group.state).PREPARING_REBALANCE
    assert gone(state, COMMIT_MS + 100 * DAY_MS) == []


@pytest.mark.parametrize(
    ("protocol_type", "says"), [("connect", b""), ("consumer", b"\x00\x01garbage")]
)
def test_members_that_read_nobody_knows_what_lose_nothing(
    state: ShardState, protocol_type: str, says: bytes
) -> None:
    state.groups["g"] = classic(protocol_type, members=1, says=says)
    assert gone(state, COMMIT_MS + 100 * DAY_MS) == []


def test_a_consumer_group_loses_the_topics_that_no_member_reads(state: ShardState) -> None:
    group = state.groups["g"] = ConsumerGroup("g", RULES, fresh_id)
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        subscribed_topic_names=["read"],
        subscribed_topic_regex="",
        rebalance_timeout_ms=60_000,
        server_assignor=None,
    )
    group.replay(ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), member, 0)
    assert gone(state, COMMIT_MS + DAY_MS - 1) == []
    assert gone(state, COMMIT_MS + DAY_MS) == ["left"]


def test_an_offset_that_an_open_transaction_may_change_stays(state: ShardState) -> None:
    state.offsets.add_pending(7, 10, "g", "left", 0, Committed(9))
    assert gone(state, COMMIT_MS + DAY_MS) == ["read"]
    state.offsets.complete(7, commit=False)
    assert gone(state, COMMIT_MS + DAY_MS) == ["left", "read"]


@pytest.mark.parametrize("retention_ms", [OFF, 0])
def test_nothing_expires_without_a_retention(state: ShardState, retention_ms: int) -> None:
    assert gone(state, COMMIT_MS + 10_000 * DAY_MS, retention_ms) == []


@pytest.mark.parametrize("retention_ms", [OFF, DAY_MS, 100 * DAY_MS])
def test_a_time_that_came_with_the_commit_takes_the_place_of_the_retention(
    state: ShardState, retention_ms: int
) -> None:
    end_ms = COMMIT_MS + 2 * DAY_MS
    state.offsets.remove("g", "read", 0)
    state.offsets.commit("g", "left", 0, 8, -1, "", COMMIT_MS, end_ms)
    state.groups["g"] = classic(since_ms=COMMIT_MS + 3 * DAY_MS)
    assert gone(state, end_ms - 1, retention_ms) == []
    assert gone(state, end_ms, retention_ms) == ["left"]


def test_a_topic_that_is_read_stays_whatever_time_came_with_the_commit(state: ShardState) -> None:
    for topic in ("read", "left"):
        state.offsets.commit("g", topic, 0, 8, -1, "", COMMIT_MS, COMMIT_MS + 1)
    state.groups["g"] = classic(members=1)
    assert gone(state, COMMIT_MS + 1, OFF) == ["left"]


def test_a_look_is_made_in_small_steps_and_finds_all_while_offsets_are_removed() -> None:
    state = ShardState(RULES, fresh_id)
    offsets = state.offsets
    offsets.commit_run("large", "t", range(20_000), [1] * 20_000, [-1] * 20_000, COMMIT_MS)
    for number in range(5_000):
        offsets.commit(f"group-{number}", "t", number, 1, -1, "", COMMIT_MS + number % 2)
    steps = 0
    for found in expired_groups(state, COMMIT_MS + DAY_MS, DAY_MS):
        steps += 1
        if found is not None:
            assert len(found[1]) <= STEP
            for topic, partition in found[1]:
                offsets.remove(found[0], topic, partition)
    # A commit time is exact to the second: a millisecond later is the same.
    assert len(offsets) == 0
    assert steps >= 5_000 + 20_000 // STEP


def test_a_look_that_finds_nothing_lets_go_of_the_loop_all_the_same() -> None:
    state = ShardState(RULES, fresh_id)
    # One old entry among many has all of its group looked at.
    state.groups["large"] = classic(members=1)
    state.offsets.commit_run("large", "read", range(20_000), [1] * 20_000, [-1] * 20_000, 0)
    for number in range(5_000):
        state.offsets.commit(f"group-{number}", "t", number, 1, -1, "", COMMIT_MS)
    steps = list(expired_groups(state, COMMIT_MS, DAY_MS))
    assert set(steps) == {None}
    assert len(steps) >= 25_000 // STEP
