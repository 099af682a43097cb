"""Answers of a classic group to JoinGroup, SyncGroup and LeaveGroup, as their versions want it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse
from protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.coordinator.classic.members import Members
    from protocol.messages.leave_group import LeaveGroupRequest

NULL_PROTOCOL_SINCE = 7
"""The first JoinGroup whose answer may have no protocol; before, an empty name stood for none."""
SEVERAL_LEAVE_SINCE = 3
"""The first LeaveGroup of more than one member."""


class MemberDescription(NamedTuple):
    """A member as DescribeGroups shows it; without metadata and assignment unless Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group as DescribeGroups shows it. `protocol_name` is empty unless the group is Stable."""

    state: str
    protocol_type: str
    protocol_name: str
    members: list[MemberDescription]


def join_refused(version: int, member_id: str, code: ErrorCode) -> JoinGroupResponse:
    """No place in the group; `member_id` is empty where the client is to forget the one it has."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= NULL_PROTOCOL_SINCE else "",
        leader="",
        member_id=member_id,
        members=[],
    )


def described_to_leader(members: Members, protocol: str | None) -> list[JoinGroupResponse.Member]:
    """The members as their leader needs to know them to assign."""
    return [
        JoinGroupResponse.Member(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(protocol),
        )
        for member in members
    ]


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    """No assignment."""
    return SyncGroupResponse(error_code=code, assignment=b"")


def left(
    version: int, leaving: Iterable[tuple[LeaveGroupRequest.Member, ErrorCode]]
) -> LeaveGroupResponse:
    """The result for each member; a version with one member has its code on top."""
    if version < SEVERAL_LEAVE_SINCE:
        (code,) = (code for _, code in leaving)
        return LeaveGroupResponse(error_code=code)
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            LeaveGroupResponse.Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=code,
            )
            for member, code in leaving
        ],
    )
