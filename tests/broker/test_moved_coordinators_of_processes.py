"""Groups whose partition of `__consumer_offsets` moves from one process of a directory to another,
as their members see it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.test_moves_of_processes import moved, moves, rebalanced
from tests.broker.test_processes import HOST, TOPIC, Directory, directory, make_topic, until
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import (
    NOTHING,
    OFFSETS_TOPIC,
    Found,
    GroupCaller,
    Member,
    assignment,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["directory"]
pytestmark = pytest.mark.linux

GROUP, NEWER = "billing", "shipping"
PLACE = (TOPIC, 1)


@pytest.fixture
def callers(directory: Directory) -> Iterator[list[GroupCaller]]:
    """A client of each process; the one partition of the groups is led by the first."""
    directory.start(2, "--set", "offsets.topic.num.partitions=1")
    make_topic(directory)
    both = [connect(directory, process) for process in (0, 1)]
    coordinator(both[0])  # the topic is made
    move(both, 0)
    yield both
    for caller in both:
        caller.close()


def connect(directory: Directory, process: int) -> GroupCaller:
    return GroupCaller(HOST, directory.ports[process])


def move(callers: list[GroupCaller], to: int) -> None:
    """Have this process coordinate all groups."""
    assert moved(callers[0], OFFSETS_TOPIC, {0: [1 + to]}) == [ErrorCode.NONE]
    until(lambda: not moves(callers[0]))
    until(lambda: [coordinator(caller) for caller in callers] == [1 + to, 1 + to])


def coordinator(caller: GroupCaller) -> int:
    """The id of the broker that coordinates all groups, as it is told by one."""
    found: int = caller.call(FindCoordinatorRequest(key=GROUP, key_type=0), 1).node_id
    return found


def entered(caller: GroupCaller) -> Member:
    """The one member of a classic group, which has an assignment."""
    member = Member(caller, GROUP)
    member.enter()
    answer = member.sync({member.member_id: assignment(*PLACE)})
    assert answer.error_code == ErrorCode.NONE
    return member


def beat(caller: GroupCaller, member: Member) -> int:
    return caller.heartbeat_code(GROUP, member.generation, member.member_id)


def commit(caller: GroupCaller, member: Member, offset: int) -> int:
    codes = caller.commit(
        GROUP, {PLACE: offset}, generation=member.generation, member_id=member.member_id
    )
    return codes[PLACE]


def described(caller: GroupCaller) -> Any:
    found = caller.group(GROUP)
    return found.group_state, found.protocol_data, [
        (one.member_id, one.member_assignment) for one in found.members
    ]  # fmt: skip


def test_a_classic_group_and_what_it_has_committed_move_to_and_fro(
    callers: list[GroupCaller],
) -> None:
    member = entered(callers[0])
    assert commit(callers[0], member, 7) == ErrorCode.NONE
    before = described(callers[0])
    for number in range(1, 5):
        new, old = number % 2, 1 - number % 2
        move(callers, new)
        assert beat(callers[old], member) == ErrorCode.NOT_COORDINATOR
        assert commit(callers[old], member, 99) == ErrorCode.NOT_COORDINATOR
        assert described(callers[new]) == before
        assert beat(callers[new], member) == ErrorCode.NONE
        assert callers[new].committed(GROUP, [PLACE]) == {PLACE: Found(6 + number)}
        assert commit(callers[new], member, 7 + number) == ErrorCode.NONE


def test_a_group_of_the_newer_protocol_moves_with_its_members(callers: list[GroupCaller]) -> None:
    members = [ConsumerMember(one, NEWER, topics=[TOPIC], member_id="m") for one in callers]
    assert members[0].join().error_code == ErrorCode.NONE
    assert members[0].own().error_code == ErrorCode.NONE
    epoch = members[0].epoch
    move(callers, 1)
    assert members[0].beat().error_code == ErrorCode.NOT_COORDINATOR
    members[1].epoch = epoch
    assert members[1].beat().error_code == ErrorCode.NONE
    assert members[1].epoch == epoch
    codes = callers[1].commit(NEWER, {PLACE: 3}, generation=epoch, member_id="m")
    assert codes == {PLACE: ErrorCode.NONE}


def test_whoever_waits_for_a_group_is_told_to_look_for_its_coordinator(
    directory: Directory, callers: list[GroupCaller]
) -> None:
    member = entered(callers[0])
    with Member(connect(directory, 0), GROUP) as waits:
        waits.knock()
        until(lambda: beat(callers[0], member) == ErrorCode.REBALANCE_IN_PROGRESS)
        move(callers, 1)
        assert waits.joined().error_code == ErrorCode.NOT_COORDINATOR
    assert beat(callers[1], member) == ErrorCode.NONE, "the log has it as it was before"


@pytest.mark.parametrize("victim", [0, 1])
def test_what_was_committed_is_there_after_a_crash_that_follows_a_move(
    directory: Directory, callers: list[GroupCaller], victim: int
) -> None:
    member = entered(callers[0])
    assert commit(callers[0], member, 7) == ErrorCode.NONE
    move(callers, 1)
    assert commit(callers[1], member, 8) == ErrorCode.NONE
    os.kill(directory.children()[victim], signal.SIGKILL)
    directory.said("a process died")
    until(lambda: len(directory.children()) == 2)
    with connect(directory, 1) as caller:
        until(lambda: beat(caller, member) == ErrorCode.NONE)
        assert caller.committed(GROUP, [PLACE]) == {PLACE: Found(8)}
        assert commit(caller, member, 9) == ErrorCode.NONE


def test_offsets_of_a_topic_that_is_deleted_are_gone_wherever_they_have_moved(
    callers: list[GroupCaller],
) -> None:
    assert callers[0].commit(GROUP, {PLACE: 7, ("kept", 0): 0}) == {
        PLACE: ErrorCode.NONE,
        ("kept", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    request = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=60_000)
    assert callers[0].call(request, 5).responses[0].error_code == ErrorCode.NONE
    move(callers, 1)
    until(lambda: callers[1].committed(GROUP, [PLACE]) == {PLACE: NOTHING})


def test_coordinators_are_spread_anew_with_the_other_partitions(directory: Directory) -> None:
    directory.start(2, "--set", "offsets.topic.num.partitions=4")
    make_topic(directory)
    with connect(directory, 0) as caller:
        caller.call(FindCoordinatorRequest(key=GROUP, key_type=0), 1)
        assert moved(caller, OFFSETS_TOPIC, {index: [1] for index in range(4)}) == [0] * 4
        until(lambda: not moves(caller))
        assert len(rebalanced(directory, "--execute")["moves"]) == 2
        leaders = [one.leader_id for one in caller.describe(OFFSETS_TOPIC).partitions]
    assert sorted(leaders) == [1, 1, 2, 2]


def test_all_of_it_is_there_for_one_process(
    directory: Directory, callers: list[GroupCaller]
) -> None:
    member = entered(callers[0])
    for number in range(3):
        move(callers, 1 - number % 2)
        assert commit(callers[1 - number % 2], member, number) == ErrorCode.NONE
    directory.stop()
    assert "found in the data directory" not in directory.log()
    directory.start(1)
    with connect(directory, 0) as caller:
        until(lambda: beat(caller, member) == ErrorCode.NONE)
        assert caller.committed(GROUP, [PLACE]) == {PLACE: Found(2)}
