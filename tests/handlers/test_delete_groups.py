"""DeleteGroups: groups without members, with all that they committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.offsets import GroupMetadataKey
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import GroupCaller, rebalance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.broker_process import BrokerProcess
    from tests.support.group_caller import Member

    NewMember = Callable[..., Member]

VERSIONS = range(4)


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3"}


def delete(groups: GroupCaller, *names: str, version: int = 3) -> dict[str, int]:
    answer = groups.call(DeleteGroupsRequest(groups_names=list(names)), version)
    return {result.group_id: result.error_code for result in answer.results}


def known(groups: GroupCaller) -> set[str]:
    return {found.group_id for found in groups.call(ListGroupsRequest(), 0).groups}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_without_members_goes_with_its_offsets(
    groups: GroupCaller, topic: str, group: str, member: NewMember, version: int
) -> None:
    groups.create_topic(topic, partitions=2)
    one = member()
    rebalance(one)
    one.commit({(topic, 0): 5, (topic, 1): 6})
    one.leave()
    groups.commit(f"{group}-2", {(topic, 0): 7})

    deleted = delete(groups, group, f"{group}-2", version=version)

    assert deleted == {group: 0, f"{group}-2": 0}
    assert not {group, f"{group}-2"} & known(groups)
    assert groups.committed(group, None) == {}
    assert groups.group(group).group_state == "Dead"
    assert (GroupMetadataKey(group=group), None) in groups.group_log(group)[-1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_with_members_stays_and_one_that_does_not_exist_is_not_found(
    groups: GroupCaller, topic: str, group: str, member: NewMember, version: int
) -> None:
    groups.create_topic(topic)
    one = member()
    rebalance(one)
    one.commit({(topic, 0): 5})
    groups.commit(f"{group}-2", {(topic, 0): 7})

    deleted = delete(groups, group, "nobody", f"{group}-2", "", version=version)

    assert deleted == {
        group: ErrorCode.NON_EMPTY_GROUP,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
        f"{group}-2": 0,
        "": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert one.heartbeat() == 0
    assert groups.committed(group, None)[topic, 0].offset == 5


def test_a_consumer_group_goes_when_its_last_member_has(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic)
    one = ConsumerMember(groups, group, topics=[topic], member_id="m")
    one.join()
    groups.commit(group, {(topic, 0): 5}, generation=one.epoch, member_id="m")

    alive = delete(groups, group)
    one.leave()
    empty = delete(groups, group)

    assert (alive, empty) == ({group: ErrorCode.NON_EMPTY_GROUP}, {group: 0})
    assert group not in known(groups)
    assert groups.committed(group, None) == {}


def test_a_group_that_is_made_again_begins_anew(
    groups: GroupCaller, topic: str, group: str, member: NewMember
) -> None:
    groups.create_topic(topic)
    first, second = member(), member()
    rebalance(first)
    first.leave()
    delete(groups, group)

    assert second.enter().generation_id == 1
    assert groups.committed(group, None) == {}


def test_what_was_deleted_stays_so_after_a_restart(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        groups.create_topic("t", partitions=3)
        for name in ("a", "b"):
            groups.commit(name, {("t", at): at for at in range(3)})
        delete(groups, "a")
    own_broker.kill()

    own_broker.start()

    with GroupCaller(own_broker.host, own_broker.port) as groups:
        assert known(groups) == {"b"}
        assert groups.committed("a", None) == {}
