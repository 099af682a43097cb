"""A classic group: how its members come, agree, stay and go.

    Empty --join--> PreparingRebalance --all joined--> CompletingRebalance --leader syncs--> Stable
                            ^                                  |                               |
                            +--- a member comes, goes or changes, or does not sync in time ----+

A group that nobody is left in becomes Empty again, through PreparingRebalance. A member without an
id gets one first (from version 4 of JoinGroup on), a static one takes the place of the process that
had its instance before.

The checks, their order and their codes are Apache Kafka 3.9's (protocol.md 6); where it would leave
a request without any answer, we give one. The machine knows no clock and no timer: all times are
ms of one clock that never goes back. Deadlines are looked at when `expire` is called. A heartbeat
only moves one, so `deadline` may be too early, never too late.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.coordinator.classic.answers import (
    SEVERAL_LEAVE_SINCE,
    GroupDescription,
    MemberDescription,
    described_to_leader,
    join_refused,
    left,
    sync_refused,
)
from broker.coordinator.classic.arrivals import NOBODY
from broker.coordinator.classic.gathering import Gathering
from broker.coordinator.classic.members import NEVER, Member, Members
from broker.coordinator.effects import Append, Reply
from protocol.errors import ErrorCode
from protocol.logdata.membership import subscription_of
from protocol.logdata.offsets import GroupMetadataKey, GroupMetadataValue
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

    from broker.coordinator.classic.arrivals import Arrivals
    from broker.coordinator.classic.members import Protocols
    from broker.coordinator.effects import Caller, Effect, GroupRules
    from protocol.logdata.offsets import Record
    from protocol.messages.heartbeat import HeartbeatRequest
    from protocol.messages.join_group import JoinGroupRequest
    from protocol.messages.leave_group import LeaveGroupResponse
    from protocol.messages.sync_group import SyncGroupRequest

GENERATION_MAX = 2**31 - 1
ALL_AWAY_RETRY_MS = 1000
"""A rebalance that nobody has joined is looked at again no sooner, whatever timeout is claimed."""

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member does not know its id while its join is parked. A client that gave up and asked
again would leave another such member each time; they go when this time has passed."""

PENDING_MAX = 20_000
"""Ids given out to clients that have not joined with them yet. Beyond it the oldest is forgotten;
who comes with it starts again."""

ID_PREFIX_MAX = 8000
"""Characters of a client id that its member ids begin with: the whole must fit a short string."""
STRING_MAX_BYTES = 32_767 - 37
"""Longer texts could not be written into the group's record, nor an id made of one."""

REQUIRE_ID_SINCE = 4
"""The first JoinGroup that may be sent back for an id."""
SKIP_ASSIGNMENT_SINCE = 9
"""The first JoinGroup that tells a leader who is back that there is nothing to assign."""

PROTOCOL_NAMED_SINCE = 5
"""The first SyncGroup that must say which protocol its member believes in."""

CONSUMER = "consumer"
"""The protocol type whose metadata can be understood: subscriptions."""

NONE = ErrorCode.NONE


class State(Enum):
    """The value is Kafka's name for it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State

# The only moves there are. Anything else is a bug here, not a client's error.
MOVES: dict[State, frozenset[State]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}

HEARTBEAT_ANSWERS = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    COMPLETING: NONE,
    STABLE: NONE,
    DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class Joining(NamedTuple):
    """A JoinGroup and what came with it. `protocols` names each once."""

    waiter: Any
    request: JoinGroupRequest
    protocols: Protocols
    caller: Caller
    now_ms: int
    arrivals: Arrivals


class ClassicGroup:
    """One group. Every operation returns what is to happen, in this order; it gathers in the group
    until `_done`. When an `Append` could not be written, call `append_failed` before anything else.

    `generation_id` is 0 as long as there was none, and the group has no record. `new_member_id`
    makes an id that begins with its argument.
    """

    __slots__ = (
        "_effects",
        "_gathering",
        "_initial_left_ms",
        "_join_deadline_ms",
        "_new_member_id",
        "_pending",
        "_replaced",
        "_rules",
        "_session_deadline_ms",
        "_sync_deadline_ms",
        "_unsynced",
        "_wait_for_more",
        "current_state_timestamp",
        "generation_id",
        "group_id",
        "members",
        "protocol_name",
        "protocol_type",
        "state",
        "stored",
    )

    kind = "classic"

    def __init__(
        self, group_id: str, rules: GroupRules, new_member_id: Callable[[str], str]
    ) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Members()
        self.current_state_timestamp = -1
        """Of the record last written, ms since 1970; set by whoever writes it."""
        self.stored: GroupMetadataValue | None = None
        """The record last written, set likewise; nobody changes it. Members may be on their way to
        another generation already, of which a start would know nothing."""
        self._rules = rules
        self._new_member_id = new_member_id
        self._pending: dict[str, int] = {}
        """Ids given out and not come back with, and until when they are good."""
        self._unsynced: set[str] = set()
        """Members that have not synced since the generation began."""
        self._session_deadline_ms = NEVER
        """No session and no pending id ends before."""
        self._join_deadline_ms = NEVER
        self._sync_deadline_ms = NEVER
        self._initial_left_ms: int | None = None
        """The time for which the rebalance of a group that was empty may still be put off, None in
        others."""
        self._wait_for_more = False
        """Whether a member has come since it was last put off."""
        self._gathering = Gathering(group_id, rules.gathering_limit_ms)
        self._replaced: tuple[Member, Member] | None = None
        """The old and the new of a static member, if that is what the last record was about."""
        self._effects: list[Effect] = []

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

    # JoinGroup

    def join(
        self,
        waiter: Any,
        request: JoinGroupRequest,
        caller: Caller,
        now_ms: int,
        arrivals: Arrivals = NOBODY,
    ) -> list[Effect]:
        """A member comes, or comes again. Its answer may be among the effects of a later call."""
        joining = Joining(waiter, request, _protocols(request), caller, now_ms, arrivals)
        rules, timeout_ms = self._rules, request.session_timeout_ms
        if not rules.min_session_timeout_ms <= timeout_ms <= rules.max_session_timeout_ms:
            self._refuse(joining, request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT)
        elif not self._has_room_for(request.member_id):
            self._refuse(joining, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
            self._turn_away(request.member_id, now_ms)
        elif code := self._join_refusal(request, joining.protocols):
            self._refuse(joining, request.member_id, code)
        elif not request.member_id:
            self._join_without_id(joining)
        elif request.member_id in self._pending:
            self._add(request.member_id, joining)
        else:
            self._join_again(joining)
        return self._done()

    def _has_room_for(self, member_id: str) -> bool:
        """While a rebalance is prepared only those count that have joined it, so that a group that
        is too large sheds whoever comes last."""
        member = self.members.get(member_id)
        if self.state is PREPARING:
            parked = member is not None and member.join_waiter is not None
            return parked or self.members.awaiting < self._rules.max_size
        if self.state is EMPTY or self.state is DEAD:
            return True
        return member is not None or len(self.members) < self._rules.max_size

    def _turn_away(self, member_id: str, now_ms: int) -> None:
        self._pending.pop(member_id, None)
        member = self.members.get(member_id)
        if member is not None:
            self._remove(member)
        if self.state is PREPARING:
            self._complete_join_if_all_are_here(now_ms)

    def _join_refusal(self, request: JoinGroupRequest, protocols: Protocols) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        names = [name for name, _ in protocols]
        if not all(map(_fits, (request.protocol_type, request.group_instance_id or "", *names))):
            return ErrorCode.INVALID_REQUEST
        if self.state is EMPTY:
            speaks = bool(request.protocol_type and names)
        else:
            speaks = request.protocol_type == self.protocol_type
            speaks = speaks and self.members.all_speak_one_of(names)
        if not speaks:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not request.member_id:
            return NONE
        if request.member_id in self._pending:
            # Such ids are given to dynamic members only.
            dynamic = request.group_instance_id is None
            return NONE if dynamic else ErrorCode.UNKNOWN_MEMBER_ID
        return self._stranger(request.member_id, request.group_instance_id)

    def _join_without_id(self, joining: Joining) -> None:
        caller, instance_id = joining.caller, joining.request.group_instance_id
        if instance_id is not None:
            member_id = self._new_member_id(instance_id)
            known = self.members.by_instance.get(instance_id)
            if known is not None:
                self._replace(self.members.by_id[known], member_id, joining)
            else:
                self._add(member_id, joining)
            return
        member_id = self._new_member_id(caller.client_id[:ID_PREFIX_MAX])
        if caller.version >= REQUIRE_ID_SINCE:
            if self.state is EMPTY and not self._pending:
                self._gathering.see_first(joining.now_ms, joining.arrivals)
            self._expect(member_id, joining.now_ms + joining.request.session_timeout_ms)
            self._refuse(joining, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(member_id, joining)

    def _expect(self, member_id: str, deadline_ms: int) -> None:
        if len(self._pending) >= PENDING_MAX:
            del self._pending[next(iter(self._pending))]
        self._pending[member_id] = deadline_ms
        self._watch(deadline_ms)

    def _add(self, member_id: str, joining: Joining) -> None:
        if self._pending.pop(member_id, None) is None and self.state is EMPTY:
            self._gathering.see_first(joining.now_ms, joining.arrivals)
        if self.state is PREPARING and not self.generation_id:
            self._wait_for_more = True
        if not self.members:
            self.protocol_type = joining.request.protocol_type
        member = _member(member_id, joining)
        member.is_new = True
        self.members.add(member)
        self._park_join(member, joining)
        self._rebalance(joining.now_ms)

    def _join_again(self, joining: Joining) -> None:
        request = joining.request
        member = self.members.by_id[request.member_id]
        leads = member.member_id == self.members.leader
        if member.protocols == joining.protocols:
            if self.state is COMPLETING:
                # The answer to its join may have been lost.
                members, protocol = self.members, self.protocol_name
                everybody = described_to_leader(members, protocol) if leads else []
                self._reply(joining.waiter, self._joined(member.member_id, everybody))
                return
            if self.state is STABLE and not leads:
                self._reply(joining.waiter, self._joined(member.member_id, []))
                return
        self.members.update(
            member,
            joining.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
        )
        self._park_join(member, joining)
        self._rebalance(joining.now_ms)

    def _replace(self, old: Member, member_id: str, joining: Joining) -> None:
        """Another process takes the place of a static member; the old one is fenced."""
        old_leader = self.members.leader or ""
        self._dismiss(old, ErrorCode.FENCED_INSTANCE_ID, answered_id=old.member_id)
        new = _member(member_id, joining)
        new.is_new, new.assignment = old.is_new, old.assignment
        self.members.replace(old, new)
        if old.member_id in self._unsynced:
            self._unsynced.remove(old.member_id)
            self._unsynced.add(member_id)
        if self.state is not STABLE or self.members.vote() != self.protocol_name:
            self._park_join(new, joining)
            self._rebalance(joining.now_ms)
            return
        self._append(replaced=(old, new))
        self._restart_session(new, joining.now_ms)
        leads = member_id == self.members.leader
        if joining.caller.version >= SKIP_ASSIGNMENT_SINCE:
            members, protocol = self.members, self.protocol_name
            answer = self._joined(
                member_id, described_to_leader(members, protocol) if leads else []
            )
            answer.skip_assignment = leads
        else:
            # With the old leader's id the new process does not take itself for the leader: what
            # it assigned would reach nobody in a stable group.
            answer = self._joined(member_id, [])
            answer.leader = old_leader
        self._reply(joining.waiter, answer)

    def _park_join(self, member: Member, joining: Joining) -> None:
        if member.join_waiter is None:
            self.members.awaiting += 1
            give_up_ms = joining.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
            member.deadline_ms = give_up_ms if member.is_new else NEVER
            self._watch(member.deadline_ms)
        else:
            # Kafka leaves the earlier one without an answer; this one any client repeats.
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            refused = join_refused(member.join_version, member.member_id, code)
            self._reply(member.join_waiter, refused)
        member.join_waiter, member.join_version = joining.waiter, joining.caller.version
        self._gathering.see_join(joining.now_ms)

    def _refuse(self, joining: Joining, member_id: str, code: ErrorCode) -> None:
        self._reply(joining.waiter, join_refused(joining.caller.version, member_id, code))

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
        codes = [(member, self._remove_leaving(member)) for member in leaving]
        if len(self.members) < before:
            self._rebalance(now_ms)
        elif self.state is PREPARING:
            self._complete_join_if_all_are_here(now_ms)
        return left(caller.version, codes), self._done()

    def _remove_leaving(self, leaving: LeaveGroupRequest.Member) -> ErrorCode:
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

    # Rebalances

    def _rebalance(self, now_ms: int) -> None:
        """The members have changed, or one of them has joined."""
        if self.state is PREPARING:
            self._complete_join_if_all_are_here(now_ms)
        else:
            self._prepare(now_ms)

    def _prepare(self, now_ms: int) -> None:
        was_empty = self.state is EMPTY
        if self.state is COMPLETING:
            self._cancel_syncs(now_ms)
        self._unsynced.clear()
        self._sync_deadline_ms = NEVER
        self._become(PREPARING)
        timeout_ms = self.members.rebalance_timeout_ms
        delay_ms = self._rules.initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            self._initial_left_ms = max(timeout_ms - delay_ms, 0)
            self._join_deadline_ms = now_ms + delay_ms
        elif was_empty:
            # Not even for ids that are pending: of clients that start together the first would wait
            # for one that has died.
            self._gathering.begin(now_ms)
            self._complete_join(now_ms)
        else:
            self._join_deadline_ms = now_ms + timeout_ms
            self._complete_join_if_all_are_here(now_ms)

    def _cancel_syncs(self, now_ms: int) -> None:
        for member in self.members:
            member.assignment = b""
            if member.sync_waiter is not None:
                self._reply(member.sync_waiter, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
                member.sync_waiter = None
                self._restart_session(member, now_ms)

    def _complete_join_if_all_are_here(self, now_ms: int) -> None:
        members = self.members
        if (
            members.awaiting == len(members)
            and not self._pending
            and self._initial_left_ms is None
            and (not members or self._gathering.is_quiet(now_ms))
        ):
            self._complete_join(now_ms)

    def _join_time_is_up(self, now_ms: int) -> None:
        if self._wait_for_more and self._initial_left_ms:
            delay_ms = min(self._rules.initial_rebalance_delay_ms, self._initial_left_ms)
            self._wait_for_more = False
            self._initial_left_ms -= delay_ms
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        members = self.members
        for member in [m for m in members if m.join_waiter is None and m.instance_id is None]:
            self._remove(member)
        self._wait_for_more = False
        self._initial_left_ms = None
        if members and not members.elect_one_that_waits():
            # Only static members, and none is here: they have until their sessions end.
            patience_ms = max(members.rebalance_timeout_ms, ALL_AWAY_RETRY_MS)
            self._join_deadline_ms = now_ms + patience_ms
            return
        self._join_deadline_ms = NEVER
        self.generation_id = self.generation_id + 1 if self.generation_id < GENERATION_MAX else 1
        if not members:
            self.protocol_name = None
            self._session_deadline_ms = min(self._pending.values(), default=NEVER)
            self._become(EMPTY)
            self._append()
            return
        self.protocol_name = members.vote()
        self._become(COMPLETING)
        self._answer_joins(now_ms)
        self._unsynced = set(members.by_id)
        self._sync_deadline_ms = now_ms + members.rebalance_timeout_ms

    def _answer_joins(self, now_ms: int) -> None:
        members = self.members
        members.awaiting = 0
        for member in members:
            waiter, member.join_waiter = member.join_waiter, None
            member.is_new = False
            self._restart_session(member, now_ms)
            if waiter is not None:
                leads = member.member_id == members.leader
                everybody = described_to_leader(members, self.protocol_name) if leads else []
                self._reply(waiter, self._joined(member.member_id, everybody))

    def _assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """The leader's assignments reach everybody; a member that is not in them gets nothing."""
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
        self._become(STABLE)
        self._append()
        for member in self.members:
            if member.sync_waiter is not None:
                self._reply(member.sync_waiter, self._synced(member))
                member.sync_waiter = None
                self._restart_session(member, now_ms)

    # Time

    def deadline(self) -> int | None:
        """Latest time for a call of `expire`; None if nothing can run out. May move either way with
        every call."""
        deadline_ms = min(
            self._session_deadline_ms,
            self._join_deadline_ms,
            self._sync_deadline_ms,
            self._gathering.deadline_ms,
        )
        return None if deadline_ms == NEVER else deadline_ms

    def expire(self, now_ms: int, arrivals: Arrivals = NOBODY) -> list[Effect]:
        """End lapsed sessions and ids, and complete a rebalance that has waited enough."""
        if self._session_deadline_ms <= now_ms:
            self._end_sessions(now_ms)
        if self._join_deadline_ms <= now_ms:
            self._join_time_is_up(now_ms)
        if self._sync_deadline_ms <= now_ms:
            self._sync_time_is_up(now_ms)
        if self._gathering.deadline_ms <= now_ms:
            self._gathering_is_due(now_ms, arrivals)
        return self._done()

    def _end_sessions(self, now_ms: int) -> None:
        pending = [member_id for member_id, due in self._pending.items() if due <= now_ms]
        for member_id in pending:
            del self._pending[member_id]
        lapsed = [member for member in self.members if member.deadline_ms <= now_ms]
        for member in lapsed:
            self._remove(member)
        due = min((member.deadline_ms for member in self.members), default=NEVER)
        self._session_deadline_ms = min(due, min(self._pending.values(), default=NEVER))
        if lapsed:
            self._rebalance(now_ms)
        elif pending and self.state is PREPARING:
            self._complete_join_if_all_are_here(now_ms)

    def _gathering_is_due(self, now_ms: int, arrivals: Arrivals) -> None:
        if self.state is PREPARING:
            clients = {member.client_id for member in self.members}
            if self._gathering.expects_others(clients, now_ms, arrivals):
                return
            self._gathering.stop_looking()
            self._complete_join_if_all_are_here(now_ms)
            return
        (alone,) = self.members
        held = self._gathering.take(
            alone.client_id, now_ms, arrivals, is_expecting=bool(self._pending)
        )
        if held is not None:
            self._assign(held, now_ms)

    def _sync_time_is_up(self, now_ms: int) -> None:
        self._sync_deadline_ms = NEVER
        silent = [member for member in self.members if member.member_id in self._unsynced]
        for member in silent:
            self._remove(member)
        if silent:
            self._prepare(now_ms)

    def _has_synced(self, member: Member) -> None:
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._sync_deadline_ms = NEVER

    # Members

    def _stranger(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE for a member. An instance that is a member under another id is fenced."""
        if instance_id is not None:
            known = self.members.by_instance.get(instance_id)
            if known is not None and known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _dismiss(self, member: Member, code: ErrorCode, *, answered_id: str) -> None:
        """Answer what the member has parked."""
        if member.join_waiter is not None:
            self.members.awaiting -= 1
            self._reply(member.join_waiter, join_refused(member.join_version, answered_id, code))
            member.join_waiter = None
        if member.sync_waiter is not None:
            self._reply(member.sync_waiter, sync_refused(code))
            member.sync_waiter = None

    def _remove(self, member: Member) -> None:
        """The member is out. Whoever calls this lets the group rebalance after it."""
        self._dismiss(member, ErrorCode.UNKNOWN_MEMBER_ID, answered_id="")
        self.members.remove(member)
        self._unsynced.discard(member.member_id)

    def _restart_session(self, member: Member, now_ms: int) -> None:
        if member.join_waiter is None and member.sync_waiter is None:
            member.deadline_ms = now_ms + member.session_timeout_ms
            self._watch(member.deadline_ms)

    def _watch(self, deadline_ms: int) -> None:
        if deadline_ms < self._session_deadline_ms:
            self._session_deadline_ms = deadline_ms

    # States and effects

    def _become(self, state: State) -> None:
        assert state in MOVES[self.state], f"{self.group_id}: {self.state} to {state}"
        self.state = state
        self._gathering.stop_looking()

    def _reply(self, waiter: Any, response: JoinGroupResponse | SyncGroupResponse) -> None:
        self._effects.append(Reply(waiter, response))

    def _append(self, *, replaced: tuple[Member, Member] | None = None) -> None:
        self._replaced = replaced
        self._effects.append(Append([self.record()]))

    def _done(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _joined(
        self, member_id: str, everybody: list[JoinGroupResponse.Member]
    ) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=NONE,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.members.leader or "",
            member_id=member_id,
            members=everybody,
        )

    def _synced(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    # Records

    def record(self, wall_ms: int = -1) -> Record:
        """The group as it is now. `wall_ms` is the time since 1970, -1 to be filled in."""
        members = [
            GroupMetadataValue.Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=member.assignment,
            )
            for member in self.members
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.members.leader,
            current_state_timestamp=wall_ms,
            members=members,
        )
        return GroupMetadataKey(group=self.group_id), value

    def append_failed(self, now_ms: int) -> list[Effect]:
        """The record of the last call was not written; its answers were errors already.

        A static member that was to be replaced is what it was. Members that were to get their
        assignments have to join again. An empty group is empty all the same.
        """
        replaced, self._replaced = self._replaced, None
        if self.state is STABLE and replaced is not None:
            old, new = replaced
            self.members.replace(new, old)
            self._restart_session(old, now_ms)
        elif self.state is STABLE:
            for member in self.members:
                member.assignment = b""
            self._prepare(now_ms)
        return self._done()

    def rebalance(self, now_ms: int) -> list[Effect]:
        """Something has happened that only a new assignment can put right: all are to join."""
        self._rebalance(now_ms)
        return self._done()

    # Questions

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

    # The end

    def give_way(self) -> list[Effect]:
        """Another group takes the place of this one, with the same members: whoever waits here has
        to join that."""
        return self._end(ErrorCode.REBALANCE_IN_PROGRESS)

    def stop(self) -> list[Effect]:
        """The broker stops: whoever waits is to look for the coordinator again."""
        return self._end(ErrorCode.NOT_COORDINATOR)

    def delete(self) -> list[Effect]:
        """The group is gone: whoever still waits is no member of anything."""
        return self._end(ErrorCode.UNKNOWN_MEMBER_ID)

    def _end(self, code: ErrorCode) -> list[Effect]:
        if self.state is not DEAD:
            self._become(DEAD)
        for member in self.members:
            self._dismiss(member, code, answered_id=member.member_id)
        self.members = Members()
        self._pending.clear()
        self._unsynced.clear()
        self._session_deadline_ms = self._join_deadline_ms = self._sync_deadline_ms = NEVER
        return self._done()


def _protocols(request: JoinGroupRequest) -> Protocols:
    """Each protocol once, the first of a name counts."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return tuple(protocols.items())


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    # Version 0 has none.
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _fits(text: str) -> bool:
    if len(text) * 4 <= STRING_MAX_BYTES:
        return True
    return len(text.encode("utf-8", "surrogateescape")) <= STRING_MAX_BYTES


def _member(member_id: str, joining: Joining) -> Member:
    request, caller = joining.request, joining.caller
    return Member(
        member_id,
        request.group_instance_id,
        joining.protocols,
        client_id=caller.client_id,
        client_host=caller.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
    )


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
