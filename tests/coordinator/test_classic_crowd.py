"""Many members: what a group does for one of them does not depend on how many there are."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from broker.coordinator.classic.group import ID_PREFIX_MAX, PENDING_MAX, ClassicGroup, State
from broker.coordinator.effects import Append, Caller, GroupRules
from protocol.errors import ErrorCode
from protocol.logdata.offsets import GroupMetadataValue
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

CROWD = 10_000
ENOUGH_S = 2.0
"""Ten times what it takes; a cost that grows with the square of the crowd takes minutes."""


def _group(**rules: Any) -> ClassicGroup:
    numbers = itertools.count()
    return ClassicGroup("g", GroupRules(**rules), lambda prefix: f"{prefix}-{next(numbers)}")


def _join(
    group: ClassicGroup,
    waiter: Any,
    member_id: str = "",
    *,
    version: int = 3,
    client_id: str = "c",
    **fields: Any,
) -> list[Any]:
    asked: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequest.Protocol(name="range", metadata=b"x" * 50)],
    }
    request = JoinGroupRequest(**{**asked, **fields})
    return group.join(waiter, request, Caller(client_id, "/127.0.0.1", version), 0)


def _codes(effects: Iterable[Any]) -> list[int]:
    return [effect.response.error_code for effect in effects if not isinstance(effect, Append)]


def _crowd() -> tuple[ClassicGroup, list[JoinGroupResponse]]:
    group = _group()
    ((_, first),) = _join(group, 0)
    for number in range(1, CROWD):
        assert _join(group, number) == []
    answers = [effect.response for effect in _join(group, 0, first.member_id)]
    return group, answers


def test_ten_thousand_members_join_sync_and_go_in_a_moment() -> None:
    started = time.process_time()
    group, answers = _crowd()
    assert len(answers) == CROWD
    assert len(answers[0].members) == CROWD
    assert not any(answer.members for answer in answers[1:])
    effects: list[Any] = []
    for answer in reversed(answers):
        request = SyncGroupRequest(
            group_id="g",
            generation_id=2,
            member_id=answer.member_id,
            assignments=[
                SyncGroupRequest.Assignment(member_id=one.member_id, assignment=b"1")
                for one in answer.members
            ],
        )
        effects += group.sync(answer.member_id, request, Caller("c", "/127.0.0.1", 4), 0)
    assert len(effects) == 1 + CROWD
    assert group.state is State.STABLE
    deadline_ms = group.deadline()
    assert deadline_ms is not None
    (gone,) = group.expire(deadline_ms)
    assert isinstance(gone, Append)
    assert len(group.members) == 0
    assert time.process_time() - started < ENOUGH_S


def test_of_ten_thousand_that_join_at_once_a_group_takes_as_many_as_it_may() -> None:
    group = _group(max_size=100)
    ((_, first),) = _join(group, 0)
    refused = 0
    for number in range(1, CROWD):
        refused += _codes(_join(group, number)) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    # The first one has not joined again, so a hundred others have found room.
    assert refused == CROWD - 101
    effects = _join(group, 0, first.member_id)
    assert _codes(effects).count(ErrorCode.GROUP_MAX_SIZE_REACHED) == 1
    assert _codes(effects).count(ErrorCode.NONE) == 100
    assert len(group.members) == 100


def test_ids_given_out_have_a_bound_and_the_oldest_goes_first() -> None:
    group = _group()
    given = [
        effect.response.member_id
        for _ in range(PENDING_MAX + 1)
        for effect in _join(group, "w", version=4)
    ]
    assert _codes(_join(group, "w", given[0], version=4)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert _codes(_join(group, "w", given[1], version=4)) == [ErrorCode.NONE]


def test_a_heartbeat_asks_for_no_earlier_look_and_no_search() -> None:
    group, answers = _crowd()
    before_ms = group.deadline()
    request = HeartbeatRequest(group_id="g", generation_id=2, member_id=answers[-1].member_id)
    started = time.process_time()
    for now_ms in range(5000):
        assert group.heartbeat(request, now_ms) is ErrorCode.NONE
    assert time.process_time() - started < 0.5
    assert group.deadline() == before_ms


def test_sessions_that_were_renewed_outlive_the_first_look() -> None:
    group, answers = _crowd()
    for answer in answers:
        request = HeartbeatRequest(group_id="g", generation_id=2, member_id=answer.member_id)
        group.heartbeat(request, 8000)
    deadline_ms = group.deadline()
    assert deadline_ms == 10_000
    assert group.expire(deadline_ms) == []
    assert group.deadline() == 18_000


def test_a_client_id_of_any_length_makes_an_id_that_a_record_can_hold() -> None:
    group = _group()
    effects = _join(group, "w", client_id="\N{SNOWMAN}" * 10_922)
    assert len(effects[0].response.member_id) <= ID_PREFIX_MAX + 37
    _, value = group.record()
    assert isinstance(value, GroupMetadataValue)
    assert len(value.encode(3)) > 3 * ID_PREFIX_MAX


def test_texts_that_no_record_can_hold_are_refused() -> None:
    long = "x" * 32_731
    for fields in (
        {"protocol_type": long},
        {"group_instance_id": long},
        {"protocols": [JoinGroupRequest.Protocol(name=long, metadata=b"")]},
    ):
        group = _group()
        effects = _join(group, "w", version=9, **fields)
        assert _codes(effects) == [ErrorCode.INVALID_REQUEST]
        assert group.is_forgettable()


def _stored(member_id: str, instance_id: str | None = None) -> GroupMetadataValue.Member:
    return GroupMetadataValue.Member(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=-1,
        session_timeout=10_000,
        subscription=b"s",
        assignment=b"a",
    )


def test_a_record_that_contradicts_itself_makes_a_group_that_works() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=-7,
        protocol=None,
        leader="nobody",
        members=[
            _stored("a", "one"),
            _stored("b", "one"),
            _stored("c"),
            _stored("c", "two"),
            _stored(""),
            _stored("", "two"),
        ],
    )
    group = ClassicGroup.from_record("g", value, GroupRules(), str, 0)
    assert [member.member_id for member in group.members] == ["b", ""]
    assert group.leader == "b"
    assert group.generation_id == 0
    assert group.deadline() == 10_000
    (empty,) = group.expire(10_000)
    assert isinstance(empty, Append)


def test_a_generation_never_leaves_its_32_bits() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer", generation=2**31 - 1, protocol=None, leader=None, members=[]
    )
    group = ClassicGroup.from_record("g", value, GroupRules(), str, 0)
    ((_, answer),) = _join(group, "w")
    assert answer.generation_id == 1
