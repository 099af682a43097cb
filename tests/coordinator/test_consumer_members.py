"""Static members of a consumer group (KIP-848), and members that are refused."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode, KafkaError
from tests.coordinator.consumer_world import (
    SESSION_MS,
    ConsumerWorld,
    FakeTopics,
    assignment_of,
    key_versions,
    refusal,
)


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld(FakeTopics(t=4, u=2))


# Static members


def test_a_static_member_that_comes_back_gets_its_partitions_and_disturbs_nobody(
    world: ConsumerWorld,
) -> None:
    world.join("A", "t", instance_id="i")
    world.join("B", "t")
    told = world.heartbeat("A", 1, instance_id="i")
    world.heartbeat("A", 1, instance_id="i", owned=assignment_of(told))
    world.heartbeat("B", 2)
    away = world.heartbeat("A", -2, instance_id="i")
    assert (away.member_epoch, key_versions(world.written)) == (-2, [8])
    assert world.heartbeat("B", 2).assignment is None
    back = world.join("A2", "t", instance_id="i")
    assert (back.member_epoch, world.given(back)) == (2, world.given(told))
    assert key_versions(world.written) == [-8, -7, -5, 5, 7, 8, 8]
    assert set(world.group.members) == {"A2", "B"}
    assert world.group.state == "Stable"
    world.restart()
    assert world.given(world.join("A2", "t", instance_id="i")) == world.given(told)


def test_a_static_member_that_does_not_come_back_goes_when_its_session_ends(
    world: ConsumerWorld,
) -> None:
    world.join("A", "t", instance_id="i")
    world.heartbeat("A", -2, instance_id="i")
    world.pass_ms(SESSION_MS)
    assert world.group.state == "Empty"
    assert world.group.static_members == {}


def test_a_static_member_that_leaves_while_it_gives_up_has_given_up(
    world: ConsumerWorld,
) -> None:
    world.join("A", "t", instance_id="i", rebalance_timeout_ms=20_000)
    world.join("B", "t")
    rest = world.given(world.heartbeat("A", 1, instance_id="i"))
    assert rest is not None
    world.heartbeat("A", -2, instance_id="i")
    assert world.given(world.heartbeat("B", 2)) == {"t": sorted({0, 1, 2, 3} - set(rest["t"]))}
    world.pass_ms(30_000)
    assert "A" in world.group.members  # whose session is longer than its rebalance timeout
    assert world.given(world.join("A2", "t", instance_id="i")) == rest


def test_two_live_processes_cannot_be_one_static_member(world: ConsumerWorld) -> None:
    world.join("A", "t", instance_id="i")
    with pytest.raises(KafkaError) as error:
        world.join("A2", "t", instance_id="i")
    assert refusal(error) == (
        ErrorCode.UNRELEASED_INSTANCE_ID,
        "Static member A2 with instance id i cannot join the group because the instance id is "
        "owned by A member.",
    )


def test_a_member_cannot_take_the_place_of_a_static_one_besides_its_own(
    world: ConsumerWorld,
) -> None:
    world.join("A", "t", instance_id="i")
    world.join("B", "t")
    world.heartbeat("A", -2, instance_id="i")
    with pytest.raises(KafkaError) as error:
        world.join("B", "t", instance_id="i")
    assert error.value.code == ErrorCode.UNRELEASED_INSTANCE_ID


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_a_static_member_whose_place_was_taken_is_fenced(world: ConsumerWorld, epoch: int) -> None:
    world.join("A", "t", instance_id="i")
    world.heartbeat("A", -2, instance_id="i")
    world.join("A2", "t", instance_id="i")
    with pytest.raises(KafkaError) as error:
        world.heartbeat("A", epoch, instance_id="i")
    assert refusal(error) == (
        ErrorCode.FENCED_INSTANCE_ID,
        "Static member A with instance id i was fenced by member A2.",
    )


def test_a_process_that_left_for_a_while_cannot_go_on(world: ConsumerWorld) -> None:
    world.join("A", "t", instance_id="i")
    world.topics.grow("t", 6)
    assert world.heartbeat("A", 1, instance_id="i").member_epoch == 2
    world.heartbeat("A", -2, instance_id="i")
    for epoch in (1, 2):
        with pytest.raises(KafkaError) as error:
            world.heartbeat("A", epoch, instance_id="i", owned={})
        assert error.value.code == ErrorCode.FENCED_MEMBER_EPOCH


def test_an_instance_that_is_not_known_is_no_member(world: ConsumerWorld) -> None:
    world.join("A", "t")
    with pytest.raises(KafkaError) as error:
        world.heartbeat("X", 1, instance_id="x")
    assert refusal(error) == (ErrorCode.UNKNOWN_MEMBER_ID, "Instance id x is unknown.")


# Bad requests


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"member_id": "", "epoch": 1}, "MemberId can't be empty."),
        ({"member_id": "", "epoch": 0}, "MemberId can't be empty."),
        ({"epoch": 0, "instance_id": " "}, "InstanceId can't be empty."),
        (
            {"epoch": 0, "names": [], "owned": {}},
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            {"epoch": 0, "names": [], "rebalance_timeout_ms": 1},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"epoch": 0, "names": [], "rebalance_timeout_ms": 1, "owned": {b"1" * 16: {1}}},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"epoch": 0, "rebalance_timeout_ms": 1, "owned": {}},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        ),
        (
            {"epoch": 0, "member_id": "ä" * 16_384},
            "MemberId can't be longer than 32767 bytes.",
        ),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    world: ConsumerWorld, said: dict[str, object], message: str
) -> None:
    with pytest.raises(KafkaError) as error:
        world.heartbeat(**{"member_id": "A", **said})  # type: ignore[arg-type]
    assert refusal(error) == (ErrorCode.INVALID_REQUEST, message)


def test_an_assignor_that_nobody_knows_is_refused(world: ConsumerWorld) -> None:
    with pytest.raises(KafkaError) as error:
        world.join("A", "t", assignor="Uniform")
    assert refusal(error) == (
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        "ServerAssignor Uniform is not supported. Supported assignors: uniform, range.",
    )


def test_the_assignor_is_the_one_that_most_ask_for(world: ConsumerWorld) -> None:
    world.join("A", "t", "u", assignor="range")
    assert world.group.describe(world.topics).assignor_name == "range"
    world.join("B", "t", "u", assignor="range")
    world.join("C", "t", "u", assignor="uniform")
    assert world.group.describe(world.topics).assignor_name == "range"
    told = world.heartbeat("A", 1)
    assert world.given(told) == {"t": [0, 1], "u": [0]}
