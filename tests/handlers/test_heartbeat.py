"""Heartbeat: a member is alive, and hears what has become of its group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from tests.support.group_caller import GroupCaller, Versions, rebalance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.group_caller import Member

    NewMember = Callable[..., Member]

VERSIONS = range(5)


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3", "group.min.session.timeout.ms": "100"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_of_this_generation_is_alive_and_nobody_else(
    groups: GroupCaller, group: str, member: NewMember, version: int
) -> None:
    one = member(versions=Versions(heartbeat=version))
    rebalance(one)

    assert one.heartbeat() == 0
    for generation in (-1, 0, 2):
        assert one.heartbeat(generation=generation) == ErrorCode.ILLEGAL_GENERATION
    for stranger in ("", "somebody"):
        assert one.heartbeat(member_id=stranger) == ErrorCode.UNKNOWN_MEMBER_ID
    unknown = groups.heartbeat_code(f"not-{group}", 1, one.member_id, version=version)
    assert unknown == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat_code("", 1, "m", version=version) == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", VERSIONS)
def test_it_tells_of_a_rebalance_that_is_prepared_and_not_of_one_that_is_completed(
    member: NewMember, version: int
) -> None:
    one, two = (member(versions=Versions(heartbeat=version)) for _ in range(2))
    one.enter()
    completing = one.heartbeat()
    one.sync()
    two.knock()
    two.caller.see_nothing_come()
    preparing = one.heartbeat()
    one.send_join()
    one.joined()
    two.joined()

    assert [completing, preparing] == [0, ErrorCode.REBALANCE_IN_PROGRESS]
    assert [one.heartbeat(), two.heartbeat()] == [0, 0]


def test_an_instance_that_was_replaced_is_fenced(member: NewMember) -> None:
    old, new = member(instance_id="i"), member(instance_id="i")
    rebalance(old)
    new.enter()

    assert old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert new.heartbeat() == 0
    assert new.heartbeat(group_instance_id="j") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_is_not_heard_of_is_out_and_one_that_is_stays(member: NewMember) -> None:
    silent = member(session_ms=1500, rebalance_ms=3000)
    alive = member(session_ms=1500, rebalance_ms=3000)
    rebalance(silent, alive)

    told = 0
    deadline_s = time.monotonic() + 10
    while not told and time.monotonic() < deadline_s:
        time.sleep(0.1)
        told = alive.heartbeat()

    assert told == ErrorCode.REBALANCE_IN_PROGRESS
    joined = alive.join()
    assert (joined.error_code, len(joined.members)) == (0, 1)
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
