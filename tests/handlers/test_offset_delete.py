"""OffsetDelete: offsets of topics that the group does not read now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.offsets import OffsetCommitKey
from protocol.messages.offset_delete import OffsetDeleteRequest
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import (
    Found,
    GroupCaller,
    offset_topics,
    rebalance,
    subscription,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.support.broker_process import BrokerProcess
    from tests.support.group_caller import Member, Place


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3"}


def delete(
    groups: GroupCaller, group: str, places: Iterable[Place]
) -> tuple[int, dict[Place, int]]:
    """The code of the request, and of each partition."""
    topic = OffsetDeleteRequest.Topic
    topics = [
        topic(name=name, partitions=[topic.Partition(partition_index=at) for at in indexes])
        for name, indexes in offset_topics(places).items()
    ]
    answer = groups.call(OffsetDeleteRequest(group_id=group, topics=topics), 0)
    codes = {
        (topic.name, entry.partition_index): entry.error_code
        for topic in answer.topics
        for entry in topic.partitions
    }
    return answer.error_code, codes


def test_offsets_of_a_group_without_members_go(groups: GroupCaller, topic: str, group: str) -> None:
    groups.create_topic(topic, partitions=3)
    places = [(topic, 0), (topic, 1), (topic, 2)]
    groups.commit(group, dict.fromkeys(places, 5))

    deleted = delete(groups, group, places[:2])

    assert deleted == (0, {(topic, 0): 0, (topic, 1): 0})
    assert groups.committed(group, None) == {(topic, 2): Found(5)}
    tombstones = groups.group_log(group)[-1]
    assert tombstones == [
        (OffsetCommitKey(group=group, topic=topic, partition=at), None) for at in (0, 1)
    ]


def test_a_partition_that_does_not_exist_is_refused_alone_and_one_without_an_offset_is_not(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic, partitions=2)
    groups.commit(group, {(topic, 0): 5})

    deleted = delete(groups, group, [(topic, 1), ("missing", 0), (topic, 9), (topic, 0)])

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert deleted == (
        0,
        {(topic, 1): 0, (topic, 9): unknown, (topic, 0): 0, ("missing", 0): unknown},
    )
    assert groups.committed(group, None) == {}


def test_a_group_that_does_not_exist_is_not_found(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic)

    code, _ = delete(groups, group, [(topic, 0)])

    assert code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_without_an_id_is_invalid(groups: GroupCaller, topic: str) -> None:
    groups.create_topic(topic)
    groups.commit("", {(topic, 0): 5})

    assert delete(groups, "", [(topic, 0)])[0] == ErrorCode.INVALID_GROUP_ID


def test_what_members_subscribe_to_is_refused_alone(
    groups: GroupCaller, topic: str, group: str, member: Callable[..., Member]
) -> None:
    other = f"{topic}-2"
    for name in (topic, other):
        groups.create_topic(name)
    groups.commit(group, {(topic, 0): 5, (other, 0): 6})
    rebalance(member(protocols={"range": subscription(topic)}))

    deleted = delete(groups, group, [(topic, 0), (other, 0)])

    assert deleted == (0, {(topic, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, (other, 0): 0})
    assert groups.committed(group, None) == {(topic, 0): Found(5)}


def test_what_members_of_a_consumer_group_subscribe_to_is_refused_alone(
    groups: GroupCaller, topic: str, group: str
) -> None:
    other = f"{topic}-2"
    for name in (topic, other):
        groups.create_topic(name)
    groups.commit(group, {(topic, 0): 5, (other, 0): 6})
    ConsumerMember(groups, group, topics=[topic], member_id="m").join()

    deleted = delete(groups, group, [(topic, 0), (other, 0)])

    assert deleted == (0, {(topic, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, (other, 0): 0})


def test_members_that_are_no_consumers_keep_all_offsets(
    groups: GroupCaller, topic: str, group: str, member: Callable[..., Member]
) -> None:
    groups.create_topic(topic)
    groups.commit(group, {(topic, 0): 5})
    rebalance(member(protocol_type="connect", protocols={"sessioned": b"\x00"}))

    code, _ = delete(groups, group, [(topic, 0)])

    assert code == ErrorCode.NON_EMPTY_GROUP
    assert groups.committed(group, None) == {(topic, 0): Found(5)}


def test_the_offsets_that_were_deleted_stay_so_after_a_restart(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        groups.create_topic("t", partitions=2)
        groups.commit("g", {("t", 0): 5, ("t", 1): 6})
        delete(groups, "g", [("t", 0)])
    own_broker.kill()

    own_broker.start()

    with GroupCaller(own_broker.host, own_broker.port) as groups:
        assert groups.committed("g", None) == {("t", 1): Found(6)}
