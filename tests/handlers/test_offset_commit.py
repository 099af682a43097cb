"""OffsetCommit: what is stored, what is refused alone, who may."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.offsets import OffsetCommitKey, OffsetCommitValue
from protocol.messages.list_groups import ListGroupsRequest
from tests.support.caller import batch
from tests.support.group_caller import (
    OLDEST,
    Found,
    GroupCaller,
    Member,
    assignment,
    commit_request,
    rebalance,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from protocol.messages.offset_commit import OffsetCommitRequest
    from tests.support.broker_process import BrokerProcess

    NewMember = Callable[..., Member]

COMMIT_VERSIONS, FETCH_VERSIONS = range(11), range(11)
NO_ID = bytes(range(16))


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "offsets.topic.num.partitions": "3",
        "offsets.retention.check.interval.ms": "100",
    }


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_what_any_version_commits_every_version_fetches(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic, partitions=2)

    codes = groups.commit(group, {(topic, 0): 5, (topic, 1): (7, "seven")}, version=version)

    assert codes == {(topic, 0): 0, (topic, 1): 0}
    for fetched in FETCH_VERSIONS:
        found = groups.committed(group, [(topic, 0), (topic, 1)], version=fetched)
        name = groups.topic_id(topic).hex() if fetched >= 10 else topic
        assert found == {(name, 0): Found(5), (name, 1): Found(7, metadata="seven")}


def test_one_commit_is_one_batch_across_topics(groups: GroupCaller, topic: str, group: str) -> None:
    other = f"{topic}-2"
    groups.create_topic(topic, partitions=2)
    groups.create_topic(other)
    before_ms = int(time.time() * 1000)

    groups.commit(group, {(topic, 1): 5, (other, 0): (6, "six"), (topic, 0): 7})
    groups.commit(group, {(topic, 1): 8})

    first, second = groups.group_log(group)
    assert [(key, value.offset, value.metadata) for key, value in first] == [  # type: ignore[union-attr]
        (OffsetCommitKey(group=group, topic=topic, partition=1), 5, ""),
        (OffsetCommitKey(group=group, topic=topic, partition=0), 7, ""),
        (OffsetCommitKey(group=group, topic=other, partition=0), 6, "six"),
    ]
    ((key, value),) = second
    assert key == OffsetCommitKey(group=group, topic=topic, partition=1)
    assert isinstance(value, OffsetCommitValue)
    assert (value.offset, value.leader_epoch) == (8, -1)
    assert before_ms <= value.commit_timestamp <= int(time.time() * 1000)


def test_a_commit_is_seen_at_once_on_another_connection(
    broker: BrokerProcess, groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic, partitions=3)
    places = [(topic, 0), (topic, 1), (topic, 2)]
    with GroupCaller(broker.host, broker.port) as reader:
        for offset in range(100):
            groups.commit(group, dict.fromkeys(places, offset))
            found = reader.committed(group, places)
            assert {one.offset for one in found.values()} == {offset}


def test_a_commit_of_thousands_of_partitions_is_one_batch(
    groups: GroupCaller, topic: str, group: str
) -> None:
    names = [f"{topic}-{number}" for number in range(2)]
    for name in names:
        groups.create_topic(name, partitions=1000)
    offsets = {(name, partition): partition + 1 for name in names for partition in range(1000)}

    codes = groups.commit(group, offsets)

    assert codes == dict.fromkeys(offsets, 0)
    assert {at: one.offset for at, one in groups.committed(group, None).items()} == offsets
    (records,) = groups.group_log(group)
    assert len(records) == len(offsets)


@pytest.mark.parametrize("version", range(10))
def test_a_partition_that_does_not_exist_is_refused_alone(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic, partitions=2)
    wanted = [("missing", 0), (topic, -1), (topic, 0), (topic, 1), (topic, 2), (topic, 2**31 - 1)]

    codes = groups.commit(group, dict.fromkeys(wanted, 9), version=version)

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [codes[place] for place in wanted] == [unknown, unknown, 0, 0, unknown, unknown]
    assert groups.committed(group, None) == {(topic, 0): Found(9), (topic, 1): Found(9)}
    assert groups.describe("missing").error_code == unknown


def test_an_id_that_no_topic_has_is_refused_alone(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic)

    codes = groups.commit(
        group,
        {("who", 0): 1, (topic, 0): 2, (topic, 1): 3},
        version=10,
        ids={"who": NO_ID},
    )

    assert codes == {
        ("who", 0): ErrorCode.UNKNOWN_TOPIC_ID,
        (topic, 0): 0,
        (topic, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert groups.committed(group, None) == {(topic, 0): Found(2)}


@pytest.mark.parametrize("version", [0, 2, 8, 10])
def test_metadata_too_long_is_refused_alone(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic, partitions=6)
    texts = ["m" * 4096, "m" * 4097, "é" * 4096, "\N{PARTY POPPER}" * 2049, None, "m" * 32_000]

    codes = groups.commit(
        group, {(topic, at): (at, text) for at, text in enumerate(texts)}, version=version
    )

    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert list(codes.values()) == [0, too_large, 0, too_large, 0, too_large]
    assert groups.committed(group, None) == {
        (topic, 0): Found(0, metadata=texts[0]),
        (topic, 2): Found(2, metadata=texts[2]),
        (topic, 4): Found(4, metadata=""),
    }


def test_a_partition_named_twice_has_the_later_offset(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic)
    request = commit_of_one_twice(group, topic, 4, 3)

    (answered,) = groups.call(request, 9).topics

    assert [(p.partition_index, p.error_code) for p in answered.partitions] == [(0, 0), (0, 0)]
    assert groups.committed(group, None) == {(topic, 0): Found(3)}


def commit_of_one_twice(group: str, topic: str, first: int, second: int) -> OffsetCommitRequest:
    request = commit_request(group, {(topic, 0): first})
    request.topics[0].partitions += commit_request(group, {(topic, 0): second}).topics[0].partitions
    return request


def test_a_commit_of_nothing_is_answered(groups: GroupCaller, group: str) -> None:
    assert groups.commit(group, {}) == {}


@pytest.mark.parametrize("version", [0, 5, 9])
def test_an_empty_group_id_is_a_group_too(groups: GroupCaller, topic: str, version: int) -> None:
    """Kafka keeps offsets under it for old clients; nobody can join such a group."""
    groups.create_topic(topic)

    assert groups.commit("", {(topic, 0): 1}, version=version) == {(topic, 0): 0}

    assert groups.committed("", [(topic, 0)]) == {(topic, 0): Found(1)}


def test_leader_epochs_are_kept_from_version_6_and_told_from_version_5(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic, partitions=2)
    groups.commit(group, {(topic, 0): 5}, version=6, leader_epoch=0)
    groups.commit(group, {(topic, 1): 5}, version=5, leader_epoch=0)
    places = [(topic, 0), (topic, 1)]

    old, new = (groups.committed(group, places, version=version) for version in (4, 5))

    assert old == {(topic, 0): Found(5), (topic, 1): Found(5)}
    assert new == {(topic, 0): Found(5, leader_epoch=0), (topic, 1): Found(5)}


def test_version_1_may_say_when_the_commit_was(groups: GroupCaller, topic: str, group: str) -> None:
    groups.create_topic(topic)
    before_ms = int(time.time() * 1000)
    for timestamp_ms in (-1, 1_500_000_000_000):
        groups.commit(group, {(topic, 0): 5}, version=1, commit_timestamp=timestamp_ms)

    values = [value for ((_, value),) in groups.group_log(group)]

    now, told = [v.commit_timestamp for v in values if isinstance(v, OffsetCommitValue)]
    assert now >= before_ms
    assert told == 1_500_000_000_000


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_offset_with_a_time_to_live_expires(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic, partitions=2)
    groups.commit(group, {(topic, 1): 8}, version=version)
    groups.commit(group, {(topic, 0): 7}, version=version, retention_time_ms=300)
    assert groups.committed(group, None) == {(topic, 0): Found(7), (topic, 1): Found(8)}
    values = [value for ((_, value),) in groups.group_log(group)]
    assert [v.expire_timestamp > 0 for v in values if isinstance(v, OffsetCommitValue)] == [
        False,
        True,
    ]

    wait_until(lambda: len(groups.committed(group, None)) < 2)

    assert groups.committed(group, None) == {(topic, 1): Found(8)}
    ((key, value),) = groups.group_log(group)[-1]
    assert (key, value) == (OffsetCommitKey(group=group, topic=topic, partition=0), None)


def test_a_group_of_which_all_offsets_have_expired_is_gone(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic)
    groups.commit(group, {(topic, 0): 7}, version=2, retention_time_ms=1)

    wait_until(lambda: group not in listed(groups))

    assert groups.committed(group, [(topic, 0)]) == {(topic, 0): Found(-1)}


def listed(groups: GroupCaller) -> dict[str, str]:
    """Every group and its state."""
    return {g.group_id: g.group_state for g in groups.call(ListGroupsRequest(), 4).groups}


def wait_until(holds: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.02)


# Who may commit


def test_a_commit_from_outside_makes_an_empty_group(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic)

    groups.commit(group, {(topic, 0): 5})

    described = groups.group(group)
    assert (described.error_code, described.group_state, described.members) == (0, "Empty", [])
    assert (described.protocol_type, described.protocol_data) == ("", "")
    assert listed(groups)[group] == "Empty"


@pytest.mark.parametrize("version", range(1, 11))
def test_a_generation_of_a_group_that_does_not_exist_is_illegal(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic)

    codes = groups.commit(group, {(topic, 0): 5}, version=version, generation=1, member_id="m")

    new, old = ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION
    assert codes == {(topic, 0): new if version >= 9 else old}
    assert group not in listed(groups)


@pytest.mark.parametrize("version", range(1, 11))
def test_only_a_member_of_this_generation_may_commit_to_a_group_that_lives(
    groups: GroupCaller, topic: str, group: str, member: NewMember, version: int
) -> None:
    groups.create_topic(topic)
    one = member()
    one.enter()
    one.sync({one.member_id: assignment(topic, 0)})
    place = (topic, 0)
    at: dict[str, Any] = {"version": version}

    right = one.commit({place: 1}, **at)
    old = one.commit({place: 2}, generation=0, **at)
    late = one.commit({place: 3}, generation=2, **at)
    strange = one.commit({place: 4}, member_id="somebody", **at)
    outside = groups.commit(group, {place: 5}, **at)

    assert [right[place], old[place], late[place]] == [
        0,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.ILLEGAL_GENERATION,
    ]
    assert strange[place] == outside[place] == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.committed(group, None) == {place: Found(1)}


def test_version_0_has_no_member_and_may_not_commit_to_a_group_that_lives(
    groups: GroupCaller, topic: str, group: str, member: NewMember
) -> None:
    groups.create_topic(topic)
    one = member(versions=OLDEST)
    one.enter()
    place = (topic, 0)

    alive = groups.commit(group, {place: 5}, version=0)
    one.sync()
    one.leave()
    empty = groups.commit(group, {place: 6}, version=0)

    assert (alive[place], empty[place]) == (ErrorCode.UNKNOWN_MEMBER_ID, 0)


def test_a_group_is_committed_to_while_it_prepares_a_rebalance_and_not_while_it_completes_it(
    groups: GroupCaller, topic: str, group: str, member: NewMember
) -> None:
    groups.create_topic(topic)
    place = (topic, 0)
    one, two = member(), member()
    rebalance(one)

    two.knock()
    one.hear_of_rebalance()
    preparing = one.commit({place: 1})
    one.send_join()
    one.joined()
    two.joined()
    completing = one.commit({place: 2})
    refused_too = two.commit({place: 2})

    assert preparing == {place: 0}
    assert completing == refused_too == {place: ErrorCode.REBALANCE_IN_PROGRESS}
    assert groups.committed(group, None) == {place: Found(1)}


def test_an_instance_that_was_replaced_may_not_commit(
    groups: GroupCaller, topic: str, member: NewMember
) -> None:
    groups.create_topic(topic)
    place = (topic, 0)
    old, new = member(instance_id="i"), member(instance_id="i")
    rebalance(old)
    new.enter()

    assert old.commit({place: 1}) == {place: ErrorCode.FENCED_INSTANCE_ID}
    assert new.commit({place: 2}) == {place: 0}
    assert new.commit({place: 3}, group_instance_id="j") == {place: ErrorCode.UNKNOWN_MEMBER_ID}
    assert groups.committed(new.group, None) == {place: Found(2)}


def test_what_a_group_has_committed_is_there_after_a_restart(own_broker: BrokerProcess) -> None:
    own_broker.settings = {"offsets.topic.num.partitions": "3"}
    own_broker.start()
    names = [f"g{number}" for number in range(12)]
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        groups.create_topic("t", partitions=2)
        groups.produce("t", batch(b"a"))
        for number, name in enumerate(names):
            groups.commit(name, {("t", 0): number, ("t", 1): (1, "m" * number)})
    own_broker.kill()

    own_broker.start()

    with GroupCaller(own_broker.host, own_broker.port) as groups:
        for number, name in enumerate(names):
            found = groups.committed(name, None)
            assert found == {("t", 0): Found(number), ("t", 1): Found(1, metadata="m" * number)}
