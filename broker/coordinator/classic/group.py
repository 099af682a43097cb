"""A classic group as its members see it, once they are in: syncs, heartbeats, commits, leaving.

The checks, their order and their codes are Apache Kafka 3.9's (protocol.md 6); where it would leave
a request without any answer, we give one. The machine knows no clock and no timer: all times are
ms of one clock that never goes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.classic.answers import (
    SEVERAL_LEAVE_SINCE,
    GroupDescription,
    MemberDescription,
    left,
    sync_refused,
)
from broker.coordinator.classic.arrivals import NOBODY
from broker.coordinator.classic.joining import JoinableGroup
from broker.coordinator.classic.members import NEVER, Member
from broker.coordinator.classic.rebalance import (
    COMPLETING,
    DEAD,
    EMPTY,
    GENERATION_MAX,
    NONE,
    PREPARING,
    STABLE,
)
from broker.coordinator.classic.rebalance import State as State
from protocol.errors import ErrorCode
from protocol.logdata.membership import subscription_of
from protocol.messages.leave_group import LeaveGroupRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from broker.coordinator.classic.arrivals import Arrivals
    from broker.coordinator.effects import Caller, Effect, GroupRules
    from protocol.logdata.offsets import GroupMetadataValue
    from protocol.messages.heartbeat import HeartbeatRequest
    from protocol.messages.leave_group import LeaveGroupResponse
    from protocol.messages.sync_group import SyncGroupRequest

PROTOCOL_NAMED_SINCE = 5
"""The first SyncGroup that must say which protocol its member believes in."""

CONSUMER = "consumer"
"""The protocol type whose metadata can be understood: subscriptions."""

HEARTBEAT_ANSWERS = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    COMPLETING: NONE,
    STABLE: NONE,
    DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class ClassicGroup(JoinableGroup):
    """One group. Every operation returns what is to happen, in this order. When an `Append` could
    not be written, call `append_failed` before anything else.
    """

    __slots__ = ()

    kind = "classic"

    @classmethod
    def from_record(
        cls,
        group_id: str,
        value: GroupMetadataValue,
        rules: GroupRules,
        new_member_id: Callable[[str], str],
        now_ms: int,
    ) -> Self:
        """The group that a record tells of. Its members have a full session each to be heard of.

        A group that has become too large by another setting rebalances at once, as in Kafka. What
        contradicts itself in a record of somebody else is not believed: of two members with one
        id or instance the last counts, a leader who is no member is replaced.
        """
        group = cls(group_id, rules, new_member_id)
        group.protocol_type = value.protocol_type or None
        group.generation_id = min(max(value.generation, 0), GENERATION_MAX)
        group.current_state_timestamp = value.current_state_timestamp
        group.stored = value
        if not value.members:
            return group
        group.protocol_name = value.protocol or ""
        members = group.members
        for stored in value.members:
            same_instance = members.by_instance.get(stored.group_instance_id or "")
            for twin_id in (stored.member_id, same_instance):
                twin = members.get(twin_id or "")
                if twin is not None:
                    members.remove(twin)
            members.add(_loaded(stored, group.protocol_name))
        if value.leader in members:
            members.leader = value.leader
        group.state = STABLE
        group.restart_sessions(now_ms)
        if len(members) > rules.max_size:
            group._prepare(now_ms)
        return group

    def restart_sessions(self, now_ms: int) -> None:
        """Nobody could be heard until now: everybody has a full session again."""
        for member in self.members:
            self._restart_session(member, now_ms)

    @property
    def leader(self) -> str | None:
        """The member id of who assigns."""
        return self.members.leader

    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted or become a consumer group."""
        return self.state is EMPTY

    def is_forgettable(self) -> bool:
        """Whether nothing would be lost with it: no members, nobody on the way, no record."""
        return self.state is EMPTY and not self._pending and not self.generation_id

    # SyncGroup

    def sync(
        self,
        waiter: Any,
        request: SyncGroupRequest,
        caller: Caller,
        now_ms: int,
        arrivals: Arrivals = NOBODY,
    ) -> list[Effect]:
        """A member wants its assignment; the leader's sync brings all of them."""
        code = self._sync_refusal(request, caller.version)
        if code:
            self._reply(waiter, sync_refused(code))
            return self._done()
        member = self.members.by_id[request.member_id]
        self._has_synced(member)
        if self.state is STABLE:
            self._reply(waiter, self._synced(member))
            self._restart_session(member, now_ms)
            return self._done()
        if member.sync_waiter is not None:
            # Kafka leaves the earlier one without an answer.
            self._reply(member.sync_waiter, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_waiter = waiter
        member.deadline_ms = NEVER
        if member.member_id == self.members.leader:
            assignments = {a.member_id: a.assignment for a in request.assignments}
            if len(self.members) > 1 or not self._gathering.hold(
                assignments, member.client_id, now_ms, arrivals, is_expecting=bool(self._pending)
            ):
                self._assign(assignments, now_ms)
        return self._done()

    def _sync_refusal(self, request: SyncGroupRequest, version: int) -> ErrorCode:
        claims = (request.protocol_type, request.protocol_name)
        if version >= PROTOCOL_NAMED_SINCE and None in claims:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = self._stranger(request.member_id, request.group_instance_id)
        if code:
            return code
        if request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        for claimed, agreed in zip(claims, (self.protocol_type, self.protocol_name), strict=True):
            if claimed is not None and claimed != agreed:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else NONE

    # Heartbeat and commits

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        """A member is alive; it is told whether it must join again."""
        member = self.members.by_id.get(request.member_id)
        if (
            member is None
            or request.generation_id != self.generation_id
            or request.group_instance_id != member.instance_id
        ):
            code = self._fenced(request.member_id, request.generation_id, request.group_instance_id)
            if code:
                return code
            assert member is not None
        if member.join_waiter is None and member.sync_waiter is None:
            # Never earlier than it was, so nothing has to be watched.
            member.deadline_ms = now_ms + member.session_timeout_ms
        return HEARTBEAT_ANSWERS[self.state]

    def check_commit(
        self,
        member_id: str,
        generation_id: int,
        group_instance_id: str | None,
        now_ms: int,
        *,
        transactional: bool = False,
    ) -> ErrorCode:
        """Whether offsets may be committed by this member; it is alive then.

        `transactional` is for TxnOffsetCommit: its first versions name no member, and it may come
        while the members sync.
        """
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is EMPTY:
            return NONE
        if generation_id < 0 and not member_id and group_instance_id is None:
            return NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        code = self._fenced(member_id, generation_id, group_instance_id)
        if code or transactional:
            return code
        if self.state is COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._restart_session(self.members.by_id[member_id], now_ms)
        return NONE

    def _fenced(
        self, member_id: str, generation_id: int, group_instance_id: str | None
    ) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = self._stranger(member_id, group_instance_id)
        if not code and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return code

    # LeaveGroup

    def leave(
        self, request: LeaveGroupRequest, caller: Caller, now_ms: int
    ) -> tuple[LeaveGroupResponse, list[Effect]]:
        """Members go, or are put out; the answer leaves after the effects."""
        leaving: Iterable[LeaveGroupRequest.Member] = request.members
        if caller.version < SEVERAL_LEAVE_SINCE:
            leaving = [LeaveGroupRequest.Member(member_id=request.member_id)]
        before = len(self.members)
        codes = [(member, self._let_go(member)) for member in leaving]
        if len(self.members) < before:
            self._rebalance(now_ms)
        elif self.state is PREPARING:
            self._complete_join_if_all_are_here(now_ms)
        return left(caller.version, codes), self._done()

    def _let_go(self, leaving: LeaveGroupRequest.Member) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if not member_id and instance_id is not None:
            # An administrator names the instance; the id it has now is nobody's business.
            member_id = self.members.by_instance.get(instance_id, "")
        if member_id in self._pending:
            del self._pending[member_id]
            return NONE
        code = self._stranger(member_id, instance_id)
        if not code:
            self._remove(self.members.by_id[member_id])
        return code

    # What others want to know

    def describe(self) -> GroupDescription:
        """As DescribeGroups shows it (protocol.md 4.8)."""
        protocol = self.protocol_name if self.state is STABLE else None
        return GroupDescription(
            self.state.value,
            self.protocol_type or "",
            protocol or "",
            [
                MemberDescription(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    b"" if protocol is None else member.metadata(protocol),
                    b"" if protocol is None else member.assignment,
                )
                for member in self.members
            ],
        )

    def subscribed_topics(self) -> set[str] | None:
        """The topics that members want; None if that cannot be known: not consumers, or garbage."""
        if not self.members:
            return set()
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        for member in self.members:
            chosen = [data for name, data in member.protocols if name == self.protocol_name]
            # Before there is a generation it may become any of them.
            for data in chosen or [data for _, data in member.protocols]:
                subscription = subscription_of(data)
                if subscription is None:
                    return None
                topics.update(subscription.topics)
        return topics


def _loaded(stored: GroupMetadataValue.Member, protocol: str) -> Member:
    # Records of version 0 know no time to rejoin.
    rejoin_ms = stored.rebalance_timeout
    member = Member(
        stored.member_id,
        stored.group_instance_id,
        ((protocol, stored.subscription),),
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=max(stored.session_timeout, 0),
        rebalance_timeout_ms=rejoin_ms if rejoin_ms >= 0 else max(stored.session_timeout, 0),
    )
    member.assignment = stored.assignment
    return member
