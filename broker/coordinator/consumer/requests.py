"""The requests of members of the newer protocol (KIP-848), and migration between the protocols.

A group without members takes the protocol of whoever comes. One with members is migrated as
`group.consumer.migration.policy` allows: up when the first member of the newer protocol comes, down
when the last of them has gone, or speaks the classic one from now on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.consumer.request_checks import check_request
from broker.coordinator.migration import can_be_downgraded, downgraded, upgraded
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import GroupMetadataKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.effects import Caller
    from broker.coordinator.runtime import GroupRuntime
    from broker.coordinator.shard import Shard
    from config import BrokerSettings
    from protocol.logdata.offsets import Record
    from protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )


class ConsumerProtocol:
    """Hands each heartbeat to its group, writes what that records, and migrates groups."""

    def __init__(
        self,
        runtime: GroupRuntime,
        settings: BrokerSettings,
        new_member_id: Callable[[str], str],
    ) -> None:
        self._runtime = runtime
        self._new_member_id = new_member_id
        policy = settings.group_consumer_migration_policy.lower()
        self._upgrades = policy in ("upgrade", "bidirectional")
        self._downgrades = policy in ("downgrade", "bidirectional")
        self.is_offered = "consumer" in settings.group_coordinator_rebalance_protocols

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> tuple[Shard, ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat: the shard it was about, and the answer. Raises KafkaError."""
        runtime, group_id = self._runtime, request.group_id
        joins = request.member_epoch == 0
        shard = runtime.shard(group_id) if joins else runtime.existing_shard(group_id)
        known = None if shard is None else shard.state.groups.get(group_id)
        if not isinstance(known, ConsumerGroup):
            check_request(request, caller, runtime.rules)
        if known is None and not joins:
            raise KafkaError(f"Group {group_id} not found.", code=ErrorCode.GROUP_ID_NOT_FOUND)
        assert shard is not None
        if isinstance(known, ClassicGroup):
            return shard, self._replace(shard, known, request, caller)
        group = known or ConsumerGroup(group_id, runtime.rules, self._new_member_id)
        topics = runtime.topics.for_caller(caller)
        response, records = group.heartbeat(request, caller, topics, runtime.now_ms())
        if records:
            shard.write_records(records)
            shard.state.groups[group_id] = group
            runtime.replay(shard, records)
            self.settle(shard, group)
        return shard, response

    def expire(self, shard: Shard, group: ConsumerGroup, now_ms: int) -> None:
        """Let go of members whose time is over. Raises KafkaError."""
        records = group.expire(self._runtime.topics, now_ms)
        if records:
            self._runtime.store(shard, records)
        self.settle(shard, group)

    def _replace(
        self,
        shard: Shard,
        classic: ClassicGroup,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
    ) -> ConsumerGroupHeartbeatResponse:
        """A member of the newer protocol comes to a classic group: from now on it is a consumer
        group, and its classic members are told to join again."""
        runtime = self._runtime
        now_ms = runtime.now_ms()
        replaced: list[Record]
        if request.member_epoch != 0 or not (classic.is_empty() or self._upgrades):
            raise KafkaError(
                f"Group {classic.group_id} is not a consumer group.",
                code=ErrorCode.GROUP_ID_NOT_FOUND,
            )
        if classic.is_empty():
            group = ConsumerGroup(classic.group_id, runtime.rules, self._new_member_id)
            replaced = [(GroupMetadataKey(group=classic.group_id), None)]
        else:
            group, replaced = upgraded(
                classic, runtime.rules, self._new_member_id, runtime.topics, now_ms
            )
        topics = runtime.topics.for_caller(caller)
        response, records = group.heartbeat(request, caller, topics, now_ms)
        shard.write_records([*replaced, *records])
        shard.state.groups[classic.group_id] = group
        runtime.replay(shard, records)
        runtime.forget(classic.group_id)
        runtime.answer(shard, classic.give_way())
        runtime.look_again(shard, group)
        return response

    def settle(self, shard: Shard, group: ConsumerGroup) -> None:
        """After a change of members: the group goes on, or becomes a classic one again."""
        runtime, group_id = self._runtime, group.group_id
        if shard.state.groups.get(group_id) is not group:
            runtime.forget(group_id)
            return
        if self._downgrades and can_be_downgraded(group):
            runtime.store(shard, downgraded(group, runtime.topics))
            classic = shard.state.groups[group_id]
            assert isinstance(classic, ClassicGroup)
            runtime.forget(group_id)
            runtime.carry_out(shard, classic, classic.rebalance(runtime.now_ms()))
            return
        runtime.look_again(shard, group)
