"""DescribeGroups: classic groups as administrators see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import GroupCaller, assignment, rebalance, subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.group_caller import Member

    NewMember = Callable[..., Member]

VERSIONS = range(7)
UNKNOWN_IS_AN_ERROR_SINCE = 6


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stable_group_shows_its_members_with_what_they_want_and_have(
    groups: GroupCaller, group: str, member: NewMember, version: int
) -> None:
    metadata = subscription("a", "b")
    static = member(instance_id="i", client_id="c", protocols={"range": metadata})
    rebalance(static)
    static.send_join()
    static.joined()
    static.sync({static.member_id: assignment("a", 0)})

    found = groups.group(group, version)

    assert (found.error_code, found.error_message, found.group_id) == (0, None, group)
    assert (found.group_state, found.protocol_type) == ("Stable", "consumer")
    assert found.protocol_data == "range"
    (shown,) = found.members
    assert shown.member_id == static.member_id
    assert shown.group_instance_id == ("i" if version >= 4 else None)
    assert (shown.client_id, shown.client_host) == ("c", "/127.0.0.1")
    assert shown.member_metadata == metadata
    assert shown.member_assignment == assignment("a", 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_members_have_neither_metadata_nor_assignment_until_the_group_is_stable(
    groups: GroupCaller, group: str, member: NewMember, version: int
) -> None:
    one, two = member(), member()
    one.enter()
    completing = groups.group(group, version)
    one.sync({one.member_id: b"x"})
    two.knock()
    one.hear_of_rebalance()
    preparing = groups.group(group, version)

    assert completing.group_state == "CompletingRebalance"
    assert preparing.group_state == "PreparingRebalance"
    for found in (completing, preparing):
        assert (found.protocol_type, found.protocol_data) == ("consumer", "")
        assert {(shown.member_metadata, shown.member_assignment) for shown in found.members} == {
            (b"", b"")
        }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_that_does_not_exist_is_dead_and_from_version_6_an_error(
    groups: GroupCaller, group: str, version: int
) -> None:
    found = groups.group(group, version)

    assert (found.group_id, found.group_state, found.members) == (group, "Dead", [])
    if version < UNKNOWN_IS_AN_ERROR_SINCE:
        assert found.error_code == 0
    else:
        assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert found.error_message == f"Group {group} not found."


def test_several_groups_come_in_the_order_of_the_question(
    groups: GroupCaller, group: str, member: NewMember
) -> None:
    rebalance(member())
    names = ["nobody", group, "", "none"]

    answer = groups.call(DescribeGroupsRequest(groups=names), 5)

    assert [found.group_id for found in answer.groups] == names
    assert [found.group_state for found in answer.groups][:2] == ["Dead", "Stable"]
    assert groups.call(DescribeGroupsRequest(groups=[]), 5).groups == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_of_the_newer_kind_is_none_of_these(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic)
    ConsumerMember(groups, group, topics=[topic], member_id="m").join()

    found = groups.group(group, version)

    assert (found.group_state, found.members) == ("Dead", [])
    if version < UNKNOWN_IS_AN_ERROR_SINCE:
        assert found.error_code == 0
    else:
        assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert found.error_message == f"Group {group} is not a classic group."


def test_operations_that_nobody_asked_for_are_not_told(
    groups: GroupCaller, group: str, member: NewMember
) -> None:
    rebalance(member())

    assert groups.group(group).authorized_operations == -(2**31)
