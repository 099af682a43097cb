"""Members of a consumer group that speak the classic protocol, while a group is being migrated.

A group whose members are exchanged one by one, from the classic protocol to the newer one or back,
has both kinds in it for a while (KIP-848, "online migration"). The broker assigns for all; a
classic member is told by its heartbeat to join again whenever there is a step to take, says in its
subscription what it still holds, and finds what it has in the answer to its sync. Nobody is the
leader, and nobody waits for others: each answer is given at once. Behaviour as in Apache Kafka 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.classic.answers import SEVERAL_LEAVE_SINCE, left, sync_refused
from broker.coordinator.consumer.group import Standing
from broker.coordinator.consumer.members import NOTHING, MemberFacts, MemberState
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.membership import (
    NEWEST,
    Assignment,
    encode_assignment,
    subscription_of,
)
from protocol.logdata.offsets import ConsumerGroupMemberMetadataValue
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.coordinator.consumer.assignors import Partitions
    from broker.coordinator.consumer.group import ConsumerGroup
    from broker.coordinator.consumer.members import Member
    from broker.coordinator.effects import Caller, TopicsView
    from protocol.logdata.membership import Subscription
    from protocol.logdata.offsets import Record
    from protocol.messages.heartbeat import HeartbeatRequest
    from protocol.messages.leave_group import LeaveGroupResponse

PROTOCOL_TYPE = "consumer"
REQUIRE_ID_SINCE = 4
"""The first JoinGroup whose member is sent back with an id before it may join."""

ClassicData = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata


def classic_join(
    group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, topics: TopicsView, now_ms: int
) -> tuple[JoinGroupResponse, list[Record]]:
    """The answer and what must be written before it may be sent. The generation is the epoch.

    Raises KafkaError: INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL,
    GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    rules = group.rules
    if not (
        rules.min_session_timeout_ms <= request.session_timeout_ms
        and request.session_timeout_ms <= rules.max_session_timeout_ms
    ):
        raise KafkaError(
            f"a session timeout of {request.session_timeout_ms} ms, allowed are "
            f"{rules.min_session_timeout_ms} to {rules.max_session_timeout_ms}",
            code=ErrorCode.INVALID_SESSION_TIMEOUT,
        )
    subscription = _understood(group, request)
    dynamic = request.group_instance_id is None
    if not request.member_id and dynamic and caller.version >= REQUIRE_ID_SINCE:
        group.check_room()
        member_id = group.new_member_id(caller.client_id)
        return _joined(request, member_id, -1, ErrorCode.MEMBER_ID_REQUIRED), []
    standing = _classic_standing(group, request, caller)
    facts = _facts(standing.facts, request, caller, subscription)
    current, records = group.step(standing, facts, _owned(subscription, topics), topics)
    member = group.members.get(standing.member_id)
    if member is not None:
        member.session_ends_ms = now_ms + request.session_timeout_ms
        member.joined_by_ms = None
    return _joined(request, standing.member_id, current.epoch, ErrorCode.NONE), records


def _understood(group: ConsumerGroup, request: JoinGroupRequest) -> Subscription:
    """All protocols of a consumer carry the same subscription, so the first is as good as any.

    It must speak one that all other classic members speak: they may stay when the others go.
    """
    names = {protocol.name for protocol in request.protocols}
    for member_id, member in group.members.items():
        if member.facts.classic is not None and member_id != request.member_id:
            names &= {protocol.name for protocol in member.facts.classic.supported_protocols}
    subscription = subscription_of(request.protocols[0].metadata) if names else None
    if request.protocol_type != PROTOCOL_TYPE or subscription is None:
        raise KafkaError(
            f"Member {request.member_id}'s protocols are not supported.",
            code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        )
    return subscription


def _classic_standing(group: ConsumerGroup, request: JoinGroupRequest, caller: Caller) -> Standing:
    member_id, instance_id = request.member_id, request.group_instance_id
    if instance_id is not None and member_id:
        return group.standing_of(group.find(member_id, instance_id))
    if instance_id is not None:
        member_id = group.new_member_id(instance_id)
        known = group.members.get(group.static_members.get(instance_id, ""))
        if known is not None:
            return group.in_place_of(known, member_id)
    known = group.members.get(member_id)
    if known is not None:
        return group.standing_of(known)
    group.check_room()
    return Standing(member_id or group.new_member_id(caller.client_id))


def classic_sync(
    group: ConsumerGroup, request: SyncGroupRequest, caller: Caller, topics: TopicsView, now_ms: int
) -> SyncGroupResponse:
    """The member's assignment, in the version of its subscription; an error is in the answer."""
    try:
        member, classic = _classic(group, request.member_id, request.group_instance_id)
    except KafkaError as error:
        return sync_refused(error.code)
    first = classic.supported_protocols[0]
    code = ErrorCode.NONE
    if request.generation_id != member.current.epoch:
        code = ErrorCode.ILLEGAL_GENERATION
    elif request.protocol_type not in (None, PROTOCOL_TYPE) or (
        request.protocol_name not in (None, first.name)
    ):
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    elif _is_behind(group, member):
        _expect_join(group, member, now_ms)
        code = ErrorCode.REBALANCE_IN_PROGRESS
    if code:
        return sync_refused(code)
    member.session_ends_ms = now_ms + classic.session_timeout_ms
    named = [
        (topic.name, sorted(numbers))
        for topic_id, numbers in member.current.assigned.items()
        if (topic := topics.by_id(topic_id)) is not None
    ]
    version = min(int.from_bytes(first.metadata[:2], "big"), NEWEST)
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=first.name,
        assignment=encode_assignment(Assignment(named), version),
    )


def classic_heartbeat(group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
    """Whether the member has a step to take, for which it has to join again."""
    try:
        member, classic = _classic(group, request.member_id, request.group_instance_id)
    except KafkaError as error:
        return error.code
    if request.generation_id != member.current.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    member.session_ends_ms = now_ms + classic.session_timeout_ms
    waits = member.current.state == MemberState.UNRELEASED
    # Who is to give up partitions is behind as well.
    if group.group_epoch > member.current.epoch or (waits and not _waits_for_others(group, member)):
        _expect_join(group, member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def classic_leave(
    group: ConsumerGroup, request: LeaveGroupRequest, caller: Caller, topics: TopicsView
) -> tuple[LeaveGroupResponse, list[Record]]:
    """Members go, or are put out by their instance; those of the newer protocol cannot."""
    leaving: Iterable[LeaveGroupRequest.Member] = request.members
    if caller.version < SEVERAL_LEAVE_SINCE:
        leaving = [LeaveGroupRequest.Member(member_id=request.member_id)]
    codes = []
    gone: dict[str, Member] = {}
    for one in leaving:
        member_id, instance_id = one.member_id, one.group_instance_id
        if not member_id and instance_id is not None:
            member_id = group.static_members.get(instance_id, "")
        try:
            member, _ = _classic(group, member_id, instance_id)
        except KafkaError as error:
            codes.append((one, error.code))
        else:
            gone[member.member_id] = member
            codes.append((one, ErrorCode.NONE))
    records = group.remove(list(gone.values()), topics) if gone else []
    return left(caller.version, codes), records


def _classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[Member, ClassicData]:
    """Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    member = group.find(member_id, instance_id)
    if member.facts.classic is None or not member.facts.classic.supported_protocols:
        raise KafkaError(
            f"Member {member_id} does not use the classic protocol.",
            code=ErrorCode.UNKNOWN_MEMBER_ID,
        )
    return member, member.facts.classic


def _is_behind(group: ConsumerGroup, member: Member) -> bool:
    """One that gives up partitions has joined; it is asked again when it has given them up."""
    return (
        group.group_epoch > member.current.epoch and member.current.state != MemberState.UNREVOKED
    )


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    assigned = member.current.assigned
    return any(
        group.owners.get(topic, {}).get(number) is not None
        for topic, numbers in group.targets.get(member.member_id, NOTHING).items()
        for number in numbers - assigned.get(topic, frozenset())
    )


def _expect_join(group: ConsumerGroup, member: Member, now_ms: int) -> None:
    """One that was told to join again and does not in its rebalance timeout is put out."""
    if member.joined_by_ms is None:
        member.joined_by_ms = now_ms + member.facts.rebalance_timeout_ms
        group.look_at(member.joined_by_ms)


def _facts(
    before: MemberFacts, request: JoinGroupRequest, caller: Caller, subscription: Subscription
) -> MemberFacts:
    timeout_ms = request.rebalance_timeout_ms
    return MemberFacts(
        before.instance_id if request.group_instance_id is None else request.group_instance_id,
        subscription.rack_id or before.rack_id,
        caller.client_id,
        caller.client_host,
        tuple(sorted(set(subscription.topics))),
        "",
        request.session_timeout_ms if timeout_ms < 0 else timeout_ms,
        before.assignor,
        ClassicData(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicData.ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in request.protocols
            ],
        ),
    )


def _owned(subscription: Subscription, topics: TopicsView) -> Partitions:
    """The partitions that a member says it holds. One that says nothing has given up everything:
    until the cooperative protocol, that was done before each join."""
    owned: Partitions = {}
    for name, numbers in subscription.owned:
        topic = topics.get(name)
        if topic is not None and numbers:
            owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()).union(numbers)
    return owned


def _joined(
    request: JoinGroupRequest, member_id: str, epoch: int, code: ErrorCode
) -> JoinGroupResponse:
    """Nobody is told that it leads, so nobody assigns."""
    return JoinGroupResponse(
        error_code=code,
        generation_id=epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        leader="",
        member_id=member_id,
        members=[],
    )
