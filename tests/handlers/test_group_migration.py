"""Groups that live go over from one protocol to the other, member by member (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.membership import assignment_of
from protocol.messages.list_groups import ListGroupsRequest
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import Found, GroupCaller, Member, rebalance, subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    NewMember = Callable[..., Member]


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "offsets.topic.num.partitions": "3",
        "group.consumer.migration.policy": "bidirectional",
    }


def kind(groups: GroupCaller, group: str) -> str:
    (found,) = [one for one in groups.call(ListGroupsRequest(), 5).groups if one.group_id == group]
    name: str = found.group_type
    return name


def share(member: Member, topic: str) -> list[int]:
    """What a classic member is given of the topic now, by joining and syncing again."""
    joined = member.join()
    assert joined.error_code == 0, joined
    synced = member.sync()
    assert synced.error_code == 0, synced
    found = assignment_of(synced.assignment)
    assert found is not None
    return sorted(
        partition for name, numbers in found.partitions if name == topic for partition in numbers
    )


def test_the_first_member_of_the_newer_protocol_takes_a_group_with_it(
    groups: GroupCaller, topic: str, group: str, member: NewMember
) -> None:
    topic_id = groups.create_topic(topic, partitions=4)
    old = member(protocols={"range": subscription(topic)})
    rebalance(old)
    old.commit({(topic, 0): 5})
    assert kind(groups, group) == "classic"
    new = ConsumerMember(groups, group, topics=[topic], member_id="new")

    joined = new.join()

    assert joined.error_code == 0, joined
    assert kind(groups, group) == "consumer"
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    mine = share(old, topic)
    for _ in range(5):
        new.own()
        if old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            mine = share(old, topic)
    assert len(mine) == 2
    assert sorted(mine + new.assigned[topic_id]) == [0, 1, 2, 3]
    assert old.heartbeat() == 0
    assert old.commit({(topic, mine[0]): 7}) == {(topic, mine[0]): 0}
    codes = groups.commit(
        group,
        {(topic, new.assigned[topic_id][0]): 8},
        generation=new.epoch,
        member_id=new.member_id,
    )
    assert set(codes.values()) == {0}


def test_when_the_last_member_of_the_newer_protocol_has_gone_the_group_is_a_classic_one(
    groups: GroupCaller, topic: str, group: str, member: NewMember
) -> None:
    groups.create_topic(topic, partitions=2)
    old = member(protocols={"range": subscription(topic)})
    rebalance(old)
    old.commit({(topic, 0): 5})
    new = ConsumerMember(groups, group, topics=[topic], member_id="new")
    new.join()
    old.hear_of_rebalance()
    share(old, topic)

    new.leave()

    assert kind(groups, group) == "classic"
    old.hear_of_rebalance()
    joined = old.join()
    assert (joined.error_code, joined.leader) == (0, old.member_id)
    assert old.sync({old.member_id: b"x"}).assignment == b"x"
    assert old.heartbeat() == 0
    assert groups.group(group).group_state == "Stable"
    assert groups.committed(group, None) == {(topic, 0): Found(5)}


def test_a_classic_member_enters_a_consumer_group(
    groups: GroupCaller, topic: str, group: str, member: NewMember
) -> None:
    topic_id = groups.create_topic(topic, partitions=2)
    new = ConsumerMember(groups, group, topics=[topic], member_id="new")
    new.join()
    new.own()
    old = member(protocols={"range": subscription(topic)})

    joined = old.enter()

    assert joined.protocol_name == "range"
    assert old.sync().error_code == 0
    mine: list[int] = []
    for _ in range(5):
        new.own()
        if old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            mine = share(old, topic)
    assert sorted(mine + new.assigned[topic_id]) == [0, 1]
    assert len(mine) == 1
    assert kind(groups, group) == "consumer"
