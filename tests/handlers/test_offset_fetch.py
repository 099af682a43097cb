"""OffsetFetch: where a group is, of one group or several, by name, by id, or all of it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.commits import commit_batch
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.records.markers import Marker, encode_marker
from tests.support.caller import NOW_MS
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import NOTHING, Found, GroupCaller, rebalance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.broker_process import BrokerProcess
    from tests.support.group_caller import Member

OLD, NEW = range(8), range(8, 11)
Group = OffsetFetchRequest.Group


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3"}


def named(groups: GroupCaller, topic: str, version: int) -> str:
    """How `GroupCaller.committed` shows a topic of an answer of this version."""
    return groups.topic_id(topic).hex() if version >= 10 else topic


def test_version_0_says_of_an_offset_that_is_not_there_that_the_partition_is_unknown(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic, partitions=2)
    groups.commit(group, {(topic, 0): 5}, version=0)

    found = groups.committed(group, [(topic, 0), (topic, 1), ("missing", 0)], version=0)

    missing = Found(-1, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert found == {(topic, 0): Found(5), (topic, 1): missing, ("missing", 0): missing}


@pytest.mark.parametrize("version", range(1, 11))
def test_an_offset_that_is_not_there_is_minus_1_and_no_error(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic, partitions=2)
    groups.commit(group, {(topic, 0): 5})

    found = groups.committed(group, [(topic, 0), (topic, 1), (topic, 77)], version=version)

    name = named(groups, topic, version)
    assert found == {(name, 0): Found(5), (name, 1): NOTHING, (name, 77): NOTHING}


@pytest.mark.parametrize("version", range(1, 11))
def test_a_group_that_does_not_exist_has_no_offsets_and_is_no_error(
    groups: GroupCaller, topic: str, version: int
) -> None:
    groups.create_topic(topic)

    found = groups.committed("nobody", [(topic, 0)], version=version)

    assert found == {(named(groups, topic, version), 0): NOTHING}


@pytest.mark.parametrize("version", range(1, 10))
def test_of_a_topic_that_does_not_exist_there_is_no_offset(
    groups: GroupCaller, group: str, version: int
) -> None:
    assert groups.committed(group, [("missing", 3)], version=version) == {("missing", 3): NOTHING}


def test_an_id_that_no_topic_has_is_told_so(groups: GroupCaller, topic: str, group: str) -> None:
    topic_id = groups.create_topic(topic)
    groups.commit(group, {(topic, 0): 5})
    unknown = bytes(range(16))
    asked = [
        Group.Topic(topic_id=unknown, partition_indexes=[0, 1]),
        Group.Topic(topic_id=topic_id, partition_indexes=[0]),
    ]

    (found,) = groups.call(
        OffsetFetchRequest(groups=[Group(group_id=group, topics=asked)]), 10
    ).groups

    missing = Found(-1, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    assert found.error_code == 0
    assert groups.offsets_in(found.topics) == {
        (unknown.hex(), 0): missing,
        (unknown.hex(), 1): missing,
        (topic_id.hex(), 0): Found(5),
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_without_topics_everything_that_the_group_has_comes(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    other = f"{topic}-2"
    groups.create_topic(topic, partitions=3)
    groups.create_topic(other)
    groups.commit(group, {(topic, 2): 5, (other, 0): (6, "six"), (topic, 0): 7})

    found = groups.committed(group, None, version=version)

    name, second = (named(groups, one, version) for one in (topic, other))
    assert found == {
        (name, 2): Found(5),
        (name, 0): Found(7),
        (second, 0): Found(6, metadata="six"),
    }
    assert groups.committed("nobody", None, version=version) == {}
    assert groups.committed(group, [], version=version) == {}


@pytest.mark.parametrize("version", NEW)
def test_several_groups_are_answered_in_the_order_of_the_question(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    topic_id = groups.create_topic(topic, partitions=2)
    names = [f"{group}-{number}" for number in range(7)]
    for number, name in enumerate(names[:-1]):
        groups.commit(name, {(topic, 1): number})
    one = Group.Topic(
        name="" if version >= 10 else topic,
        topic_id=topic_id if version >= 10 else bytes(16),
        partition_indexes=[1, 0],
    )
    request = OffsetFetchRequest(groups=[Group(group_id=name, topics=[one]) for name in names])

    answer = groups.call(request, version).groups

    assert [(found.group_id, found.error_code) for found in answer] == [(n, 0) for n in names]
    offsets = [[p.committed_offset for p in found.topics[0].partitions] for found in answer]
    assert offsets == [[number, -1] for number in range(6)] + [[-1, -1]]


def test_no_groups_are_no_answers(groups: GroupCaller) -> None:
    for version in NEW:
        assert groups.call(OffsetFetchRequest(groups=[]), version).groups == []


@pytest.mark.parametrize("version", [7, 8, 9])
def test_stable_offsets_are_there_while_no_transaction_is_open(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic)
    groups.commit(group, {(topic, 0): 5})

    found = groups.committed(group, [(topic, 0)], version=version, require_stable=True)

    assert found == {(topic, 0): Found(5)}


def test_anybody_may_ask_for_the_offsets_of_a_classic_group(
    groups: GroupCaller, topic: str, group: str, member: Callable[..., Member]
) -> None:
    groups.create_topic(topic)
    one = member()
    rebalance(one)
    one.commit({(topic, 0): 5})
    asked: dict[str, Any] = {"member_id": one.member_id, "member_epoch": one.generation}

    assert groups.committed(group, [(topic, 0)]) == {(topic, 0): Found(5)}
    assert groups.committed(group, [(topic, 0)], **asked) == {(topic, 0): Found(5)}


@pytest.mark.parametrize("version", [9, 10])
def test_a_member_of_a_consumer_group_that_names_itself_must_be_one(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic)
    one = ConsumerMember(groups, group, topics=[topic], member_id="member-1")
    one.join()
    place, epoch = (topic, 0), one.epoch
    codes = groups.commit(group, {place: 5}, generation=epoch, member_id="member-1")
    assert codes == {place: 0}

    def code(member_id: str | None, member_epoch: int) -> int:
        answer = groups.fetch_offsets(
            group, [place], version=version, member_id=member_id, member_epoch=member_epoch
        )
        (found,) = answer.groups
        assert bool(found.topics) == (found.error_code == 0)
        error_code: int = found.error_code
        return error_code

    assert code(None, -1) == 0
    assert code("member-1", epoch) == 0
    assert code("member-1", epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert code("member-1", epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert code("member-2", epoch) == ErrorCode.UNKNOWN_MEMBER_ID


def test_partitions_come_in_the_order_of_the_question(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic, partitions=300)
    offsets = {(topic, partition): partition * 3 for partition in range(0, 300, 2)}
    groups.commit(group, offsets)
    wanted = [(topic, partition) for partition in reversed(range(300))]

    found = groups.committed(group, wanted)

    assert list(found) == wanted
    assert {at: one.offset for at, one in found.items() if one != NOTHING} == offsets


def test_offsets_of_a_deleted_topic_are_gone_before_another_has_its_name(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic)
    groups.create_topic(f"{topic}-kept")
    groups.commit(group, {(topic, 0): 5, (f"{topic}-kept", 0): 6})

    groups.delete_topic(topic)
    groups.create_topic(topic)

    assert groups.committed(group, None) == {(f"{topic}-kept", 0): Found(6)}


def test_before_there_was_any_group_there_is_no_topic_and_no_offset(
    own_broker: BrokerProcess,
) -> None:
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        for version in range(1, 10):
            assert groups.committed("g", [("t", 0)], version=version) == {("t", 0): NOTHING}
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert groups.describe("__consumer_offsets").error_code == unknown


@pytest.mark.parametrize("end", [None, True, False], ids=["open", "committed", "aborted"])
def test_offsets_of_a_transaction_are_unstable_until_it_ends_and_then_there_or_not(
    own_broker: BrokerProcess, end: bool | None
) -> None:
    """The log is written by hand, as Kafka writes TxnOffsetCommit and what ends it."""
    own_broker.settings = {"offsets.topic.num.partitions": "1"}
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        groups.create_topic("t", partitions=2)
        groups.commit("g", {("t", 0): 5, ("t", 1): 6})
    own_broker.kill()
    sent = commit_batch(
        "g", [("t", 0, 9, -1, "", -1)], now_ms=NOW_MS, producer_id=7, producer_epoch=0
    )
    struct.pack_into(">q", sent, 0, 2)
    if end is not None:
        marker = encode_marker(7, 0, marker=Marker(end, 0), timestamp_ms=NOW_MS)
        struct.pack_into(">q", marker, 0, 3)
        sent += marker
    with (own_broker.data / "__consumer_offsets-0/00000000000000000000.log").open("ab") as file:
        file.write(sent)

    own_broker.start()

    old = Found(9) if end else Found(5)
    unstable = Found(-1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    places = [("t", 0), ("t", 1)]
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        for version in (1, 5, 7, 8, 9):
            assert groups.committed("g", places, version=version) == {
                ("t", 0): old,
                ("t", 1): Found(6),
            }
        for version in (7, 8, 9):
            for asked in (places, None):
                assert groups.committed("g", asked, version=version, require_stable=True) == {
                    ("t", 0): unstable if end is None else old,
                    ("t", 1): Found(6),
                }
