"""ListGroups: what groups there are, in which state and of which type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import GroupCaller, Member, rebalance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker_process import BrokerProcess

VERSIONS = range(6)

Listed = dict[str, ListGroupsResponse.Group]


def listed(groups: GroupCaller, version: int = 5, **filters: list[str]) -> Listed:
    answer = groups.call(ListGroupsRequest(**filters), version)
    assert answer.error_code == 0
    assert len({found.group_id for found in answer.groups}) == len(answer.groups)
    return {found.group_id: found for found in answer.groups}


@pytest.fixture(scope="module")
def every_kind(broker: BrokerProcess) -> Iterator[GroupCaller]:
    """A group of each kind, and of the classic kind in several states."""
    with GroupCaller(broker.host, broker.port) as groups:
        groups.create_topic("t")
        groups.commit("simple", {("t", 0): 1})
        stable = Member.connect(broker, "stable")
        rebalance(stable)
        connect = Member.connect(
            broker, "connect", protocol_type="connect", protocols={"sessioned": b""}
        )
        connect.enter()
        left = Member.connect(broker, "left")
        rebalance(left)
        left.leave()
        ConsumerMember(groups, "new", topics=["t"], member_id="m").join()
        yield groups
        for member in (stable, connect, left):
            member.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_lists_all_groups_with_what_it_can_tell(
    every_kind: GroupCaller, version: int
) -> None:
    found = listed(every_kind, version)

    assert {name: one.protocol_type for name, one in found.items()} == {
        "simple": "",
        "stable": "consumer",
        "connect": "connect",
        "left": "consumer",
        "new": "consumer",
    }
    states = {
        "simple": "Empty",
        "stable": "Stable",
        "connect": "CompletingRebalance",
        "left": "Empty",
        "new": "Stable",
    }
    assert {name: one.group_state for name, one in found.items()} == (
        states if version >= 4 else dict.fromkeys(states, "")
    )
    types = {**dict.fromkeys(states, "classic"), "new": "consumer"}
    assert {name: one.group_type for name, one in found.items()} == (
        types if version >= 5 else dict.fromkeys(types, "")
    )


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("states", "names"),
    [
        (["Stable"], {"stable", "new"}),
        (["sTABLE", "completingrebalance"], {"stable", "new", "connect"}),
        (["Empty"], {"simple", "left"}),
        (["Assigning"], set()),
        (["no such state"], set()),
        ([], {"simple", "stable", "connect", "left", "new"}),
    ],
)
def test_states_can_be_asked_for_in_any_case(
    every_kind: GroupCaller, version: int, states: list[str], names: set[str]
) -> None:
    assert set(listed(every_kind, version, states_filter=states)) == names


@pytest.mark.parametrize(
    ("types", "names"),
    [
        (["consumer"], {"new"}),
        (["Classic"], {"simple", "stable", "connect", "left"}),
        (["classic", "CONSUMER"], {"simple", "stable", "connect", "left", "new"}),
        (["share"], set()),
        (["no such type"], set()),
    ],
)
def test_types_can_be_asked_for_in_any_case(
    every_kind: GroupCaller, types: list[str], names: set[str]
) -> None:
    assert set(listed(every_kind, types_filter=types)) == names


def test_both_filters_must_hold(every_kind: GroupCaller) -> None:
    both: Any = {"states_filter": ["Stable"], "types_filter": ["classic"]}

    assert set(listed(every_kind, **both)) == {"stable"}


def test_a_broker_without_groups_lists_none(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        for version in VERSIONS:
            assert listed(groups, version) == {}
