"""A member of a consumer group: what it said of itself, what it has, and both as records."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from protocol.logdata.offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Protocol

    from broker.coordinator.consumer.assignors import Partitions
    from protocol.logdata.offsets import Record

    class TopicPartitions(Protocol):
        """Requests and records each have a struct of this shape."""

        topic_id: bytes
        partitions: list[int]


JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2
"""A static member that will be back within its session. Kafka stores the number as its epoch."""


class MemberState(IntEnum):
    """The state of a member on its way to its target; the number is what records hold."""

    STABLE = 0
    UNREVOKED = 1
    """It was told to give up partitions and has not said that it did."""
    UNRELEASED = 2
    """It waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """A later Kafka's."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class MemberFacts(NamedTuple):
    """A member as it described itself; `classic` is kept for members of the classic protocol.

    An empty `regex` is none. `assignor` is None if the member leaves the choice to others.
    """

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    regex: str
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = None


class Current(NamedTuple):
    """Partitions and epoch that a member has. `revoking` is its own until it gives it up."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Partitions
    revoking: Partitions


UNHEARD = MemberFacts(None, None, "", "", (), "", -1, None)
NOTHING: Partitions = {}
NEW = Current(JOIN_EPOCH, -1, MemberState.STABLE, NOTHING, NOTHING)


class Member:
    """A member of a group.

    `facts` and `current` change by records only. Times are monotonic ms: `session_ends_ms` is when
    it counts as lost, `revoked_by_ms` when it must have given up what it was told to, and
    `joined_by_ms` when it must have joined again, if it speaks the classic protocol.
    """

    __slots__ = (
        "current",
        "facts",
        "joined_by_ms",
        "member_id",
        "revoked_by_ms",
        "session_ends_ms",
    )

    def __init__(self, member_id: str, session_ends_ms: int) -> None:
        self.member_id = member_id
        self.facts = UNHEARD
        self.current = NEW
        self.session_ends_ms = session_ends_ms
        self.revoked_by_ms: int | None = None
        self.joined_by_ms: int | None = None

    def deadline(self) -> int:
        deadline_ms = self.session_ends_ms
        if self.revoked_by_ms is not None:
            deadline_ms = min(deadline_ms, self.revoked_by_ms)
        if self.joined_by_ms is not None:
            deadline_ms = min(deadline_ms, self.joined_by_ms)
        return deadline_ms


def partitions_of(entries: Iterable[TopicPartitions]) -> Partitions:
    """Partitions by topic, of a record or a request."""
    partitions: Partitions = {}
    for entry in entries:
        if entry.partitions:
            before = partitions.get(entry.topic_id)
            partitions[entry.topic_id] = (
                frozenset(entry.partitions) if before is None else before.union(entry.partitions)
            )
    return partitions


def facts_record(group_id: str, member_id: str, facts: MemberFacts) -> Record:
    return (
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=facts.instance_id,
            rack_id=facts.rack_id,
            client_id=facts.client_id,
            client_host=facts.client_host,
            subscribed_topic_names=list(facts.topic_names),
            subscribed_topic_regex=facts.regex,
            rebalance_timeout_ms=facts.rebalance_timeout_ms,
            server_assignor=facts.assignor,
            classic_member_metadata=facts.classic,
        ),
    )


def facts_of(value: ConsumerGroupMemberMetadataValue) -> MemberFacts:
    return MemberFacts(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        tuple(value.subscribed_topic_names),
        value.subscribed_topic_regex or "",
        value.rebalance_timeout_ms,
        value.server_assignor,
        value.classic_member_metadata,
    )


def current_record(group_id: str, member_id: str, current: Current) -> Record:
    def entries(
        partitions: Mapping[bytes, frozenset[int]],
    ) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
        struct = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
        return [
            struct(topic_id=topic, partitions=sorted(partitions[topic]), assignment_epochs=None)
            for topic in partitions
        ]

    return (
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=current.epoch,
            previous_member_epoch=current.previous_epoch,
            state=int(current.state),
            assigned_partitions=entries(current.assigned),
            partitions_pending_revocation=entries(current.revoking),
        ),
    )


def current_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Current:
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state),
        partitions_of(value.assigned_partitions),
        partitions_of(value.partitions_pending_revocation),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> Record:
    struct = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    return (
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                struct(topic_id=topic, partitions=sorted(numbers))
                for topic, numbers in target.items()
            ]
        ),
    )


def removal_records(group_id: str, member_id: str) -> list[Record]:
    """The member is gone, in the order in which Kafka says so."""
    return [
        (ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]
