"""What happens in a consumer group when a member says something, or says nothing more (KIP-848).

1. what the member says and the topics there are; a change of either raises the group's epoch
2. a target assignment for that epoch, by the assignor that most members ask for
3. the member's next step towards its target (`reconciliation`)

All of it is computed and nothing done: the records say what changed, for `replay` to do it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator.consumer.assignors import ASSIGNORS, Subscriber
from broker.coordinator.consumer.members import (
    JOIN_EPOCH,
    NEW,
    NOTHING,
    UNHEARD,
    Current,
    Member,
    MemberFacts,
    current_record,
    facts_record,
    removal_records,
    target_record,
)
from broker.coordinator.consumer.reconciliation import reconcile
from broker.coordinator.consumer.state import ConsumerGroupState
from broker.coordinator.consumer.subscriptions import Subscriptions, subscriptions_after
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.consumer.assignors import Partitions
    from broker.coordinator.effects import GroupRules, TopicsView
    from protocol.logdata.offsets import Record


class Standing(NamedTuple):
    """A member as a request finds it. `replaced` is the member whose place it takes, a static one
    that left for a while and came back with a new id."""

    member_id: str
    facts: MemberFacts = UNHEARD
    current: Current = NEW
    target: Partitions | None = None
    replaced: Member | None = None


class SteppingGroup(ConsumerGroupState):
    """A group that can go on. `new_member_id` makes an id that begins with its argument."""

    def __init__(
        self, group_id: str, rules: GroupRules, new_member_id: Callable[[str], str]
    ) -> None:
        super().__init__(group_id, rules)
        self._new_member_id = new_member_id
        # The topics of this version were found to be those of the group at this epoch.
        self._seen = (-1, -1)

    def _step(
        self,
        standing: Standing,
        facts: MemberFacts,
        owned: Partitions | None,
        topics: TopicsView,
    ) -> tuple[Current, list[Record]]:
        """What a member has after it said `facts`, and that it holds `owned` (None: not said)."""
        member_id = standing.member_id
        records = self._replacement_records(standing)
        if facts != standing.facts:
            records.append(facts_record(self.group_id, member_id, facts))
        said_something_new = (facts.topic_names, facts.regex) != (
            standing.facts.topic_names,
            standing.facts.regex,
        )
        epoch = self.group_epoch
        subscriptions = Subscriptions(self.metadata, self.resolved, [])
        if said_something_new or self._seen != (topics.version, epoch):
            subscriptions = subscriptions_after(self, topics, gone=[standing.facts], come=facts)
        if subscriptions.records or said_something_new or epoch == 0:
            epoch += 1
            records += subscriptions.records
            records.append(self.epoch_record(epoch))
        self._seen = (topics.version, epoch)
        target_epoch, target = self.target_epoch, standing.target or NOTHING
        if epoch > target_epoch:
            target_epoch = epoch
            target, changed = self._new_targets(standing, facts, subscriptions)
            records += changed
            records.append(self.target_epoch_record(epoch))
        current = reconcile(
            standing.current,
            target=target,
            target_epoch=target_epoch,
            owned=owned,
            taken=self._taken_from(standing),
        )
        if current is not standing.current:
            records.append(current_record(self.group_id, member_id, current))
        return current, records

    def _replacement_records(self, standing: Standing) -> list[Record]:
        """A static member that came back under a new id gets the place of the old one."""
        replaced = standing.replaced
        if replaced is None:
            return []
        group, member_id = self.group_id, standing.member_id
        return [
            *removal_records(group, replaced.member_id),
            facts_record(group, member_id, standing.facts),
            target_record(group, member_id, standing.target or NOTHING),
            current_record(group, member_id, standing.current),
        ]

    def _new_targets(
        self, standing: Standing, facts: MemberFacts, subscriptions: Subscriptions
    ) -> tuple[Partitions, list[Record]]:
        """The target of the member that asks, and the records of all that changed."""
        everyone = {member_id: member.facts for member_id, member in self.members.items()}
        targets = self.targets
        if standing.replaced is not None:
            del everyone[standing.replaced.member_id]
            targets = {**targets, standing.member_id: standing.target or NOTHING}
        everyone[standing.member_id] = facts
        topic_ids: dict[tuple[tuple[str, ...], str], tuple[bytes, ...]] = {}
        subscribers = {}
        for member_id, said in everyone.items():
            subscription = (said.topic_names, said.regex)
            if subscription not in topic_ids:
                topic_ids[subscription] = subscriptions.topic_ids(said)
            subscribers[member_id] = Subscriber(
                topic_ids[subscription], targets.get(member_id, NOTHING), said.instance_id
            )
        assign = ASSIGNORS[self.assignor(gone=standing.facts.assignor, come=facts.assignor)]
        counts = {
            topic.topic_id: topic.partition_count for topic in subscriptions.metadata.values()
        }
        assigned = assign(subscribers, counts)
        return assigned[standing.member_id], [
            target_record(self.group_id, member_id, target)
            for member_id, target in assigned.items()
            if target != targets.get(member_id)
        ]

    def _taken_from(self, standing: Standing) -> Callable[[bytes, int], bool]:
        owners = self.owners
        mine = {None, standing.member_id}
        if standing.replaced is not None:
            mine.add(standing.replaced.member_id)

        def taken(topic_id: bytes, partition: int) -> bool:
            return owners.get(topic_id, {}).get(partition) not in mine

        return taken

    def _in_place_of(self, member: Member, member_id: str) -> Standing:
        """A new process has what a static member had, and holds nothing yet."""
        standing = self._standing_of(member)
        current = standing.current._replace(
            epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, revoking=NOTHING
        )
        replaced = member if member.member_id != member_id else None
        return standing._replace(member_id=member_id, current=current, replaced=replaced)

    def _check_room(self) -> None:
        """Raises GROUP_MAX_SIZE_REACHED if no new member may come."""
        if len(self.members) >= self.rules.consumer_max_size:
            raise KafkaError(
                "The consumer group has reached its maximum capacity of "
                f"{self.rules.consumer_max_size} members.",
                code=ErrorCode.GROUP_MAX_SIZE_REACHED,
            )

    def _standing_of(self, member: Member) -> Standing:
        member_id = member.member_id
        return Standing(member_id, member.facts, member.current, self.targets.get(member_id))

    def _find(self, member_id: str, instance_id: str | None) -> Member:
        """A member that says that it is one. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is None:
            member = self.members.get(member_id)
            if member is None:
                raise KafkaError(
                    f"Member {member_id} is not a member of group {self.group_id}.",
                    code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
            return member
        member = self.members.get(self.static_members.get(instance_id, ""))
        if member is None:
            raise KafkaError(
                f"Instance id {instance_id} is unknown.", code=ErrorCode.UNKNOWN_MEMBER_ID
            )
        if member.member_id != member_id:
            raise KafkaError(
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.member_id}.",
                code=ErrorCode.FENCED_INSTANCE_ID,
            )
        return member

    # Those who go

    def _remove(self, members: list[Member], topics: TopicsView) -> list[Record]:
        """The group's next epoch, without them. Who is left computes its target."""
        after = subscriptions_after(self, topics, gone=[member.facts for member in members])
        epoch = self.group_epoch + 1
        self._seen = (topics.version, epoch)
        records: list[Record] = []
        for member in members:
            records += removal_records(self.group_id, member.member_id)
        return [*records, *after.records, self.epoch_record(epoch)]

    def expire(self, topics: TopicsView, now_ms: int) -> list[Record]:
        """Those who were not heard of within their session go, and those who do not give up what
        they were told to within their rebalance timeout."""
        members = self.members.values()
        due = [member for member in members if member.deadline() <= now_ms]
        self._deadline_ms = min((member.deadline() for member in members), default=None)
        return self._remove(due, topics) if due else []

    # Records

    def epoch_record(self, epoch: int) -> Record:
        return (
            ConsumerGroupMetadataKey(group_id=self.group_id),
            ConsumerGroupMetadataValue(epoch=epoch),
        )

    def target_epoch_record(self, epoch: int) -> Record:
        return (
            ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
        )
