"""A consumer group of the newer protocol (KIP-848), by its one request: the heartbeat.

1. what the member says and the topics there are; a change of either raises the group's epoch
2. a target assignment for that epoch, by the assignor that most members ask for
3. the member's next step towards its target (`reconciliation`)

An operation looks at what is written and at the request, and gives an answer and records; it
changes no more than when a member was last heard of. The runtime writes the records, has them
replayed, and then lets the answer go. If they cannot be written, nothing has happened, and the
client's next attempt finds the group as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator.consumer.assignors import ASSIGNORS, Subscriber
from broker.coordinator.consumer.description import described
from broker.coordinator.consumer.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    NEW,
    NOTHING,
    UNHEARD,
    Current,
    Member,
    MemberFacts,
    MemberState,
    current_record,
    facts_record,
    partitions_of,
    removal_records,
    target_record,
)
from broker.coordinator.consumer.reconciliation import reconcile
from broker.coordinator.consumer.request_checks import check_request, is_full, updated_facts
from broker.coordinator.consumer.state import ConsumerGroupState
from broker.coordinator.consumer.subscriptions import Subscriptions, subscriptions_after
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.consumer.assignors import Partitions
    from broker.coordinator.effects import Caller, GroupRules, TopicsView
    from protocol.logdata.offsets import Record
    from protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse

COMMITS_WITH_MEMBER_EPOCH = 9
"""The first version of OffsetCommit that members of such groups may use."""


class Standing(NamedTuple):
    """A member as a request finds it. `replaced` is the member whose place it takes, a static one
    that left for a while and came back with a new id."""

    member_id: str
    facts: MemberFacts = UNHEARD
    current: Current = NEW
    target: Partitions | None = None
    replaced: Member | None = None


class ConsumerGroup(ConsumerGroupState):
    """One group. `new_member_id` makes the id of a member that has none, from its client id.

    `classic_members` has its requests of the classic protocol, for a group that is being migrated.
    """

    def __init__(
        self, group_id: str, rules: GroupRules, new_member_id: Callable[[str], str]
    ) -> None:
        super().__init__(group_id, rules)
        self.new_member_id = new_member_id
        # The topics of this version were found to be those of the group at this epoch.
        self._seen = (-1, -1)

    # The heartbeat

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        topics: TopicsView,
        now_ms: int,
    ) -> tuple[ConsumerGroupHeartbeatResponse, list[Record]]:
        """The answer and what must be written before it may be sent.

        Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION,
        GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID,
        UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED.
        """
        member = self.members.get(request.member_id)
        if member is not None and self._has_no_news(member, request, caller, topics.version):
            member.session_ends_ms = now_ms + self.times.session_timeout_ms
            return self._answer(member.member_id, request.member_epoch), []
        check_request(request, caller, self.rules)
        if request.member_epoch != JOIN_EPOCH and not (self.group_epoch or self.members):
            raise KafkaError(f"Group {self.group_id} not found.", code=ErrorCode.GROUP_ID_NOT_FOUND)
        if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            return self._leave_for_a_while(request)
        if request.member_epoch == LEAVE_EPOCH:
            leaving = self.find(request.member_id, request.instance_id)
            records = self.remove([leaving], topics)
            return self._answer(leaving.member_id, LEAVE_EPOCH, interval_ms=0), records
        return self._advance(request, caller, topics, now_ms)

    def _has_no_news(
        self,
        member: Member,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        topics_version: int,
    ) -> bool:
        """The common case, of which there may be thousands each second."""
        facts = member.facts
        current = member.current
        epoch = self.group_epoch
        return (
            request.member_epoch == current.epoch == self.target_epoch == epoch
            and current.state == MemberState.STABLE
            and self._seen == (topics_version, epoch)
            and request.subscribed_topic_names is None
            and request.rebalance_timeout_ms == -1
            and request.subscribed_topic_regex is None
            and request.server_assignor is None
            and request.rack_id is None
            and (request.instance_id is None or request.instance_id == facts.instance_id)
            and caller.client_id == facts.client_id
            and caller.client_host == facts.client_host
        )

    def _answer(
        self, member_id: str, epoch: int, *, interval_ms: int | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=(
                self.times.heartbeat_interval_ms if interval_ms is None else interval_ms
            ),
        )

    def _advance(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        topics: TopicsView,
        now_ms: int,
    ) -> tuple[ConsumerGroupHeartbeatResponse, list[Record]]:
        standing = self._standing(request, caller)
        member_id = standing.member_id
        facts = updated_facts(standing.facts, request, caller)
        owned = request.topic_partitions
        current, records = self.step(
            standing, facts, None if owned is None else partitions_of(owned), topics
        )
        member = self.members.get(member_id)
        if member is not None:
            member.session_ends_ms = now_ms + self.times.session_timeout_ms
        response = self._answer(member_id, current.epoch)
        if (
            request.member_epoch == JOIN_EPOCH
            or request.member_epoch != standing.current.epoch  # it missed an answer
            or is_full(request)
            or current.assigned != standing.current.assigned
        ):
            response.assignment = _assignment(current.assigned)
        return response, records

    # The next step

    def step(
        self,
        standing: Standing,
        facts: MemberFacts,
        owned: Partitions | None,
        topics: TopicsView,
    ) -> tuple[Current, list[Record]]:
        """The member after it said `facts`, and that it holds `owned` (None: not said)."""
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

    # Standing

    def _standing(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Standing:
        """Raises KafkaError if it may not be here, or not like this."""
        if request.member_epoch != JOIN_EPOCH:
            member = self.find(request.member_id, request.instance_id)
            self._check_epoch(member, request)
            return self.standing_of(member)
        member_id = request.member_id or self.new_member_id(caller.client_id)
        known = self.members.get(member_id)
        if request.instance_id is not None:
            static = self.members.get(self.static_members.get(request.instance_id, ""))
            if static is not None and static is not known:
                # One that spoke the classic protocol cannot say that it will be back.
                free = static.current.epoch == LEAVE_FOR_A_WHILE_EPOCH or static.facts.classic
                if known is not None or not free:
                    raise KafkaError(
                        f"Static member {member_id} with instance id {request.instance_id} cannot "
                        f"join the group because the instance id is owned by {static.member_id} "
                        "member.",
                        code=ErrorCode.UNRELEASED_INSTANCE_ID,
                    )
                known = static
        if known is None:
            self.check_room()
            return Standing(member_id)
        if known.member_id == member_id and known.current.epoch != LEAVE_FOR_A_WHILE_EPOCH:
            return self.standing_of(known)
        return self.in_place_of(known, member_id)

    def _check_epoch(self, member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
        """The epoch before is right too if the answer that raised it may have been lost: what the
        member holds is then no more than what it was given."""
        epoch, known = request.member_epoch, member.current
        if epoch == known.epoch:
            return
        if epoch == known.previous_epoch < known.epoch and request.topic_partitions is not None:
            owned = partitions_of(request.topic_partitions)
            if all(owned[topic] <= known.assigned.get(topic, frozenset()) for topic in owned):
                return
        size = "greater" if epoch > known.epoch else "smaller"
        raise KafkaError(
            f"The consumer group member has a {size} member epoch ({epoch}) than the one known by "
            f"the group coordinator ({known.epoch}). The member must abandon all its partitions "
            "and rejoin.",
            code=ErrorCode.FENCED_MEMBER_EPOCH,
        )

    def in_place_of(self, member: Member, member_id: str) -> Standing:
        """A new process has what a static member had, and holds nothing yet."""
        standing = self.standing_of(member)
        current = standing.current._replace(
            epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, revoking=NOTHING
        )
        replaced = member if member.member_id != member_id else None
        return standing._replace(member_id=member_id, current=current, replaced=replaced)

    def check_room(self) -> None:
        """Raises GROUP_MAX_SIZE_REACHED if no new member may come."""
        if len(self.members) >= self.rules.consumer_max_size:
            raise KafkaError(
                "The consumer group has reached its maximum capacity of "
                f"{self.rules.consumer_max_size} members.",
                code=ErrorCode.GROUP_MAX_SIZE_REACHED,
            )

    def standing_of(self, member: Member) -> Standing:
        """The member as it is now."""
        member_id = member.member_id
        return Standing(member_id, member.facts, member.current, self.targets.get(member_id))

    def find(self, member_id: str, instance_id: str | None) -> Member:
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

    # Leaving

    def remove(self, members: list[Member], topics: TopicsView) -> list[Record]:
        """The group's next epoch, without them. Who is left computes its target."""
        after = subscriptions_after(self, topics, gone=[member.facts for member in members])
        epoch = self.group_epoch + 1
        # Nobody asks whose rights would say which topics the expressions of the others match.
        self._seen = (-1, -1)
        records: list[Record] = []
        for member in members:
            records += removal_records(self.group_id, member.member_id)
        return [*records, *after.records, self.epoch_record(epoch)]

    def expire(self, topics: TopicsView, now_ms: int) -> list[Record]:
        """Remove the members that were silent for their session timeout, and those that did not
        revoke partitions within their rebalance timeout."""
        members = self.members.values()
        due = [member for member in members if member.deadline() <= now_ms]
        self._deadline_ms = min((member.deadline() for member in members), default=None)
        return self.remove(due, topics) if due else []

    def _leave_for_a_while(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[ConsumerGroupHeartbeatResponse, list[Record]]:
        """A static member keeps its partitions until its session ends, and nobody is disturbed."""
        member = self.find(request.member_id, request.instance_id)
        away = member.current._replace(epoch=LEAVE_FOR_A_WHILE_EPOCH, revoking=NOTHING)
        answer = self._answer(member.member_id, LEAVE_FOR_A_WHILE_EPOCH, interval_ms=0)
        return answer, [current_record(self.group_id, member.member_id, away)]

    # Questions

    def check_commit(
        self, member_id: str, member_epoch: int, version: int, now_ms: int
    ) -> ErrorCode:
        """Whether OffsetCommit of this version, or TxnOffsetCommit (any high version), may pass.

        An epoch below 0 is that of somebody who is no member: fine while there are none.
        """
        if member_epoch < 0 and not self.members:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version < COMMITS_WITH_MEMBER_EPOCH and member.facts.classic is None:
            return ErrorCode.UNSUPPORTED_VERSION
        return _same_epoch(member, member_epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int, now_ms: int) -> ErrorCode:
        """Whether OffsetFetch may pass. Without a member and an epoch it always may."""
        if not member_id and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _same_epoch(member, member_epoch)

    def describe(self, topics: TopicsView) -> ConsumerGroupDescribeResponse.Group:
        return described(self, topics)

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


def _same_epoch(member: Member, epoch: int) -> ErrorCode:
    if epoch == member.current.epoch:
        return ErrorCode.NONE
    if member.facts.classic is not None:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH


def _assignment(partitions: Partitions) -> ConsumerGroupHeartbeatResponse.Assignment:
    struct = ConsumerGroupHeartbeatResponse.Assignment
    return struct(
        topic_partitions=[
            struct.TopicPartitions(topic_id=topic, partitions=sorted(partitions[topic]))
            for topic in partitions
        ]
    )
