"""ConsumerGroupDescribe: groups of the newer protocol, member by member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import GroupCaller, Member, rebalance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VERSIONS = range(2)
Group = ConsumerGroupDescribeResponse.Group


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3"}


def describe(groups: GroupCaller, *names: str, version: int = 1) -> list[Group]:
    request = ConsumerGroupDescribeRequest(
        group_ids=list(names), include_authorized_operations=False
    )
    found: list[Group] = groups.call(request, version).groups
    return found


def shares(assignment: Group.Member.Assignment) -> dict[tuple[bytes, str], list[int]]:
    return {
        (topic.topic_id, topic.topic_name): sorted(topic.partitions)
        for topic in assignment.topic_partitions
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_shows_what_each_member_has_and_is_to_have(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    topic_id = groups.create_topic(topic, partitions=2)
    one = ConsumerMember(groups, group, topics=[topic], member_id="a", instance_id="i")
    two = ConsumerMember(groups, group, topics=[topic], member_id="b")
    one.join(rack_id="r")
    (alone,) = describe(groups, group, version=version)
    two.join()
    (both,) = describe(groups, group, version=version)

    assert (alone.error_code, alone.error_message, alone.group_id) == (0, None, group)
    assert (alone.group_state, alone.group_epoch, alone.assignment_epoch) == ("Stable", 1, 1)
    assert alone.assignor_name == "uniform"
    (shown,) = alone.members
    assert (shown.member_id, shown.instance_id, shown.rack_id) == ("a", "i", "r")
    assert (shown.member_epoch, shown.client_id) == (1, "wire")
    assert shown.client_host == "/127.0.0.1"
    assert (shown.subscribed_topic_names, shown.subscribed_topic_regex or "") == ([topic], "")
    assert shares(shown.assignment) == shares(shown.target_assignment)
    assert shares(shown.assignment) == {(topic_id, topic): [0, 1]}
    assert shown.member_type == (1 if version >= 1 else -1)

    assert (both.group_state, both.group_epoch, both.assignment_epoch) == ("Reconciling", 2, 2)
    by_id = {member.member_id: member for member in both.members}
    target = [shares(by_id[name].target_assignment)[topic_id, topic] for name in "ab"]
    assert sorted(target) == [[0], [1]]
    assert shares(by_id["a"].assignment) == {(topic_id, topic): [0, 1]}
    assert shares(by_id["b"].assignment) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_without_members_is_empty(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic)
    one = ConsumerMember(groups, group, topics=[topic], member_id="a")
    one.join()
    one.leave()

    (found,) = describe(groups, group, version=version)

    assert (found.error_code, found.group_state, found.members) == (0, "Empty", [])


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_consumer_group_is_not_found(
    groups: GroupCaller,
    topic: str,
    group: str,
    member: Callable[..., Member],
    version: int,
) -> None:
    groups.create_topic(topic)
    rebalance(member())
    groups.commit(f"{group}-simple", {(topic, 0): 5})
    names = ["nobody", group, "", f"{group}-simple"]

    found = describe(groups, *names, version=version)

    assert [one.group_id for one in found] == names
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert [one.error_code for one in found] == [
        missing,
        missing,
        ErrorCode.INVALID_GROUP_ID,
        missing,
    ]
    assert [one.error_message for one in found if one.group_id] == [
        "Group nobody not found.",
        f"Group {group} is not a consumer group.",
        f"Group {group}-simple is not a consumer group.",
    ]
    assert [one.members for one in found] == [[], [], [], []]
