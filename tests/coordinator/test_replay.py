"""The replay of records: groups that come, change their kind, and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.effects import GroupRules
from broker.coordinator.loading.replay import replay
from broker.coordinator.shard_state import ShardState
from protocol.logdata.offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from protocol.logdata.offsets import Record

TOPIC = bytes(15) + b"\x07"
NOW_MS = 1_000_000

_Held = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
_Target = ConsumerGroupTargetAssignmentMemberValue.TopicPartition


def new_state() -> ShardState:
    return ShardState(GroupRules(), lambda prefix: f"{prefix}-1")


def replayed(*records: Record, state: ShardState | None = None) -> ShardState:
    state = state or new_state()
    for key, value in records:
        replay(state, key, value, now_ms=NOW_MS)
    return state


def classic(group: str = "g", generation: int = 3, members: tuple[str, ...] = ("m",)) -> Record:
    stored = [
        GroupMetadataValue.Member(
            member_id=member,
            client_id="c",
            client_host="/h",
            session_timeout=10_000,
            rebalance_timeout=60_000,
            subscription=b"",
            assignment=b"",
        )
        for member in members
    ]
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range" if members else None,
        leader=members[0] if members else None,
        current_state_timestamp=5,
        members=stored,
    )
    return GroupMetadataKey(group=group), value


NO_CLASSIC: Record = (GroupMetadataKey(group="g"), None)


def consumer(group: str = "g", member: str = "m") -> list[Record]:
    """What Kafka writes when the first member joins, in its order."""
    facts = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="",
        rebalance_timeout_ms=300_000,
        server_assignor=None,
    )
    topic = ConsumerGroupPartitionMetadataValue.TopicMetadata(
        topic_id=TOPIC, topic_name="t", num_partitions=2, partition_metadata=[]
    )
    return [
        (ConsumerGroupMemberMetadataKey(group_id=group, member_id=member), facts),
        (
            ConsumerGroupPartitionMetadataKey(group_id=group),
            ConsumerGroupPartitionMetadataValue(topics=[topic]),
        ),
        (ConsumerGroupMetadataKey(group_id=group), ConsumerGroupMetadataValue(epoch=1)),
        (
            ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member),
            ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[_Target(topic_id=TOPIC, partitions=[0, 1])]
            ),
        ),
        (
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=1),
        ),
        (
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=1,
                previous_member_epoch=0,
                state=0,
                assigned_partitions=[_Held(topic_id=TOPIC, partitions=[0, 1])],
                partitions_pending_revocation=[],
            ),
        ),
    ]


def gone(records: list[Record]) -> list[Record]:
    return [(key, None) for key, _ in reversed(records)]


def tombstones(state: ShardState, group_id: str = "g") -> list[Record]:
    group = state.groups[group_id]
    assert isinstance(group, ConsumerGroup)
    return group.tombstones()


def test_an_offset_is_set_and_removed() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    value = OffsetCommitValue(
        offset=5, leader_epoch=2, metadata="m", commit_timestamp=7000, expire_timestamp=9000
    )
    state = replayed((key, value))
    found = state.offsets.get("g", "t", 1)
    assert found == (5, 2, "m", 7000, 9000)
    assert not state.groups, "a group of offsets alone has no record of its own"
    replayed((key, None), state=state)
    assert state.offsets.get("g", "t", 1) is None


def test_a_classic_group_is_what_its_last_record_says() -> None:
    state = replayed(classic(generation=3), classic(generation=4, members=("a", "b")))
    group = state.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.generation_id == 4
    assert sorted(member.member_id for member in group.members) == ["a", "b"]
    assert group.state.value == "Stable"
    deadline = group.deadline()
    assert deadline is not None
    assert deadline >= NOW_MS + 10_000, "each member has its whole session from the start"


def test_a_classic_group_without_members_is_empty_and_its_tombstone_removes_it() -> None:
    state = replayed(classic(members=()))
    group = state.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state.value == "Empty"
    assert not replayed(NO_CLASSIC, state=state).groups
    assert not replayed(NO_CLASSIC, state=state).groups, "and may come twice"


def test_a_consumer_group_comes_with_its_first_record() -> None:
    state = replayed(*consumer())
    group = state.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert group.group_epoch == 1
    assert list(group.members) == ["m"]
    assert group.state == "Stable"


def test_a_consumer_group_goes_with_the_tombstone_of_its_epoch() -> None:
    state = replayed(*consumer())
    group = state.groups["g"]
    assert not replayed(*tombstones(state), state=state).groups
    assert group.state == "Dead"
    assert not replayed(*gone(consumer()), state=state).groups, "tombstones of nothing are nothing"


def test_a_member_that_leaves_takes_nobody_with_it() -> None:
    both = consumer() + consumer(member="n")
    leaving = [(key, None) for key, _ in both if getattr(key, "member_id", "") == "m"]
    group = replayed(*both, *reversed(leaving)).groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert list(group.members) == ["n"]


def test_a_group_changes_from_classic_to_consumer() -> None:
    """Kafka writes the tombstone of the one and the records of the other in one batch."""
    state = replayed(classic(), NO_CLASSIC, *consumer())
    assert isinstance(state.groups["g"], ConsumerGroup)
    # Compaction may take the tombstone away, or leave it alone.
    assert isinstance(replayed(classic(), *consumer()).groups["g"], ConsumerGroup)
    assert isinstance(replayed(*consumer(), NO_CLASSIC).groups["g"], ConsumerGroup)


def test_a_group_changes_from_consumer_to_classic() -> None:
    state = replayed(*consumer())
    state = replayed(*tombstones(state), classic(), state=state)
    assert isinstance(state.groups["g"], ClassicGroup)
    assert isinstance(replayed(*consumer(), classic()).groups["g"], ClassicGroup)
    left = replayed(classic(), *gone(consumer())).groups["g"]
    assert isinstance(left, ClassicGroup), "what the change left behind says nothing"


def test_offsets_stay_when_the_group_changes_its_kind_or_goes() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=7000)
    state = replayed((key, value), classic(), NO_CLASSIC, *consumer(), *gone(consumer()))
    assert state.offsets.get("g", "t", 1) is not None
