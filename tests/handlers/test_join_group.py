"""JoinGroup: who is let in, with which id, and what leader and followers are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import (
    BEFORE_STATIC,
    OLDEST,
    GroupCaller,
    Versions,
    assignment,
    rebalance,
    subscription,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.group_caller import Member

    NewMember = Callable[..., Member]

JOIN_VERSIONS = range(10)


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3", "group.max.size": "3"}


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_the_only_member_leads(member: NewMember, version: int) -> None:
    metadata = subscription("a", "b")
    one = member(versions=Versions(join=version), protocols={"range": metadata}, client_id="me")

    joined = one.enter()

    assert joined.generation_id == 1
    assert joined.protocol_name == "range"
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("me-")
    assert len(joined.member_id) == len("me-") + 36
    assert not joined.skip_assignment
    ((found),) = joined.members
    assert (found.member_id, found.group_instance_id) == (one.member_id, None)
    assert found.metadata == metadata


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_from_version_4_a_member_is_sent_back_for_an_id(member: NewMember, version: int) -> None:
    one = member(versions=Versions(join=version))

    first = one.join()

    if version < 4:
        assert first.error_code == 0
        return
    assert (first.error_code, first.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
    assert first.member_id
    assert (first.leader, first.members) == ("", [])
    assert first.protocol_name == (None if version >= 7 else "")
    second = one.join()
    assert (second.error_code, second.member_id) == (0, first.member_id)


def test_an_id_that_was_given_out_is_good_for_any_client_and_an_invented_one_for_none(
    member: NewMember,
) -> None:
    first, other, strange = member(client_id="a"), member(client_id="b"), member()
    first.join()
    other.member_id = first.member_id
    strange.member_id = "member-00000000-0000-0000-0000-000000000000"

    assert other.join().error_code == 0
    refused = strange.join()
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused.member_id == strange.member_id


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_an_id_in_a_group_that_does_not_exist_is_unknown(member: NewMember, version: int) -> None:
    one = member(versions=Versions(join=version))
    one.member_id = "somebody"

    refused = one.join()

    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (refused.generation_id, refused.leader, refused.members) == (-1, "", [])
    assert one.caller.group(one.group).group_state == "Dead"


def test_members_of_the_oldest_and_the_newest_version_meet_in_one_group(member: NewMember) -> None:
    old = member(
        versions=OLDEST,
        protocols={"roundrobin": b"old-roundrobin", "range": b"old-range"},
        session_ms=10_000,
    )
    new = member(protocols={"sticky": b"new-sticky", "range": b"new-range"})
    assert old.enter().protocol_name == "roundrobin"

    new.knock()
    old.hear_of_rebalance()
    old.send_join()
    led, followed = old.joined(), new.joined()

    assert (led.generation_id, followed.generation_id) == (2, 2)
    assert led.protocol_name == followed.protocol_name == "range"
    assert led.leader == followed.leader == old.member_id
    assert followed.members == []
    assert {one.member_id: one.metadata for one in led.members} == {
        old.member_id: b"old-range",
        new.member_id: b"new-range",
    }


def test_most_votes_choose_among_what_all_members_speak(member: NewMember) -> None:
    likes = [("a", "b", "c"), ("b", "c", "a"), ("b", "a")]
    members = [member(protocols=dict.fromkeys(names, b"")) for names in likes]

    rebalance(*members)

    assert {one.protocol_name for one in members} == {"b"}


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_who_speaks_nothing_that_all_others_do_stays_out(member: NewMember, version: int) -> None:
    rebalance(member(protocols={"range": b"", "sticky": b""}))
    versions = Versions(join=version)

    strangers: tuple[dict[str, Any], ...] = (
        {"protocols": {"roundrobin": b""}},
        {"protocols": {"range": b""}, "protocol_type": "connect"},
        {"protocols": {}},
    )
    for facts in strangers:
        stranger = member(versions=versions, **facts)
        refused = stranger.join()
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (refused.generation_id, refused.members) == (-1, [])


@pytest.mark.parametrize("facts", [{"protocols": {}}, {"protocol_type": ""}])
def test_the_first_member_must_speak_something_of_some_type(
    member: NewMember, facts: dict[str, object]
) -> None:
    assert member(**facts).join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", JOIN_VERSIONS)
@pytest.mark.parametrize("session_ms", [-1, 0, 5999, 1_800_001, 2**31 - 1])
def test_a_session_outside_of_the_limits_is_refused(
    member: NewMember, version: int, session_ms: int
) -> None:
    refused = member(versions=Versions(join=version), session_ms=session_ms).join()

    assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_group_without_an_id_cannot_be_joined(member: NewMember, version: int) -> None:
    refused = member("", versions=Versions(join=version)).join()

    assert refused.error_code == ErrorCode.INVALID_GROUP_ID
    assert refused.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", [0, 4, 9])
def test_a_full_group_lets_nobody_in_and_goes_on(member: NewMember, version: int) -> None:
    members = [member() for _ in range(3)]
    rebalance(*members)

    refused = member(versions=Versions(join=version)).join()
    if refused.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        pytest.fail("a client was given an id for a group that is full")

    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [one.heartbeat() for one in members] == [0, 0, 0]


def test_a_follower_that_joins_again_unchanged_is_told_the_same_and_a_leader_starts_anew(
    member: NewMember,
) -> None:
    one, two = member(), member()
    leader = rebalance(one, two)
    follower = two if leader is one else one

    again = follower.join()
    assert (again.error_code, again.generation_id, again.members) == (0, 2, [])
    assert leader.heartbeat() == 0
    leader.send_join()
    leader.caller.see_nothing_come()

    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    follower.send_join()
    assert {leader.joined().generation_id, follower.joined().generation_id} == {3}


def test_a_follower_with_other_metadata_starts_a_rebalance(member: NewMember) -> None:
    one, two = member(), member()
    leader = rebalance(one, two)
    follower = two if leader is one else one
    follower.protocols = {"range": subscription("other")}

    follower.send_join()
    follower.caller.see_nothing_come()
    leader.hear_of_rebalance()
    leader.send_join()

    told = {found.member_id: found.metadata for found in leader.joined().members}
    assert told[follower.member_id] == subscription("other")
    follower.joined()


def test_who_does_not_come_again_in_time_is_out(member: NewMember) -> None:
    """The time is that of the most patient member."""
    gone, stays = member(rebalance_ms=300, session_ms=10_000), member(rebalance_ms=300)
    rebalance(gone)

    stays.knock()
    joined = stays.joined()

    assert (joined.error_code, joined.generation_id) == (0, 2)
    assert [found.member_id for found in joined.members] == [stays.member_id]
    assert gone.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert gone.join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_version_0_has_the_session_to_come_again(member: NewMember) -> None:
    """It has no rebalance timeout; -1 or 0 would put the first member out at once."""
    old, new = member(versions=OLDEST, session_ms=6000), member(rebalance_ms=1)
    old.enter()
    old.sync()

    new.knock()
    new.caller.see_nothing_come()
    old.send_join()

    assert {old.joined().generation_id, new.joined().generation_id} == {2}


# Static members


def test_a_static_member_needs_no_second_request(member: NewMember) -> None:
    one = member(instance_id="node-1")

    joined = one.join()

    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.member_id.startswith("node-1-")
    assert joined.members[0].group_instance_id == "node-1"


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_leader_that_comes_back_finds_its_place_without_a_rebalance(
    member: NewMember, version: int
) -> None:
    versions = Versions(join=version)
    old = member(instance_id="leader", versions=versions)
    follower = member(instance_id="follower", versions=versions)
    rebalance(old, follower)
    new = member(instance_id="leader", versions=versions)

    joined = new.join()

    assert (joined.error_code, joined.generation_id) == (0, 2)
    assert new.member_id != old.member_id
    # It must not assign: what it sent would reach nobody.
    if version >= 9:
        assert (joined.skip_assignment, joined.leader) == (True, new.member_id)
        assert len(joined.members) == 2
    else:
        assert (joined.skip_assignment, joined.leader) == (False, old.member_id)
        assert joined.members == []
    assert follower.heartbeat() == 0
    assert old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert old.join().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert new.sync().error_code == 0


def test_a_static_follower_that_comes_back_gets_its_assignment(member: NewMember) -> None:
    leader, old = member(instance_id="one"), member(instance_id="two")
    share = assignment("t", 1, 2)
    leader.enter()
    old.knock()
    leader.hear_of_rebalance()
    leader.send_join()
    leader.joined()
    old.joined()
    leader.sync({old.member_id: share})
    assert old.sync().assignment == share
    new = member(instance_id="two")

    joined = new.join()

    assert (joined.generation_id, joined.leader) == (2, leader.member_id)
    assert new.sync().assignment == share
    assert leader.heartbeat() == 0


def test_an_instance_with_the_id_of_another_is_fenced(member: NewMember) -> None:
    one = member(instance_id="one")
    rebalance(one)
    impostor = member(instance_id="one")
    impostor.member_id = "one-00000000-0000-0000-0000-000000000000"

    assert impostor.join().error_code == ErrorCode.FENCED_INSTANCE_ID
    impostor.instance_id = "two"
    assert impostor.join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.heartbeat() == 0


# The two protocols


def test_a_consumer_group_that_lives_takes_no_classic_member_and_an_empty_one_does(
    groups: GroupCaller, topic: str, group: str, member: NewMember
) -> None:
    """Without a subscription that the broker can read; Kafka 4 admits those that it can read."""
    groups.create_topic(topic)
    new = ConsumerMember(groups, group, topics=[topic], member_id="new")
    new.join()
    old = member(versions=BEFORE_STATIC, protocols={"range": b"garbage"})

    assert old.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    groups.commit(group, {(topic, 0): 5}, generation=new.epoch, member_id="new")
    new.leave()
    assert old.enter().generation_id >= 1

    assert groups.group(group).group_state == "CompletingRebalance"
    assert groups.committed(group, [(topic, 0)])[topic, 0].offset == 5
