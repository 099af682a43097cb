"""The requests of classic members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

They meet a classic group, or a consumer group that is being migrated (KIP-848) and has members of
both protocols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.classic_members import (
    classic_heartbeat,
    classic_join,
    classic_leave,
    classic_sync,
)
from broker.coordinator.consumer.group import ConsumerGroup
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.classic.arrivals import Arrivals
    from broker.coordinator.consumer.requests import ConsumerProtocol
    from broker.coordinator.effects import Caller
    from broker.coordinator.runtime import GroupRuntime
    from broker.coordinator.shard import Shard
    from broker.coordinator.waits import GroupWait
    from protocol.messages.heartbeat import HeartbeatRequest
    from protocol.messages.join_group import JoinGroupRequest
    from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from protocol.messages.sync_group import SyncGroupRequest


class ClassicProtocol:
    """Hands each request to its group and has carried out what that asks for."""

    def __init__(
        self,
        runtime: GroupRuntime,
        consumer: ConsumerProtocol,
        arrivals: Arrivals,
        new_member_id: Callable[[str], str],
    ) -> None:
        self._runtime = runtime
        self._consumer = consumer
        self._arrivals = arrivals
        self._new_member_id = new_member_id

    def join(self, wait: GroupWait, request: JoinGroupRequest, caller: Caller) -> None:
        """JoinGroup; `wait` is answered now or when the others have come. Raises KafkaError."""
        group_id = request.group_id
        if not group_id:
            raise KafkaError("a group needs an id", code=ErrorCode.INVALID_GROUP_ID)
        runtime = self._runtime
        shard = runtime.shard(group_id)
        group = shard.state.groups.get(group_id)
        now_ms = runtime.now_ms()
        if isinstance(group, ConsumerGroup) and not group.is_empty():
            topics = runtime.topics.for_caller(caller)
            response, records = classic_join(group, request, caller, topics, now_ms)
            if records:
                runtime.store(shard, records)
            # It may have taken the place of the last member of the newer protocol, or been it.
            self._consumer.settle(shard, group)
            now = shard.state.groups.get(group_id)
            if isinstance(now, ClassicGroup):
                # Its sync is met there, and must name the protocol that this group has chosen.
                response.protocol_name = now.protocol_name
            runtime.answer(shard, [(wait, response)])
            return
        if isinstance(group, ConsumerGroup):
            runtime.store(shard, group.tombstones())
            group = None
        if group is None:
            group = ClassicGroup(group_id, runtime.rules, self._new_member_id)
            shard.state.groups[group_id] = group
        runtime.carry_out(shard, group, group.join(wait, request, caller, now_ms, self._arrivals))

    def sync(self, wait: GroupWait, request: SyncGroupRequest, caller: Caller) -> None:
        """SyncGroup; `wait` is answered now or when the leader has sent what it decided.
        Raises KafkaError."""
        runtime = self._runtime
        shard, group = self._find(request.group_id)
        now_ms = runtime.now_ms()
        if isinstance(group, ConsumerGroup):
            response = classic_sync(group, request, caller, runtime.topics, now_ms)
            runtime.answer(shard, [(wait, response)])
            runtime.look_again(shard, group)
            return
        runtime.carry_out(shard, group, group.sync(wait, request, caller, now_ms, self._arrivals))

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat. Raises KafkaError."""
        runtime = self._runtime
        shard, group = self._find(request.group_id)
        if isinstance(group, ClassicGroup):
            return group.heartbeat(request, runtime.now_ms())
        code = classic_heartbeat(group, request, runtime.now_ms())
        runtime.look_again(shard, group)
        return code

    def leave(self, request: LeaveGroupRequest, caller: Caller) -> LeaveGroupResponse:
        """LeaveGroup. Raises KafkaError."""
        runtime = self._runtime
        try:
            shard, group = self._find(request.group_id)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            # Every member named is told so: the request itself is in order.
            nobody = ClassicGroup(request.group_id, runtime.rules, self._new_member_id)
            return nobody.leave(request, caller, runtime.now_ms())[0]
        if isinstance(group, ConsumerGroup):
            response, records = classic_leave(group, request, caller, runtime.topics)
            if records:
                runtime.store(shard, records)
                self._consumer.settle(shard, group)
            return response
        response, effects = group.leave(request, caller, runtime.now_ms())
        runtime.carry_out(shard, group, effects)
        return response

    def _find(self, group_id: str) -> tuple[Shard, ClassicGroup | ConsumerGroup]:
        """A group by its id. Raises KafkaError: UNKNOWN_MEMBER_ID if there is none, for then nobody
        can be a member of it."""
        if not group_id:
            raise KafkaError("a group needs an id", code=ErrorCode.INVALID_GROUP_ID)
        shard = self._runtime.existing_shard(group_id)
        group = None if shard is None else shard.state.groups.get(group_id)
        if shard is None or group is None:
            raise KafkaError(code=ErrorCode.UNKNOWN_MEMBER_ID)
        return shard, group
