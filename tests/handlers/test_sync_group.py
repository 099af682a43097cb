"""SyncGroup: what the leader decides reaches every member, and nobody of another generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.group_caller import GroupCaller, Member, Versions, assignment, rebalance, rejoin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.broker_process import BrokerProcess

    NewMember = Callable[..., Member]

SYNC_VERSIONS = range(6)


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3"}


@pytest.mark.parametrize("version", SYNC_VERSIONS)
def test_everybody_gets_the_share_that_the_leader_gave_it(member: NewMember, version: int) -> None:
    versions = Versions(sync=version)
    leader, follower, forgotten = (member(versions=versions) for _ in range(3))
    rebalance(leader, follower, forgotten)
    shares = {leader.member_id: assignment("t", 0), follower.member_id: b"any bytes"}
    rejoin(leader, follower, forgotten)

    follower.send_sync()
    forgotten.send_sync()
    follower.caller.see_nothing_come()
    answers = [leader.sync(shares), follower.synced(), forgotten.synced()]

    assert [answer.error_code for answer in answers] == [0, 0, 0]
    assert [answer.assignment for answer in answers] == [assignment("t", 0), b"any bytes", b""]
    named = ("consumer", "range") if version >= 5 else (None, None)
    assert {(answer.protocol_type, answer.protocol_name) for answer in answers} == {named}
    again = follower.sync()
    assert (again.error_code, again.assignment) == (0, b"any bytes")


def test_who_joins_as_the_second_is_waited_for_before_the_first_is_assigned_anything(
    member: NewMember,
) -> None:
    """It has looked for the coordinator. A heartbeat would tell the first of it seconds later."""
    first, second = member(client_id="one"), member(client_id="two")
    second.caller.call(FindCoordinatorRequest(key=first.group, key_type=0), 3)

    first.enter()
    first.send_sync({first.member_id: assignment("t", 0)})
    second.knock()

    assert first.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    first.send_join()
    assert first.joined().generation_id == second.joined().generation_id == 2


def test_only_the_leader_assigns(member: NewMember) -> None:
    leader, follower = member(), member()
    rebalance(leader, follower)
    rejoin(leader, follower)

    follower.send_sync({follower.member_id: b"mine", leader.member_id: b"yours"})
    answer = leader.sync({leader.member_id: b"right"})

    assert answer.assignment == b"right"
    assert follower.synced().assignment == b""


@pytest.mark.parametrize("version", SYNC_VERSIONS)
def test_another_generation_and_an_unknown_member_get_nothing(
    member: NewMember, version: int
) -> None:
    one = member(versions=Versions(sync=version))
    one.enter()

    for generation in (0, 2, -1):
        answer = one.sync({one.member_id: b"x"}, generation_id=generation)
        assert (answer.error_code, answer.assignment) == (ErrorCode.ILLEGAL_GENERATION, b"")
    for wrong in ("", "somebody"):
        assert one.sync(member_id=wrong).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.sync({one.member_id: b"x"}).assignment == b"x"


@pytest.mark.parametrize("version", SYNC_VERSIONS)
def test_a_group_that_does_not_exist_has_no_such_member_and_one_without_an_id_is_invalid(
    member: NewMember, version: int
) -> None:
    versions = Versions(sync=version)
    stranger, nameless = member(versions=versions), member("", versions=versions)
    facts: dict[str, Any] = {"member_id": "m", "generation_id": 1, "protocol_name": "range"}

    assert stranger.sync(**facts).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert nameless.sync(**facts).error_code == ErrorCode.INVALID_GROUP_ID


def test_version_5_must_name_the_protocol_that_was_agreed_on(member: NewMember) -> None:
    one = member()
    one.enter()

    for wrong in (
        {"protocol_name": "sticky"},
        {"protocol_type": "connect"},
        {"protocol_name": None},
        {"protocol_type": None},
    ):
        answer = one.sync({one.member_id: b"x"}, **wrong)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, wrong
    assert one.sync({one.member_id: b"x"}).error_code == 0


@pytest.mark.parametrize("version", SYNC_VERSIONS)
def test_a_sync_that_waits_is_told_of_the_next_rebalance(member: NewMember, version: int) -> None:
    versions = Versions(sync=version)
    leader, follower, late = (member(versions=versions) for _ in range(3))
    rebalance(leader, follower)
    rejoin(leader, follower)
    follower.send_sync()
    follower.caller.see_nothing_come()

    late.knock()
    leader.hear_of_rebalance()

    assert follower.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader.sync({}).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_is_out_and_the_others_hear_of_it(member: NewMember) -> None:
    """A leader that died between its join and its sync; Apache Kafka waits as long."""
    leader = member(rebalance_ms=500)
    follower = member(rebalance_ms=500)
    rebalance(leader, follower)
    rejoin(leader, follower)

    assert follower.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = follower.join()

    assert (joined.error_code, joined.leader) == (0, follower.member_id)
    assert follower.sync({follower.member_id: b"all"}).assignment == b"all"
    assert leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fenced_instance_gets_nothing(member: NewMember) -> None:
    old, new = member(instance_id="i"), member(instance_id="i")
    rebalance(old)
    new.enter()

    assert old.sync().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert new.sync().error_code == 0


def test_members_live_on_after_a_restart_without_a_rebalance(own_broker: BrokerProcess) -> None:
    own_broker.start()
    members = [Member.connect(own_broker, "g") for _ in range(3)]
    rebalance(*members)
    leader = members[0]
    rejoin(*members)
    for one in members[1:]:
        one.send_sync()
    leader.sync({one.member_id: b"share %d" % at for at, one in enumerate(members)})
    for one in members[1:]:
        one.synced()
    own_broker.kill()

    own_broker.start()

    for at, one in enumerate(members):
        one.close()
        one.caller = GroupCaller(own_broker.host, own_broker.port)
        assert one.heartbeat() == 0
        assert one.sync().assignment == b"share %d" % at
        assert one.heartbeat() == 0
    described = leader.caller.group("g")
    assert (described.group_state, len(described.members)) == ("Stable", 3)
    for one in members:
        one.close()
