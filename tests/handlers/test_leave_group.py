"""LeaveGroup: members go, and the others share what they had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.offsets import GroupMetadataKey, GroupMetadataValue
from protocol.messages.leave_group import LeaveGroupRequest
from tests.support.group_caller import GroupCaller, Versions, rebalance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.group_caller import Member

    NewMember = Callable[..., Member]

VERSIONS = range(6)


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3"}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_last_member_that_leaves_empties_the_group(
    groups: GroupCaller, group: str, member: NewMember, version: int
) -> None:
    one = member(versions=Versions(leave=version))
    rebalance(one)

    left = one.leave()

    assert left.error_code == 0
    if version >= 3:
        (entry,) = left.members
        assert (entry.member_id, entry.group_instance_id, entry.error_code) == (
            one.member_id,
            None,
            0,
        )
    described = groups.group(group)
    assert (described.group_state, described.protocol_type) == ("Empty", "consumer")
    assert one.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    ((key, value),) = groups.group_log(group)[-1]
    assert key == GroupMetadataKey(group=group)
    assert isinstance(value, GroupMetadataValue)
    assert (value.members, value.protocol, value.leader) == ([], None, None)
    assert value.generation == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_the_others_hear_of_it_and_share_anew(member: NewMember, version: int) -> None:
    one, two = (member(versions=Versions(leave=version)) for _ in range(2))
    rebalance(one, two)

    one.leave()

    two.hear_of_rebalance()
    joined = two.join()
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 3, two.member_id)


@pytest.mark.parametrize("version", VERSIONS)
def test_who_is_no_member_cannot_leave(member: NewMember, group: str, version: int) -> None:
    one = member(versions=Versions(leave=version))
    nowhere = member(f"not-{group}", versions=Versions(leave=version))
    rebalance(one)

    for left in (one.leave(member_id="somebody"), nowhere.leave(member_id=one.member_id)):
        codes = [left.error_code, *(entry.error_code for entry in left.members)]
        assert ErrorCode.UNKNOWN_MEMBER_ID in codes
        # The code is at the top where there is no list, and in the list where there is one.
        assert left.error_code == 0 or version < 3
    assert one.heartbeat() == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_without_an_id_is_invalid(member: NewMember, version: int) -> None:
    left = member("", versions=Versions(leave=version)).leave(member_id="m")

    codes = {left.error_code, *(entry.error_code for entry in left.members)} - {0}
    assert codes == {ErrorCode.INVALID_GROUP_ID}


def test_several_leave_at_once_each_with_its_own_code(
    groups: GroupCaller, group: str, member: NewMember
) -> None:
    static = [member(instance_id=f"i{number}") for number in range(3)]
    dynamic = member()
    rebalance(*static, dynamic)
    leaving = LeaveGroupRequest.Member

    answer = groups.call(
        LeaveGroupRequest(
            group_id=group,
            members=[
                # An administrator knows instances and not the ids of their members.
                leaving(member_id="", group_instance_id="i0", reason="moved"),
                leaving(member_id=static[1].member_id, group_instance_id="i1"),
                leaving(member_id="wrong", group_instance_id="i2"),
                leaving(member_id="", group_instance_id="i9"),
                leaving(member_id=dynamic.member_id),
                leaving(member_id="nobody"),
            ],
        ),
        5,
    )

    assert answer.error_code == 0
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in answer.members] == [
        ("", "i0", 0),
        (static[1].member_id, "i1", 0),
        ("wrong", "i2", ErrorCode.FENCED_INSTANCE_ID),
        ("", "i9", ErrorCode.UNKNOWN_MEMBER_ID),
        (dynamic.member_id, None, 0),
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert static[2].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert [found.group_instance_id for found in groups.group(group).members] == ["i2"]


def test_who_leaves_while_its_join_waits_is_told_that_it_is_unknown(
    groups: GroupCaller, group: str, member: NewMember
) -> None:
    one, two = member(), member()
    rebalance(one)
    two.knock()
    two.caller.see_nothing_come()
    leaving = LeaveGroupRequest.Member(member_id=two.member_id)

    groups.call(LeaveGroupRequest(group_id=group, members=[leaving]), 5)

    assert two.joined().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.join().generation_id == 2


def test_who_was_given_an_id_and_never_joined_may_give_it_back(
    groups: GroupCaller, group: str, member: NewMember
) -> None:
    one = member()
    assert one.join().error_code == ErrorCode.MEMBER_ID_REQUIRED

    left = one.leave()

    assert [entry.error_code for entry in left.members] == [0]
    assert one.join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
