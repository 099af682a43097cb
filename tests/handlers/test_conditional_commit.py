"""A commit that says which offset it expects to replace (ours alone, and off by default)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.eras import OFFSET_COMMIT
from protocol.errors import ErrorCode
from protocol.registry import APIS
from tests.support.group_caller import Found, GroupCaller, Member, commit_request, rebalance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.broker_process import BrokerProcess

VERSIONS = [8, 9, 10]
NONE_YET = -1
REFUSED = ErrorCode.INVALID_REQUEST


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3", "offsets.commit.conditional.enable": "true"}


def test_it_is_refused_unless_it_was_allowed(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        groups.create_topic("t", partitions=2)
        offsets = {("t", 0): 5, ("t", 1): 6}
        for version in VERSIONS:
            codes = groups.commit("g", offsets, expected={("t", 0): NONE_YET}, version=version)
            assert codes == dict.fromkeys(offsets, REFUSED)
        assert groups.committed("g", None) == {}
        assert groups.commit("g", offsets) == dict.fromkeys(offsets, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_made_when_it_finds_what_it_expects_and_else_not(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic)
    place = (topic, 0)

    def commit(offset: int, expected: int) -> int:
        return groups.commit(group, {place: offset}, expected={place: expected}, version=version)[
            place
        ]

    assert commit(5, expected=4) == REFUSED
    assert groups.committed(group, None) == {}
    assert commit(5, expected=NONE_YET) == 0
    assert commit(6, expected=NONE_YET) == REFUSED
    assert commit(6, expected=4) == REFUSED
    assert commit(7, expected=5) == 0
    assert commit(3, expected=7) == 0
    assert groups.committed(group, None) == {place: Found(3)}
    assert len(groups.group_log(group)) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_one_that_finds_another_offset_refuses_the_whole_request(
    groups: GroupCaller, topic: str, group: str, version: int
) -> None:
    groups.create_topic(topic, partitions=4)
    places = [(topic, at) for at in range(4)]
    groups.commit(group, dict.fromkeys(places, 1))
    new = dict.fromkeys(places, 2)

    mixed = groups.commit(group, new, expected={places[0]: 1, places[2]: 7}, version=version)
    assert mixed == dict.fromkeys(places, REFUSED)
    assert {one.offset for one in groups.committed(group, None).values()} == {1}

    right = groups.commit(group, new, expected={places[0]: 1, places[2]: 1}, version=version)
    assert right == dict.fromkeys(places, 0)
    assert {one.offset for one in groups.committed(group, None).values()} == {2}


def test_a_partition_that_cannot_be_committed_is_refused_alone_and_sets_no_condition(
    groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic)
    places = [(topic, 0), (topic, 9)]

    codes = groups.commit(
        group, dict.fromkeys(places, 5), expected={places[0]: NONE_YET, places[1]: 4}
    )

    assert codes == {places[0]: 0, places[1]: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_member_must_still_be_one(
    groups: GroupCaller, topic: str, group: str, member: Callable[..., Member]
) -> None:
    groups.create_topic(topic)
    one = member()
    rebalance(one)
    place = (topic, 0)

    assert one.commit({place: 1}, expected={place: NONE_YET}) == {place: 0}
    stale = one.commit({place: 2}, expected={place: 1}, generation=9)
    assert stale == {place: ErrorCode.ILLEGAL_GENERATION}
    outside = groups.commit(group, {place: 2}, expected={place: 1})
    assert outside == {place: ErrorCode.UNKNOWN_MEMBER_ID}


def test_of_two_that_expect_the_same_exactly_one_wins(
    broker: BrokerProcess, groups: GroupCaller, topic: str, group: str
) -> None:
    groups.create_topic(topic)
    place = (topic, 0)
    racers = [GroupCaller(broker.host, broker.port) for _ in range(8)]
    at = NONE_YET
    for number in range(50):
        values = {1000 * number + racer: client for racer, client in enumerate(racers)}
        sent = [
            (
                value,
                client,
                client.send(commit_request(group, {place: value}, expected={place: at}), 9),
            )
            for value, client in values.items()
        ]
        codes = {value: _code(client, sent_as) for value, client, sent_as in sent}
        winners = [value for value, code in codes.items() if code == 0]
        assert len(winners) == 1, codes
        assert set(codes.values()) == {0, REFUSED}
        ((found),) = groups.committed(group, [place]).values()
        at = winners[0]
        assert found.offset == at
    for client in racers:
        client.close()


def _code(client: GroupCaller, correlation_id: int) -> int:
    answer = client.receive(APIS[OFFSET_COMMIT], 9, correlation_id)
    code: int = answer.topics[0].partitions[0].error_code
    return code
