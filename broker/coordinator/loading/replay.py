"""The meaning of each record of `__consumer_offsets`: the only place where one changes memory.

An operation computes records; they are written, and then replayed here. A start replays the log.
So what clients saw is what they will see after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.group import ConsumerGroup
from protocol.logdata.offsets import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from broker.coordinator.shard_state import ShardState
    from protocol.schema import Struct


def replay(state: ShardState, key: Struct, value: Struct | None, *, now_ms: int) -> None:
    """Let `state` be what it is after this record; None is a tombstone.

    `now_ms` is monotonic: from then on the members of a classic group have their session time.
    A group has one kind at a time. A record of the other kind, in the order of the log, means that
    it changed; a tombstone of the other kind is what the change left behind, and says nothing.
    """
    if isinstance(key, OffsetCommitKey):
        _replay_offset(state, key, value)
    elif isinstance(key, GroupMetadataKey):
        _replay_classic(state, key.group, value, now_ms)
    else:
        _replay_consumer(state, key, value, now_ms)


def _replay_offset(state: ShardState, key: OffsetCommitKey, value: Struct | None) -> None:
    if value is None:
        state.offsets.remove(key.group, key.topic, key.partition)
        return
    assert isinstance(value, OffsetCommitValue)
    state.offsets.commit(
        key.group,
        key.topic,
        key.partition,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
    )


def _replay_classic(state: ShardState, group_id: str, value: Struct | None, now_ms: int) -> None:
    if value is None:
        if isinstance(state.groups.get(group_id), ClassicGroup):
            del state.groups[group_id]
        return
    assert isinstance(value, GroupMetadataValue)
    state.groups[group_id] = ClassicGroup.from_record(
        group_id, value, state.rules, state.new_member_id, now_ms
    )


def _replay_consumer(state: ShardState, key: Any, value: Struct | None, now_ms: int) -> None:
    group_id: str = key.group_id
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        group = ConsumerGroup(group_id, state.rules, state.new_member_id)
        group.replay(key, value, now_ms)
        state.groups[group_id] = group
        return
    group.replay(key, value, now_ms)
    if value is None and isinstance(key, ConsumerGroupMetadataKey):
        del state.groups[group_id]
