"""A group with members changes from one protocol to the other (KIP-848, "online migration").

Up, when a member of the newer protocol comes to a classic group: what the classic members were
assigned is what they have, their generation is the group's epoch, and each is told to join again.
Down, when the last member of the newer protocol has gone, or has come back as a classic one, and
classic ones are left: they have what they had, and rebalance among themselves. Both are records, of
which the runtime writes one batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.consumer.classic_members import PROTOCOL_TYPE, ClassicData
from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.consumer.members import (
    NOTHING,
    Current,
    MemberFacts,
    MemberState,
    current_record,
    facts_record,
    target_record,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.membership import (
    NEWEST,
    Assignment,
    assignment_of,
    encode_assignment,
    subscription_of,
)
from protocol.logdata.offsets import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from broker.coordinator.classic.group import ClassicGroup
    from broker.coordinator.classic.members import Member as ClassicMember
    from broker.coordinator.consumer.assignors import Partitions
    from broker.coordinator.consumer.members import Member
    from broker.coordinator.effects import GroupRules, TopicsView
    from protocol.logdata.membership import Subscription
    from protocol.logdata.offsets import Record

Claimed = set[tuple[bytes, int]]
"""Partitions that have an owner, by topic id."""


def upgraded(
    classic: ClassicGroup,
    rules: GroupRules,
    new_member_id: Callable[[str], str],
    topics: TopicsView,
    now_ms: int,
) -> tuple[ConsumerGroup, list[Record]]:
    """The consumer group that a classic group with members becomes, and the records that say so.

    Nothing happens to `classic`: those whose join or sync is parked there must be told that there
    is a rebalance once the records are written. Raises GROUP_ID_NOT_FOUND, with the reason, if it
    cannot be done.
    """
    if classic.protocol_type != PROTOCOL_TYPE:
        raise _cannot(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > rules.consumer_max_size:
        raise _cannot(classic, "the group size exceeds the consumer group maximum size")
    group = ConsumerGroup(classic.group_id, rules, new_member_id)
    facts, targets, current = [], [], []
    claimed: Claimed = set()
    for member in classic.members:
        said = _said(classic, member)
        partitions = _held(member, said, topics, claimed)
        member_id = member.member_id
        facts.append(facts_record(group.group_id, member_id, _facts(member, said)))
        targets.append(target_record(group.group_id, member_id, partitions))
        generation = classic.generation_id
        state = Current(generation, generation, MemberState.STABLE, partitions, NOTHING)
        current.append(current_record(group.group_id, member_id, state))
    epoch = classic.generation_id
    records = [
        (GroupMetadataKey(group=classic.group_id), None),
        *facts,
        group.epoch_record(epoch),
        *targets,
        group.target_epoch_record(epoch),
        *current,
    ]
    for key, value in records[1:]:
        group.replay(key, value, now_ms)
    return group, records


def can_be_downgraded(group: ConsumerGroup) -> bool:
    """Whether members are left, no more than a classic group may have, and all of them classic."""
    members = group.members.values()
    return 0 < len(members) <= group.rules.max_size and all(m.facts.classic for m in members)


def downgraded(group: ConsumerGroup, topics: TopicsView) -> list[Record]:
    """The records that make a classic group of a consumer group that `can_be_downgraded`.

    In its log it is Stable, with what members have for their assignments. What those who went have
    left behind is nobody's: it must be made to rebalance when the records are replayed. Also if a
    static member only changed its protocol, which in Kafka disturbs nobody: as long as no client
    knows that it leads, none would have new partitions of a topic assigned. Its generation is the
    epoch that members have reached, which the group's may have passed when the others went: so they
    go on with what they hold until they have joined.
    """
    members = list(group.members.values())
    protocol = _common_protocol(members)
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=max(member.current.epoch for member in members),
        protocol=protocol,
        leader=members[0].member_id,
        members=[_classic_member(member, protocol, topics) for member in members],
    )
    return [*group.tombstones(), (GroupMetadataKey(group=group.group_id), value)]


def _said(classic: ClassicGroup, member: ClassicMember) -> Subscription:
    data = member.metadata(classic.protocol_name)
    if not data and member.protocols:
        data = member.protocols[0][1]
    said = subscription_of(data)
    if said is None:
        raise _cannot(classic, "the embedded consumer protocol is malformed")
    return said


def _held(
    member: ClassicMember, said: Subscription, topics: TopicsView, claimed: Claimed
) -> Partitions:
    """The assignment of a member, or while that is being decided, what it says that it holds."""
    assigned = assignment_of(member.assignment)
    held: Partitions = {}
    for name, numbers in said.owned if assigned is None else assigned.partitions:
        topic = topics.get(name)
        if topic is None:
            continue
        mine = {
            number
            for number in numbers
            if 0 <= number < topic.partition_count and (topic.topic_id, number) not in claimed
        }
        if mine:
            claimed.update((topic.topic_id, number) for number in mine)
            held[topic.topic_id] = held.get(topic.topic_id, frozenset()) | mine
    return held


def _facts(member: ClassicMember, said: Subscription) -> MemberFacts:
    return MemberFacts(
        member.instance_id,
        said.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(said.topics))),
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicData(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[
                ClassicData.ClassicProtocol(name=name, metadata=data)
                for name, data in member.protocols
            ],
        ),
    )


def _common_protocol(members: Collection[Member]) -> str:
    """The first of the first member that all others speak."""
    spoken = [
        [protocol.name for protocol in member.facts.classic.supported_protocols]
        for member in members
        if member.facts.classic is not None
    ]
    return next(name for name in spoken[0] if all(name in others for others in spoken))


def _classic_member(member: Member, protocol: str, topics: TopicsView) -> GroupMetadataValue.Member:
    classic = member.facts.classic
    assert classic is not None
    metadata = next(p.metadata for p in classic.supported_protocols if p.name == protocol)
    named = [
        (topic.name, sorted(numbers))
        for topic_id, numbers in member.current.assigned.items()
        if (topic := topics.by_id(topic_id)) is not None
    ]
    version = min(int.from_bytes(metadata[:2], "big"), NEWEST)
    return GroupMetadataValue.Member(
        member_id=member.member_id,
        group_instance_id=member.facts.instance_id,
        client_id=member.facts.client_id,
        client_host=member.facts.client_host,
        rebalance_timeout=member.facts.rebalance_timeout_ms,
        session_timeout=classic.session_timeout_ms,
        subscription=metadata,
        assignment=encode_assignment(Assignment(named), version),
    )


def _cannot(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
        code=ErrorCode.GROUP_ID_NOT_FOUND,
    )
