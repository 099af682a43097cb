"""Requests of every version that a group refuses, and the whole answers to them as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.schema import Message
    from tests.support.caller import Caller

LIVE = "refuses"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def refusals(caller: Caller) -> list[tuple[str, int, str]]:
    """The requests, their versions and the answers; unique ids are made alike."""
    return [
        (repr(request), version, _UUID.sub("UUID", repr(caller.call(request, version))))
        for request, version in _requests()
    ]


def _join(**fields: Any) -> JoinGroupRequest:
    usual: dict[str, Any] = {
        "group_id": LIVE,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequest.Protocol(name="range", metadata=b"x")],
    }
    return JoinGroupRequest(**{**usual, **fields})


def _requests() -> Iterator[tuple[Message, int]]:
    yield _join(group_instance_id="i"), 5
    for version in range(10):
        yield _join(group_id="other", member_id="z"), version
        yield _join(group_id="", session_timeout_ms=5), version
        yield _join(group_id="other", session_timeout_ms=5, member_id="z"), version
        yield _join(group_id="other", protocols=[]), version
        yield _join(group_id="other", protocol_type=""), version
        yield _join(protocol_type="connect"), version
        yield _join(member_id="z"), version
        if version >= 4:
            yield _join(group_id=f"pending-{version}"), version
        if version >= 5:
            yield _join(member_id="z", group_instance_id="i"), version
    for group_id in ("", "other", LIVE):
        for version in range(6):
            sync = SyncGroupRequest(
                group_id=group_id, generation_id=1, member_id="z", assignments=[]
            )
            yield sync, min(version, 4)
            sync.protocol_type, sync.protocol_name = "consumer", "range"
            yield sync, version
            members = [
                LeaveGroupRequest.Member(member_id="z", group_instance_id=None),
                LeaveGroupRequest.Member(member_id="z", group_instance_id="i"),
            ]
            yield LeaveGroupRequest(group_id=group_id, member_id="z", members=members), version
            yield LeaveGroupRequest(group_id=group_id, member_id="", members=[]), version
        for version in range(5):
            yield HeartbeatRequest(group_id=group_id, generation_id=1, member_id="z"), version
    for version in range(6):
        # Not "other": a refused join leaves an empty group behind in Kafka, and nothing here.
        yield DescribeGroupsRequest(groups=["", "nobody", LIVE]), version
