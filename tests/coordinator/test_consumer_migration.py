"""Groups with members of both protocols, and groups that change from one to the other (KIP-848)."""

from __future__ import annotations

import pytest

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.classic_members import (
    classic_heartbeat,
    classic_join,
    classic_leave,
    classic_sync,
)
from broker.coordinator.effects import Caller, GroupRules
from broker.coordinator.migration import can_be_downgraded, downgraded, upgraded
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.membership import (
    Assignment,
    Subscription,
    assignment_of,
    encode_assignment,
)
from protocol.logdata.offsets import GroupMetadataValue
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest
from tests.coordinator.consumer_world import CALLER, ConsumerWorld, FakeTopics, key_versions
from tests.coordinator.consumer_world import assignment_of as given_to
from tests.support.subscriptions import encode_subscription

OLD = Caller("old", "/127.0.0.1", 5)
Owned = dict[str, list[int]]


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld(FakeTopics(t=4))


def join_request(
    member_id: str,
    *topics: str,
    owned: Owned | None = None,
    instance_id: str | None = None,
    protocols: tuple[str, ...] = ("range",),
    protocol_type: str = "consumer",
    rebalance_timeout_ms: int = 60_000,
) -> JoinGroupRequest:
    said = encode_subscription(Subscription(list(topics), None, list((owned or {}).items())), 1)
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequest.Protocol(name=name, metadata=said) for name in protocols],
    )


def join(world: ConsumerWorld, request: JoinGroupRequest) -> JoinGroupResponse:
    answer, records = classic_join(world.group, request, OLD, world.topics, world.now_ms)
    world.write(records)
    return answer


def sync(world: ConsumerWorld, member_id: str, generation: int) -> Owned | ErrorCode:
    request = SyncGroupRequest(
        group_id="g", generation_id=generation, member_id=member_id, assignments=[]
    )
    answer = classic_sync(world.group, request, OLD, world.topics, world.now_ms)
    if answer.error_code:
        return ErrorCode(answer.error_code)
    found = assignment_of(answer.assignment)
    assert found is not None
    return dict(found.partitions)


def beat(world: ConsumerWorld, member_id: str, generation: int) -> ErrorCode:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
    return classic_heartbeat(world.group, request, world.now_ms)


def leave(world: ConsumerWorld, member_id: str) -> int:
    request = LeaveGroupRequest(
        group_id="g", members=[LeaveGroupRequest.Member(member_id=member_id)]
    )
    answer, records = classic_leave(world.group, request, OLD, world.topics)
    world.write(records)
    return answer.members[0].error_code


# Both kinds in one group


def test_a_classic_member_shares_with_one_of_the_newer_protocol(world: ConsumerWorld) -> None:
    world.join("A", "t")
    sent_back = join(world, join_request("", "t"))
    assert (sent_back.error_code, world.written) == (ErrorCode.MEMBER_ID_REQUIRED, [])
    answer = join(world, join_request(sent_back.member_id, "t"))
    old = sent_back.member_id
    assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (
        0,
        2,
        "",
        [],
    )
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert sync(world, old, 2) == {}  # A has everything
    assert beat(world, old, 2) == ErrorCode.NONE
    told = world.heartbeat("A", 1)
    world.heartbeat("A", 1, owned=given_to(told))
    assert beat(world, old, 2) == ErrorCode.REBALANCE_IN_PROGRESS  # there is something to get
    assert join(world, join_request(old, "t")).generation_id == 2
    rest = world.given(told)
    assert rest is not None
    assert sync(world, old, 2) == {"t": sorted({0, 1, 2, 3} - set(rest["t"]))}
    assert world.group.state == "Stable"
    a, b = world.group.describe(world.topics).members
    assert (a.member_type, b.member_type) == (1, 0)


def shared(world: ConsumerWorld, *, old: str = "old") -> None:
    """`old` has everything, and A has come."""
    join(world, join_request(old, "t"))
    assert sync(world, old, 1) == {"t": [0, 1, 2, 3]}
    world.join("A", "t")


def test_a_cooperative_member_gives_up_first_and_joins_again(world: ConsumerWorld) -> None:
    shared(world)
    assert beat(world, "old", 1) == ErrorCode.REBALANCE_IN_PROGRESS
    everything = {"t": [0, 1, 2, 3]}
    assert join(world, join_request("old", "t", owned=everything)).generation_id == 1
    rest = sync(world, "old", 1)
    assert isinstance(rest, dict)
    assert len(rest["t"]) == 2
    assert world.given(world.heartbeat("A", 2)) is None
    assert beat(world, "old", 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert join(world, join_request("old", "t", owned=rest)).generation_id == 2
    assert sync(world, "old", 2) == rest
    assert world.given(world.heartbeat("A", 2)) == {"t": sorted({0, 1, 2, 3} - set(rest["t"]))}
    assert world.group.state == "Stable"


def test_an_eager_member_has_given_up_when_it_joins(world: ConsumerWorld) -> None:
    shared(world)
    assert join(world, join_request("old", "t")).generation_id == 2
    assert world.given(world.heartbeat("A", 2)) is not None
    assert world.group.state == "Stable"


def test_a_member_that_is_told_to_join_and_does_not_is_put_out(world: ConsumerWorld) -> None:
    join(world, join_request("old", "t", rebalance_timeout_ms=12_000))
    world.join("A", "t")
    for _ in range(3):
        assert beat(world, "old", 1) == ErrorCode.REBALANCE_IN_PROGRESS
        world.pass_ms(4_000)
    assert beat(world, "old", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.given(world.heartbeat("A", 2)) == {"t": [0, 1, 2, 3]}


def test_the_session_of_a_classic_member_is_its_own(world: ConsumerWorld) -> None:
    join(world, join_request("old", "t"))
    world.restart()
    world.pass_ms(9_999)
    assert beat(world, "old", 1) == ErrorCode.NONE
    world.pass_ms(10_000)
    assert world.group.state == "Empty"


def test_joining_again_is_a_sign_of_life(world: ConsumerWorld) -> None:
    join(world, join_request("old", "t"))
    world.pass_ms(9_999)
    join(world, join_request("old", "t"))
    world.pass_ms(9_999)
    assert beat(world, "old", 1) == ErrorCode.NONE


def test_a_member_may_change_its_mind_about_what_it_speaks(world: ConsumerWorld) -> None:
    shared(world)
    assert join(world, join_request("old", "t", protocols=("sticky",))).protocol_name == "sticky"


def test_a_member_that_was_told_to_join_may_do_so_in_the_newer_protocol(
    world: ConsumerWorld,
) -> None:
    join(world, join_request("old", "t", rebalance_timeout_ms=12_000))
    world.join("A", "t")
    assert beat(world, "old", 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join("old", "t").member_epoch == 2
    world.pass_ms(20_000)
    assert "old" in world.group.members


def test_a_static_member_gets_what_it_was_to_give_up_if_it_is_wanted_no_more(
    world: ConsumerWorld,
) -> None:
    first = join(world, join_request("", "t", instance_id="i")).member_id
    world.join("A", "t")
    everything = {"t": [0, 1, 2, 3]}
    join(world, join_request(first, "t", instance_id="i", owned=everything))
    assert world.group.members[first].current.revoking
    world.heartbeat("A", -1)
    back = join(world, join_request("", "t", instance_id="i"))
    assert sync(world, back.member_id, back.generation_id) == everything


def test_a_classic_member_is_checked_as_in_a_classic_group(world: ConsumerWorld) -> None:
    shared(world)
    assert beat(world, "old", 2) == ErrorCode.ILLEGAL_GENERATION
    assert beat(world, "A", 2) == beat(world, "nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(world, "old", 2) == ErrorCode.ILLEGAL_GENERATION
    assert sync(world, "old", 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert sync(world, "A", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.group.check_commit("old", 1, 5, 0) == ErrorCode.NONE
    assert world.group.check_commit("old", 2, 5, 0) == ErrorCode.ILLEGAL_GENERATION
    assert leave(world, "A") == leave(world, "nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(world, "old") == ErrorCode.NONE
    assert key_versions(world.written) == [-8, -7, -5, 3]


@pytest.mark.parametrize(
    "request_",
    [
        join_request("x", "t", protocol_type="connect"),
        join_request("x", "t", protocols=("sticky",)),
        join_request("x", "t", protocols=()),
    ],
)
def test_a_member_that_speaks_something_else_is_refused(
    world: ConsumerWorld, request_: JoinGroupRequest
) -> None:
    shared(world)
    with pytest.raises(KafkaError) as error:
        join(world, request_)
    assert error.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_garbage_for_a_subscription_is_refused(world: ConsumerWorld) -> None:
    request = join_request("x", "t")
    request.protocols[0].metadata = b"\x00\x01\xff\xff"
    with pytest.raises(KafkaError) as error:
        join(world, request)
    assert error.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_changes_its_protocol_by_a_restart(world: ConsumerWorld) -> None:
    answer = join(world, join_request("", "t", instance_id="i"))
    assert sync(world, answer.member_id, 1) == {"t": [0, 1, 2, 3]}
    new = world.join("A", "t", instance_id="i")
    assert world.given(new) == {"t": [0, 1, 2, 3]}
    assert set(world.group.members) == {"A"}
    back = join(world, join_request("", "t", instance_id="i"))
    assert sync(world, back.member_id, back.generation_id) == {"t": [0, 1, 2, 3]}
    assert set(world.group.members) == {back.member_id}


# From one kind to the other


def classic_group(*names: str, topics: str = "t") -> ClassicGroup:
    """Stable at generation 1; each has two partitions of t."""
    group = ClassicGroup("g", GroupRules(), lambda prefix: prefix)
    early = OLD._replace(version=3)
    for name in names:
        group.join(name, join_request("", topics), early._replace(client_id=name), now_ms=0)
    for name in names[:-1]:  # who was there first has to come again
        group.join(name, join_request(name, topics), early, now_ms=0)
    shares = [
        SyncGroupRequest.Assignment(
            member_id=name,
            assignment=encode_assignment(Assignment([("t", [2 * n, 2 * n + 1])]), 1),
        )
        for n, name in enumerate(names)
    ]
    for name in sorted(names, key=lambda name: name == group.members.leader):
        request = SyncGroupRequest(
            group_id="g",
            generation_id=group.generation_id,
            member_id=name,
            assignments=shares if name == group.members.leader else [],
        )
        group.sync(name, request, early, now_ms=0)
    return group


def test_a_classic_group_with_members_becomes_a_consumer_group(world: ConsumerWorld) -> None:
    classic = classic_group("a", "b")
    assert classic.describe().state == "Stable"
    epoch = classic.generation_id
    group, records = upgraded(classic, world.rules, str, world.topics, world.now_ms)
    assert key_versions(records) == [-2, 5, 5, 3, 7, 7, 6, 8, 8]
    world.group = group
    assert (world.held("a"), world.held("b")) == ({"t": [0, 1]}, {"t": [2, 3]})
    assert beat(world, "a", epoch) == ErrorCode.NONE
    new = world.join("A", "t", caller=CALLER)
    assert (new.member_epoch, world.given(new)) == (epoch + 1, {})
    generations = {}
    for name in "ab":
        assert beat(world, name, epoch) == ErrorCode.REBALANCE_IN_PROGRESS
        generations[name] = join(world, join_request(name, "t")).generation_id
    got: list[object] = [sync(world, name, number) for name, number in generations.items()]
    got.append(world.given(world.heartbeat("A", epoch + 1)))
    assert all(isinstance(held, dict) for held in got), got
    assert sorted(n for held in got if isinstance(held, dict) for n in held["t"]) == [0, 1, 2, 3]
    assert world.group.state == "Stable"


def test_what_an_upgrade_wrote_is_what_is_read(world: ConsumerWorld) -> None:
    group, records = upgraded(classic_group("a", "b"), world.rules, str, world.topics, world.now_ms)
    world.write(records[1:])
    for name, member in group.members.items():
        assert world.group.members[name].current == member.current
        assert repr(world.group.members[name].facts) == repr(member.facts)
    assert world.group.targets == group.targets


def test_what_no_member_can_have_is_not_taken_over(world: ConsumerWorld) -> None:
    classic = classic_group("a", "b")
    a, b = classic.members
    a.assignment = encode_assignment(Assignment([("t", [0, 1, 4]), ("gone", [0])]), 1)
    b.assignment = encode_assignment(Assignment([("t", [1, 2])]), 1)
    world.group, _ = upgraded(classic, world.rules, str, world.topics, 0)
    assert (world.held("a"), world.held("b")) == ({"t": [0, 1]}, {"t": [2]})


def test_what_members_say_that_they_hold_counts_until_they_are_assigned_something(
    world: ConsumerWorld,
) -> None:
    classic = classic_group("a", "b")
    a, b = classic.members
    a.assignment = b.assignment = b""
    said = encode_subscription(Subscription(["t"], None, [("t", [3])]), 1)
    a.protocols = (("range", said),)
    world.group, _ = upgraded(classic, world.rules, str, world.topics, 0)
    assert (world.held("a"), world.held("b")) == ({"t": [3]}, {})


def test_a_group_whose_subscriptions_are_garbage_cannot_be_upgraded(
    world: ConsumerWorld,
) -> None:
    classic = classic_group("a", "b")
    next(iter(classic.members)).protocols = (("range", b"\x00"),)
    with pytest.raises(KafkaError, match="malformed"):
        upgraded(classic, world.rules, str, world.topics, 0)


def test_a_group_that_is_too_large_cannot_be_upgraded(world: ConsumerWorld) -> None:
    with pytest.raises(KafkaError, match="exceeds the consumer group maximum size"):
        upgraded(classic_group("a", "b"), GroupRules(consumer_max_size=1), str, world.topics, 0)


def test_a_group_of_another_kind_of_client_cannot_be_upgraded(world: ConsumerWorld) -> None:
    classic = classic_group("a", "b")
    classic.protocol_type = "connect"
    with pytest.raises(KafkaError, match="does not use the consumer embedded protocol") as error:
        upgraded(classic, world.rules, str, world.topics, 0)
    assert error.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_last_member_of_the_newer_protocol_leaves_a_classic_group_behind(
    world: ConsumerWorld,
) -> None:
    shared(world)
    join(world, join_request("old", "t"))
    world.heartbeat("A", 2)
    held = world.held("old")
    assert not can_be_downgraded(world.group)
    world.heartbeat("A", -1)
    assert can_be_downgraded(world.group)
    *tombstones, (_, value) = downgraded(world.group, world.topics)
    world.write(tombstones)
    assert world.group.state == "Dead"
    assert not can_be_downgraded(world.group)
    assert isinstance(value, GroupMetadataValue)
    classic = ClassicGroup.from_record("g", value, world.rules, str, 0)
    assert (classic.generation_id, classic.protocol_name) == (2, "range")
    request = HeartbeatRequest(group_id="g", generation_id=2, member_id="old")
    assert classic.heartbeat(request, 0) == ErrorCode.NONE
    (member,) = classic.members
    found = assignment_of(member.assignment)
    assert found is not None
    assert (member.member_id, dict(found.partitions)) == ("old", held)


def test_a_classic_group_can_be_too_small_for_who_is_left(world: ConsumerWorld) -> None:
    join(world, join_request("old", "t"))
    world.group.rules = GroupRules(max_size=0)
    assert not can_be_downgraded(world.group)
