"""A consumer group of the newer protocol (KIP-848), by its one request: the heartbeat.

An operation looks at what is written and at the request, and gives an answer and records; it
changes no more than when a member was last heard of. The runtime writes the records, has them
replayed, and then lets the answer go. If they cannot be written, nothing has happened, and the
client's next attempt finds the group as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.consumer.classic_members import ClassicSpeakers
from broker.coordinator.consumer.description import described
from broker.coordinator.consumer.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    NOTHING,
    Member,
    MemberState,
    current_record,
    partitions_of,
)
from broker.coordinator.consumer.request_checks import check_request, is_full, updated_facts
from broker.coordinator.consumer.steps import Standing
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from broker.coordinator.consumer.assignors import Partitions
    from broker.coordinator.effects import Caller, TopicsView
    from protocol.logdata.offsets import Record
    from protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse

COMMITS_WITH_MEMBER_EPOCH = 9
"""The first version of OffsetCommit that members of such groups may use."""


class ConsumerGroup(ClassicSpeakers):
    """One group. `new_member_id` makes the id of a member that has none, from its client id."""

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
            leaving = self._find(request.member_id, request.instance_id)
            records = self._remove([leaving], topics)
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
        current, records = self._step(
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

    # Who it is

    def _standing(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Standing:
        """Raises KafkaError if it may not be here, or not like this."""
        if request.member_epoch != JOIN_EPOCH:
            member = self._find(request.member_id, request.instance_id)
            self._check_epoch(member, request)
            return self._standing_of(member)
        member_id = request.member_id or self._new_member_id(caller.client_id)
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
            self._check_room()
            return Standing(member_id)
        if known.member_id == member_id and known.current.epoch != LEAVE_FOR_A_WHILE_EPOCH:
            return self._standing_of(known)
        return self._in_place_of(known, member_id)

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

    # Those who go

    def _leave_for_a_while(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[ConsumerGroupHeartbeatResponse, list[Record]]:
        """A static member keeps its partitions until its session ends, and nobody is disturbed."""
        member = self._find(request.member_id, request.instance_id)
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
        """Whether OffsetFetch may pass. Who gives neither a member nor an epoch may always ask."""
        if not member_id and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _same_epoch(member, member_epoch)

    def describe(self, topics: TopicsView) -> ConsumerGroupDescribeResponse.Group:
        return described(self, topics)


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
