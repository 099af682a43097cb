"""One consumer group (KIP-848) as the records of `__consumer_offsets` have it.

Nothing here changes but by a record. Records come in the order in which they were written, with
gaps where the log has been compacted: a member's target may stand before the member.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.coordinator.consumer.members import (
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    NEW,
    NOTHING,
    UNHEARD,
    Current,
    Member,
    MemberFacts,
    MemberState,
    current_of,
    facts_of,
    partitions_of,
    removal_records,
)
from protocol.logdata.offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.consumer.assignors import Partitions
    from broker.coordinator.effects import ConsumerTimes, GroupRules
    from protocol.logdata.offsets import Record
    from protocol.schema import Struct


class SubscribedTopic(NamedTuple):
    """A topic as it was when the group's epoch last changed."""

    topic_id: bytes
    partition_count: int


class SharedGroup(NamedTuple):
    """A consumer group as it was written; any thread may read it. What is in it nobody changes."""

    group_id: str
    group_epoch: int
    target_epoch: int
    members: list[tuple[str, MemberFacts, Current]]
    targets: dict[str, Partitions]
    metadata: dict[str, SubscribedTopic]
    resolved: dict[str, frozenset[str]]


class ConsumerGroupState:
    """A consumer group as far as it has been written.

    group_epoch   grows with every change of members, subscriptions and subscribed topics
    target_epoch  the group's epoch that `targets` were computed for
    metadata      the subscribed topics that exist, by name
    resolved      the topics that each regular expression in use matches
    owners        who has a partition now, or has yet to give it up, by topic id and partition
    """

    kind = "consumer"

    def __init__(self, group_id: str, rules: GroupRules) -> None:
        self.group_id = group_id
        self.rules = rules
        self.group_epoch = 0
        self.target_epoch = 0
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Partitions] = {}
        self.metadata: dict[str, SubscribedTopic] = {}
        self.resolved: dict[str, frozenset[str]] = {}
        self.owners: dict[bytes, dict[int, str]] = {}
        # How many members say so.
        self.topic_names: Counter[str] = Counter()
        self.regexes: Counter[str] = Counter()
        self.assignors: Counter[str] = Counter()
        self._dead = False
        self._deadline_ms: int | None = None

    @property
    def state(self) -> str:
        """Kafka's name of it."""
        if self._dead:
            return "Dead"
        if not self.members:
            return "Empty"
        if self.group_epoch > self.target_epoch:
            return "Assigning"
        done = (MemberState.STABLE, self.target_epoch)
        if all((m.current.state, m.current.epoch) == done for m in self.members.values()):
            return "Stable"
        return "Reconciling"

    def is_empty(self) -> bool:
        """Whether it may be deleted."""
        return not self.members

    def subscribed_topics(self) -> set[str]:
        """By name or by expression, whether they exist or not."""
        return set(self.topic_names).union(*self.resolved.values())

    def deadline(self) -> int | None:
        """Latest time for a call of `expire`, monotonic ms; None if there is nothing to wait for.

        It may be too early: heartbeats put off what they do not look for.
        """
        return self._deadline_ms if self.members else None

    @property
    def times(self) -> ConsumerTimes:
        """The times of this group, which may change at any time, else the broker's."""
        rules = self.rules
        return rules.own_times.get(self.group_id, rules.consumer_times)

    def session_timeout_ms(self, facts: MemberFacts) -> int:
        """Members of the classic protocol have asked for theirs."""
        if facts.classic is not None:
            return facts.classic.session_timeout_ms
        return self.times.session_timeout_ms

    def tombstones(self) -> list[Record]:
        """All that there is of the group goes, in Kafka's order."""
        group = self.group_id
        current, target, facts = [], [], []
        for member_id in self.members:
            first, second, third = removal_records(group, member_id)
            current.append(first)
            target.append(second)
            facts.append(third)
        return [
            *current,
            *target,
            (ConsumerGroupTargetAssignmentMetadataKey(group_id=group), None),
            *facts,
            *(
                (ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=regex), None)
                for regex in self.resolved
            ),
            (ConsumerGroupPartitionMetadataKey(group_id=group), None),
            (ConsumerGroupMetadataKey(group_id=group), None),
        ]

    def share(self) -> SharedGroup:
        """All that has been written of it, as it is now."""
        return SharedGroup(
            self.group_id,
            self.group_epoch,
            self.target_epoch,
            [(member.member_id, member.facts, member.current) for member in self.members.values()],
            dict(self.targets),
            self.metadata,
            dict(self.resolved),
        )

    def assignor(self, *, gone: str | None = None, come: str | None = None) -> str:
        """The one that most members ask for after a change of one's mind, or our first."""
        counts = self.assignors + Counter(_given(come))
        counts.subtract(_given(gone))
        return max(self.rules.assignors, key=lambda name: counts[name])

    # Replay

    def replay(self, key: Struct, value: Struct | None, now_ms: int) -> None:
        """Believe one record of this group. Its state is "Dead" after the last of `tombstones`."""
        _REPLAY[type(key)](self, key, value, now_ms)

    def _replay_epoch(
        self, _key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None, _now_ms: int
    ) -> None:
        self._dead = value is None
        if value is not None:
            self.group_epoch = value.epoch

    def _replay_metadata(
        self,
        _key: ConsumerGroupPartitionMetadataKey,
        value: ConsumerGroupPartitionMetadataValue | None,
        _now_ms: int,
    ) -> None:
        topics = () if value is None else value.topics
        self.metadata = {
            topic.topic_name: SubscribedTopic(topic.topic_id, topic.num_partitions)
            for topic in topics
        }

    def _replay_facts(
        self,
        key: ConsumerGroupMemberMetadataKey,
        value: ConsumerGroupMemberMetadataValue | None,
        now_ms: int,
    ) -> None:
        if value is not None:
            self._set_facts(self._member(key.member_id, now_ms), facts_of(value), now_ms)
            return
        member = self.members.pop(key.member_id, None)
        if member is not None:
            self._set_facts(member, UNHEARD, now_ms)
            self._set_current(member, NEW, now_ms)

    def _replay_target_epoch(
        self,
        _key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
        _now_ms: int,
    ) -> None:
        self.target_epoch = -1 if value is None else value.assignment_epoch

    def _replay_target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
        _now_ms: int,
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = partitions_of(value.topic_partitions)

    def _replay_current(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
        now_ms: int,
    ) -> None:
        if value is not None:
            self._set_current(self._member(key.member_id, now_ms), current_of(value), now_ms)
        elif key.member_id in self.members:
            gone = Current(LEAVE_EPOCH, LEAVE_EPOCH, MemberState.STABLE, NOTHING, NOTHING)
            self._set_current(self.members[key.member_id], gone, now_ms)

    def _replay_regex(
        self,
        key: ConsumerGroupRegularExpressionKey,
        value: ConsumerGroupRegularExpressionValue | None,
        _now_ms: int,
    ) -> None:
        if value is None:
            self.resolved.pop(key.regular_expression, None)
        else:
            self.resolved[key.regular_expression] = frozenset(value.topics)

    def _member(self, member_id: str, now_ms: int) -> Member:
        member = self.members.get(member_id)
        if member is None:
            member = Member(member_id, now_ms + self.times.session_timeout_ms)
            self.members[member_id] = member
            self.look_at(member.session_ends_ms)
        return member

    def _set_facts(self, member: Member, facts: MemberFacts, now_ms: int) -> None:
        before, member.facts = member.facts, facts
        _recount(self.topic_names, before.topic_names, facts.topic_names)
        _recount(self.regexes, _given(before.regex), _given(facts.regex))
        _recount(self.assignors, _given(before.assignor), _given(facts.assignor))
        if self.static_members.get(before.instance_id or "") == member.member_id:
            del self.static_members[before.instance_id or ""]
        if facts.instance_id is not None:
            self.static_members[facts.instance_id] = member.member_id
        if facts.classic is None:
            member.joined_by_ms = None
        else:
            member.session_ends_ms = now_ms + facts.classic.session_timeout_ms
            self.look_at(member.session_ends_ms)
        self._time_revocation(member, now_ms)

    def _set_current(self, member: Member, current: Current, now_ms: int) -> None:
        before, member.current = member.current, current
        for partitions in (before.assigned, before.revoking):
            self._disown(partitions, member.member_id)
        for partitions in (current.assigned, current.revoking):
            for topic, numbers in partitions.items():
                owned = self.owners.setdefault(topic, {})
                for number in numbers:
                    owned[number] = member.member_id
        self._time_revocation(member, now_ms)

    def _disown(self, partitions: Partitions, member_id: str) -> None:
        for topic, numbers in partitions.items():
            owned = self.owners.get(topic, {})
            for number in numbers:
                if owned.get(number) == member_id:
                    del owned[number]
            if not owned:
                self.owners.pop(topic, None)

    def _time_revocation(self, member: Member, now_ms: int) -> None:
        current, timeout_ms = member.current, member.facts.rebalance_timeout_ms
        away = current.epoch == LEAVE_FOR_A_WHILE_EPOCH
        if current.state != MemberState.UNREVOKED or away or timeout_ms < 0:
            member.revoked_by_ms = None
            return
        member.revoked_by_ms = now_ms + timeout_ms
        self.look_at(member.revoked_by_ms)

    def look_at(self, deadline_ms: int) -> None:
        """Have `expire` called by then at the latest."""
        if self._deadline_ms is None or deadline_ms < self._deadline_ms:
            self._deadline_ms = deadline_ms


def _given(value: str | None) -> tuple[str, ...]:
    return (value,) if value else ()


def _recount(counts: Counter[str], before: tuple[str, ...], after: tuple[str, ...]) -> None:
    if before == after:
        return
    counts.update(after)
    for name in before:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]


_REPLAY: dict[type[Struct], Callable[[ConsumerGroupState, Any, Any, int], None]] = {
    ConsumerGroupMetadataKey: ConsumerGroupState._replay_epoch,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupState._replay_metadata,
    ConsumerGroupMemberMetadataKey: ConsumerGroupState._replay_facts,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupState._replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupState._replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupState._replay_current,
    ConsumerGroupRegularExpressionKey: ConsumerGroupState._replay_regex,
}
